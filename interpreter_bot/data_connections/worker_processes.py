"""Worker processes: each runs one query at a time, is reused, and is killed if it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from interpreter_bot import errors, settings
from interpreter_bot.data_connections import configured_connections, worker_messages
from interpreter_bot.guest import program_walls
from interpreter_bot.wording import data_words

_log = logging.getLogger(__name__)

_WORKER_ARGUMENTS: Final = ("-I", "-B", "-m", "interpreter_bot.data_connections.worker")
# Libraries, files to find names and certificates, and sockets of servers on this machine.
_READABLE_PATHS: Final = (
    *("/usr", "/bin", "/lib", "/lib64", "/proc", "/etc/ld.so.cache", "/etc/resolv.conf"),
    # The numbers of processors and the size of memory.
    *("/sys/fs/cgroup", "/sys/devices/system/cpu"),
    *("/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/localtime", "/run/systemd/resolve"),
    *("/run/postgresql", "/var/run/postgresql", "/etc/passwd"),
)
_CHUNK_BYTES: Final = 512 * 1024
_MAX_LOGGED_BYTES: Final = 10_000
_MAX_CANCELLING_SECONDS: Final = 3.0
_IDLE_SECONDS: Final = 300.0
# Queries on one connection at a time, of all sessions; more queries wait.
_MAX_PARALLEL_QUERIES: Final = 4
_MAX_MEMORY_BYTES: Final = 3 * settings.GIB

OnData = Callable[[bytes], Awaitable[None]]


class Worker:
    """One process, and the bot's end of its socket."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._has_open_request = False
        self._frame_bytes_left = 0
        """Unread bytes of the present frame."""
        self.last_used_at = 0.0
        self._log_task = asyncio.create_task(self._log_errors(), name="errors of a worker")

    @classmethod
    async def start(cls, rule: configured_connections.Rule) -> Worker:
        """Start a process for a connection."""
        bot_end, worker_end = socket.socketpair()
        try:
            for end in (bot_end, worker_end):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHUNK_BYTES)
            bot_end.setblocking(False)
            process = await asyncio.create_subprocess_exec(
                *_make_walls(rule).command(),
                *(sys.executable, *_WORKER_ARGUMENTS),
                stdin=worker_end.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            bot_end.close()
            raise
        finally:
            worker_end.close()
        reader, writer = await asyncio.open_connection(sock=bot_end, limit=_CHUNK_BYTES)
        worker = cls(process, reader, writer)
        specification = {
            "kind": rule.kind,
            "address": rule.address,
            "options": dict(rule.options),
            "writes": rule.writes,
            "login_only_reads": rule.login_only_reads,
        }
        writer.write(worker_messages.pack_note(specification))
        return worker

    @property
    def is_alive(self) -> bool:
        """Whether the process can take requests."""
        return self._process.returncode is None and not self._reader.at_eof()

    async def send_request(
        self, request: dict[str, Any], on_data: OnData | None = None, *, is_framed: bool = True
    ) -> dict[str, Any]:
        """Send a request; return the reply.

        Args:
            request: for the worker.
            on_data: receives frames of data in pieces; None drops them.
            is_framed: whether `on_data` also receives the heads of frames.

        Raises:
            BotError: the worker has ended, or its reply is malformed.
        """
        self._has_open_request = True
        try:
            self._writer.write(worker_messages.pack_note(request))
            await self._writer.drain()
            return await self._read_reply(on_data, is_framed=is_framed)
        except (EOFError, OSError) as error:
            raise errors.BotError(data_words.PROCESS_ENDED) from error

    async def _read_reply(
        self, on_data: OnData | None, *, is_framed: bool = True
    ) -> dict[str, Any]:
        while True:
            while self._frame_bytes_left:
                piece = await self._reader.read(min(self._frame_bytes_left, _CHUNK_BYTES))
                if not piece:
                    raise EOFError
                self._frame_bytes_left -= len(piece)
                if on_data is not None:
                    await on_data(piece)
            kind, length = await worker_messages.read_head(self._reader)
            if kind == worker_messages.NOTE:
                reply = worker_messages.read_note(await self._reader.readexactly(length))
                self._has_open_request = False
                return reply
            self._frame_bytes_left = length
            if on_data is not None and is_framed:
                await on_data(worker_messages.HEAD.pack(kind, length))

    async def cancel_request(self) -> None:
        """Cancel an unfinished request; kill the process if that fails."""
        if not self._has_open_request:
            return
        try:
            async with asyncio.timeout(_MAX_CANCELLING_SECONDS):
                self._writer.write(worker_messages.pack_note({"do": "cancel"}))
                await self._read_reply(None)
        except (errors.BotError, EOFError, OSError):  # TimeoutError is an OSError.
            _log.warning("a database did not cancel a query", exc_info=True)
            await self.kill()

    async def kill(self) -> None:
        """Kill the process, and wait for its end."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._writer.close()
        await asyncio.wait({self._log_task})

    async def _log_errors(self) -> None:
        """Log the standard error of the process, which is normally empty."""
        if self._process.stderr is not None:
            while output := await self._process.stderr.read(_MAX_LOGGED_BYTES):
                _log.warning("a worker reported: %s", output.decode("utf-8", "replace").rstrip())


class WorkerPool:
    """The processes of one connection, kept for a while after each use."""

    def __init__(self, rule: configured_connections.Rule) -> None:
        self._rule = rule
        self._slots = asyncio.Semaphore(_MAX_PARALLEL_QUERIES)
        self._idle_workers: list[Worker] = []
        self._return_tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def lend_worker(self) -> AsyncIterator[Worker]:
        """Wait for a free process and lend it; afterwards, cancel a request that is unfinished.

        Raises:
            BotError: no process can be started.
        """
        await self._slots.acquire()
        worker = None
        try:
            while worker is None and self._idle_workers:
                idle_worker = self._idle_workers.pop()
                worker = idle_worker if idle_worker.is_alive else None
            if worker is None:
                try:
                    worker = await Worker.start(self._rule)
                except OSError as error:
                    raise errors.BotError(data_words.PROCESS_NOT_STARTED) from error
            yield worker
        finally:
            return_task = asyncio.create_task(self._return_worker(worker), name="end of a query")
            self._return_tasks.add(return_task)
            return_task.add_done_callback(self._return_tasks.discard)

    async def _return_worker(self, worker: Worker | None) -> None:
        try:
            if worker is not None:
                await worker.cancel_request()
                if worker.is_alive:
                    worker.last_used_at = time.monotonic()
                    self._idle_workers.append(worker)
                else:
                    await worker.kill()
        finally:
            self._slots.release()

    async def reap(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        """End idle processes."""
        now = time.monotonic()
        expired = [
            worker for worker in self._idle_workers if now - worker.last_used_at >= idle_seconds
        ]
        self._idle_workers = [worker for worker in self._idle_workers if worker not in expired]
        for worker in expired:
            await worker.kill()

    async def close(self) -> None:
        """End all processes; none may be in use."""
        if self._return_tasks:
            await asyncio.wait(self._return_tasks)
        await self.reap(0)


def _make_walls(rule: configured_connections.Rule) -> program_walls.LandlockWalls:
    """Return the sandbox of a process: it may read libraries and use its file's directory."""
    package = str(pathlib.Path(__file__).parents[1])
    python_directories = {
        sys.prefix,
        sys.base_prefix,
        *map(os.path.realpath, (sys.prefix, sys.base_prefix)),
    }
    directories = [rule.directory] if rule.directory else []
    rlimits = {"DATA": _MAX_MEMORY_BYTES, "CORE": 0}
    if not rule.writes:
        # This forbids the engine temporary files, too.
        rlimits["FSIZE"] = 0
    return program_walls.LandlockWalls(
        readable_paths=[*_READABLE_PATHS, *python_directories, package, *directories],
        writable_paths=directories if rule.writes else [],
        rlimits=rlimits,
    )
