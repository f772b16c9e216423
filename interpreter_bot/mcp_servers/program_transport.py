"""Transport over standard streams to an MCP server that runs in a sandbox of its own.

The SDK's transport is not used: it would start the server with the bot's rights, and read lines of
any length.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, TypeAlias

import anyio
import mcp_types
from anyio.streams import memory
from mcp.shared import message as messages

from interpreter_bot import settings
from interpreter_bot.guest import program_walls
from interpreter_bot.kernels.files import directory_contents, safe_open
from interpreter_bot.kernels.metering import procfs, session_metering
from interpreter_bot.kernels.provisioning import cgroups
from interpreter_bot.mcp_servers import http_transports, program_cgroups
from interpreter_bot.text import safe_text

_log = logging.getLogger(__name__)

_Incoming: TypeAlias = messages.SessionMessage | Exception
_Receiver: TypeAlias = memory.MemoryObjectReceiveStream[_Incoming]
_Sender: TypeAlias = memory.MemoryObjectSendStream[messages.SessionMessage]

_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_MAX_PROCESSES: Final = 256
_MAX_OPEN_FILES: Final = 1024
_MAX_FILES: Final = 20_000
_END_SECONDS: Final = 2.0
_MEASURE_INTERVAL_SECONDS: Final = 0.5
_CHUNK_BYTES: Final = 4_000
_MAX_LOGGED_BYTES: Final = 64_000
_TOO_MUCH_MEMORY: Final = "the MCP server %s took too much memory, and is ended"
_TOO_MANY_FILES: Final = "the MCP server %s has too many files, or too large ones, and is ended"
_TOO_MANY_PROCESSES: Final = "the MCP server %s has too many processes, and is ended"
_UNMEASURED: Final = "the MCP server %s cannot be measured, and is ended"


@contextlib.asynccontextmanager
async def start_program(
    server: settings.McpServer,
    environment: Mapping[str, str],
    *,
    groups: program_cgroups.ProgramGroups,
    on_end: Callable[[], None],
) -> AsyncIterator[tuple[_Receiver, _Sender]]:
    """Start a server's program, and end it with the context.

    Args:
        server: its settings.
        environment: variables for this program, besides those that all programs get.
        groups: limits the program's memory, if there are control groups.
        on_end: called when the program ends or closes its output.

    Raises:
        OSError: it cannot be started.
    """
    group = await groups.create(server, _MAX_PROCESSES)
    try:
        async with _temporary_directory(server.name) as directory:
            walls = await asyncio.to_thread(_sandbox_walls, server, groups)
            walls = dataclasses.replace(walls, temporary_directory=directory)
            process = await _start_process(server, environment, group, walls)
            async with _message_streams(server, process, group, directory, on_end) as streams:
                yield streams
    finally:
        if group is not None:
            await asyncio.to_thread(group.remove)


@contextlib.asynccontextmanager
async def _temporary_directory(name: str) -> AsyncIterator[str]:
    """Make a directory for the program's files; it stays empty if the files are in memory."""
    directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="mcp-server-")
    try:
        yield directory
    finally:
        try:
            await asyncio.to_thread(safe_open.remove, pathlib.Path(directory))
        except OSError:
            _log.warning("cannot remove the files of the MCP server %s", name, exc_info=True)


async def find_refusal(server: settings.McpServer, groups: program_cgroups.ProgramGroups) -> str:
    """Return why the program cannot have a sandbox on this machine; empty if it can."""
    walls = await asyncio.to_thread(_sandbox_walls, server, groups)
    process = await asyncio.create_subprocess_exec(
        *walls.command(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=_ENVIRONMENT,
        cwd="/",
    )
    _, error_output = await process.communicate()
    return error_output.decode("utf-8", "replace").strip() if process.returncode else ""


async def _start_process(
    server: settings.McpServer,
    environment: Mapping[str, str],
    group: cgroups.Group | None,
    walls: program_walls.SandboxWalls,
) -> asyncio.subprocess.Process:
    """Start the program. The launcher enters the control group before it runs foreign code."""
    cgroup_files = group.entry_files() if group is not None else []
    launcher = dataclasses.replace(walls, cgroup_files=cgroup_files).command()
    try:
        return await asyncio.create_subprocess_exec(
            *(*launcher, *server.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**_ENVIRONMENT, **environment},
            cwd="/",
            start_new_session=True,
            limit=http_transports.MAX_ANSWER_BYTES,
            pass_fds=cgroup_files,
        )
    finally:
        for descriptor in cgroup_files:
            os.close(descriptor)


@contextlib.asynccontextmanager
async def _message_streams(
    server: settings.McpServer,
    process: asyncio.subprocess.Process,
    group: cgroups.Group | None,
    directory: str,
    on_end: Callable[[], None],
) -> AsyncIterator[tuple[_Receiver, _Sender]]:
    """Provide the streams from and to a program, and end the program with the context."""
    to_client, client_receiver = anyio.create_memory_object_stream[_Incoming](0)
    client_sender, from_client = anyio.create_memory_object_stream[messages.SessionMessage](0)
    watch_task = asyncio.create_task(
        _enforce_limits(server, process, group, directory), name="use of an MCP program"
    )
    tasks = [
        watch_task,
        asyncio.create_task(
            _read_messages(server.name, process, to_client, on_end), name="MCP program"
        ),
        asyncio.create_task(_write_messages(process, from_client), name="input of an MCP program"),
        asyncio.create_task(_log_errors(server.name, process), name="errors of an MCP program"),
    ]
    try:
        yield client_receiver, client_sender
    finally:
        for stream in (client_receiver, client_sender):
            stream.close()
        for task in tasks:
            task.cancel()
        try:
            await asyncio.wait(tasks)
            if watch_task.cancelled() and group is not None and group.oom_kills():
                # It was killed for its memory before it was measured.
                _log.warning(_TOO_MUCH_MEMORY, server.name)
            await _end(process)
        finally:
            _kill(process)


def _sandbox_walls(
    server: settings.McpServer, groups: program_cgroups.ProgramGroups
) -> program_walls.SandboxWalls:
    return program_walls.SandboxWalls(
        level=groups.sandbox.level,
        uid=groups.uid(server),
        readable_paths=[str(path) for path in server.readable],
        has_network=server.network,
        temporary_bytes=program_cgroups.FILES_BYTES,
        rlimits={
            "DATA": server.memory_bytes,
            "NPROC": _MAX_PROCESSES,
            "NOFILE": _MAX_OPEN_FILES,
            "CORE": 0,
        },
    )


async def _read_messages(
    name: str,
    process: asyncio.subprocess.Process,
    to_client: memory.MemoryObjectSendStream[_Incoming],
    on_end: Callable[[], None],
) -> None:
    """Read the program's messages, one per line."""
    try:
        while process.stdout is not None and (line := await process.stdout.readline()):
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                _log.info("the MCP server %s sent an invalid message", name)
                continue
            await to_client.send(messages.SessionMessage(message))
    except ValueError:
        _log.warning("the MCP server %s sent a line that is too long", name)
    except anyio.BrokenResourceError:
        _log.info("the client of the MCP server %s is gone", name)
    finally:
        # Called in the same step, so that a reader of the closed stream finds the end recorded.
        to_client.close()
        on_end()


async def _write_messages(
    process: asyncio.subprocess.Process,
    from_client: memory.MemoryObjectReceiveStream[messages.SessionMessage],
) -> None:
    """Write the bot's messages to the program."""
    async with from_client:
        async for message in from_client:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            if process.stdin is not None:
                process.stdin.write(line.encode() + b"\n")
                # A program that has ended is noticed by the reader.
                with contextlib.suppress(ConnectionError):
                    await process.stdin.drain()


async def _log_errors(name: str, process: asyncio.subprocess.Process) -> None:
    """Read all that the program prints to standard error, and log the beginning."""
    remaining_bytes, partial_line = _MAX_LOGGED_BYTES, b""
    while process.stderr is not None and (chunk := await process.stderr.read(_CHUNK_BYTES)):
        # By whole lines, because half a secret would not be recognized and hidden.
        lines, end, partial_line = (partial_line + chunk).rpartition(b"\n")
        if not end and len(partial_line) > _CHUNK_BYTES:
            lines, partial_line = partial_line, b""
        _log_printed(name, lines[: max(remaining_bytes, 0)])
        remaining_bytes -= len(lines)
    _log_printed(name, partial_line[: max(remaining_bytes, 0)])


def _log_printed(name: str, printed: bytes) -> None:
    if text := safe_text.sanitize(printed.decode("utf-8", "replace")).rstrip():
        _log.warning("the MCP server %s printed: %s", name, text)


async def _enforce_limits(
    server: settings.McpServer,
    process: asyncio.subprocess.Process,
    group: cgroups.Group | None,
    directory: str,
) -> None:
    """Kill a program whose processes together exceed a limit; the sandbox limits only each one."""
    while process.returncode is None:
        await asyncio.sleep(_MEASURE_INTERVAL_SECONDS)
        try:
            excess = await asyncio.to_thread(_find_excess, server, process.pid, group, directory)
        except OSError:
            _log.exception("a program cannot be measured")
            excess = _UNMEASURED
        if excess:
            _log.warning(excess, server.name)
            _kill(process)
            return


def _find_excess(
    server: settings.McpServer, pid: int, group: cgroups.Group | None, directory: str
) -> str:
    """Return the log message for a program that exceeds a limit; empty if it does not."""
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Without namespaces, a user id of the program owns the directory. A bot that is root then
        # reads the program's processes as that user.
        status = os.fstat(root)
        files = directory_contents.measure(
            root, max_bytes=program_cgroups.FILES_BYTES, max_files=_MAX_FILES
        )
    finally:
        os.close(root)
    processes = session_metering.SessionProcesses(
        pid, read_as=None if status.st_uid == os.geteuid() else status.st_uid
    )
    deleted_bytes = 0
    if procfs.namespace(pid, "pid_for_children") == procfs.namespace("self", "pid"):
        # A file that is only mapped cannot be measured, so it counts as over the limit.
        deleted_bytes = processes.deleted_bytes(
            status.st_dev, os.path.realpath(directory), mapped_bytes=program_cgroups.FILES_BYTES + 1
        )
    if files.is_over_limit or files.bytes + deleted_bytes > program_cgroups.FILES_BYTES:
        return _TOO_MANY_FILES
    if group is not None:
        # The group bounds memory and processes, but after an OOM kill some processes may remain.
        return _TOO_MUCH_MEMORY if group.oom_kills() else ""
    max_tasks = _MAX_PROCESSES + program_cgroups.WALLS_PROCESSES
    reading = processes.reading(server.memory_bytes, max_tasks)
    if reading.task_count > max_tasks:
        return _TOO_MANY_PROCESSES
    return _TOO_MUCH_MEMORY if reading.memory_bytes > server.memory_bytes else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program and everything it started: close its input, wait, then kill it."""
    if process.stdin is not None:
        process.stdin.close()
    # Its remaining output is read and dropped, as the program may wait until it is read.
    outputs = [_drain(stream) for stream in (process.stdout, process.stderr) if stream is not None]
    process_end = asyncio.gather(*outputs, process.wait())
    await asyncio.wait({process_end}, timeout=_END_SECONDS)
    _kill(process)
    await process_end


def _kill(process: asyncio.subprocess.Process) -> None:
    """Ask the launcher to end everything it started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(_CHUNK_BYTES):
        pass
