"""The bot as people run it: a process that is restarted after each kill, and its host process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence

from interpreter_bot import errors, settings
from interpreter_bot.hosts import host_processes, host_sockets
from interpreter_bot.kernels.metering import procfs

_ADDRESS = re.compile(r"http://\S+/\?token=\S+")
_POLL_SECONDS = 0.02
_START_SECONDS = 60.0


class BotProcess:
    """A bot with the page and its own host, all in one directory. Use `running`.

    Attributes:
        pid: the bot's process id.
        start_time: when the current process was started, by `time.monotonic`.
        paths: the bot's directories.
        log: the log file of bot and host.
        environment: the environment variables of the bot's process.
        on_death: called after the process ended and before the next one is started.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        model: settings.Model,
        api_key: str,
        *,
        program: Sequence[str] = (sys.executable, "-m", "interpreter_bot", "run"),
    ) -> None:
        self._program = program
        self.paths = settings.Paths(data=directory / "data", runtime=directory / "r")
        self.log = directory / "log"
        self.pid = 0
        self.start_time = 0.0
        self.on_death: Callable[[], None] = lambda: None
        self._expected_exit_code = -signal.SIGKILL
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "OPENAI_API_KEY": api_key,
            "INTERPRETER_BOT_HOST__MODE": "own",
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
            "INTERPRETER_BOT_KERNELS__SPARES": "0",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
            "INTERPRETER_BOT_SESSIONS__MODEL_TITLES": "false",
            "INTERPRETER_BOT_MODELS": f"[{model.model_dump_json(exclude_defaults=True)}]",
            "INTERPRETER_BOT_PATHS__DATA": str(self.paths.data),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(self.paths.runtime),
            "INTERPRETER_BOT_WEB__LISTEN": "127.0.0.1:0",
        }

    @contextlib.asynccontextmanager
    async def running(self, on_address: Callable[[str], None]) -> AsyncIterator[None]:
        """Run the bot and restart it after each end; each start calls `on_address`."""
        has_address = asyncio.Event()

        def handle_address(address: str) -> None:
            has_address.set()
            on_address(address)

        task = asyncio.create_task(self._keep_running(handle_address), name="a bot")
        try:
            address_task = asyncio.create_task(has_address.wait())
            await asyncio.wait(
                {task, address_task}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done() or not address_task.done():
                raise RuntimeError(f"the bot did not start: {self.log.read_text()[-2000:]}")
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _keep_running(self, on_address: Callable[[str], None]) -> None:
        while True:
            self.start_time = time.monotonic()
            with self.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._program,
                    env=self.environment,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                )
            self.pid = process.pid
            assert process.stdout is not None
            try:
                async for line in process.stdout:
                    if match := _ADDRESS.search(line.decode()):
                        on_address(match[0])
                if await process.wait() != self._expected_exit_code:
                    raise RuntimeError(f"the bot ended: {self.log.read_text()[-2000:]}")
                self.on_death()
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                    await process.wait()

    def kill(self) -> None:
        """Kill the process with SIGKILL; it is restarted."""
        self._expected_exit_code = -signal.SIGKILL
        os.kill(self.pid, signal.SIGKILL)

    def restart(self) -> None:
        """End the process with SIGTERM; it is restarted."""
        self._expected_exit_code = 0
        os.kill(self.pid, signal.SIGTERM)

    async def host_pid(self) -> int:
        """Return the process id of the newest host; 0 if none answers."""
        try:
            return (await host_processes.read_status(host_sockets.newest_link(self.paths))).pid
        except errors.BotError:
            return 0


def list_process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants; an empty list for pid 0."""
    pids = [pid] if pid else []
    for parent in pids:  # The list grows during the loop.
        pids += procfs.children(parent)
    return pids


def find_host_process(host_pid: int, kind: str) -> int:
    """Return the pid of a host's fork server or of its newest kernel; 0 if there is none.

    Pid namespaces identify them. A fork server is process 2 of a namespace, and a kernel is process
    2 of a namespace within that one. Processes that a kernel forks, perhaps to save its variables,
    have higher numbers. Without namespaces a kernel is the first child of its keeper, and the
    keeper is a child of the fork server.
    """
    matches = {
        pid: re.search(rb"^NSpid:(.*)$", procfs.read(f"/proc/{pid}/status"), re.M)
        for pid in list_process_tree(host_pid)
    }
    namespace_pids = {pid: match[1].split() for pid, match in matches.items() if match is not None}
    if len({len(numbers) for numbers in namespace_pids.values()}) == 1:
        servers = [
            pid
            for pid in procfs.children(host_pid)
            if b"guest/__main__.py" in procfs.read(f"/proc/{pid}/cmdline")
        ]
        keepers = [keeper for server in servers for keeper in procfs.children(server)]
        kernels = [pid for keeper in keepers for pid in procfs.children(keeper)[:1]]
        return max(kernels if kind == "kernel" else servers, default=0)
    depth = 3 if kind == "kernel" else 2
    candidates = (
        pid
        for pid, numbers in namespace_pids.items()
        if len(numbers) == depth and numbers[-1] == b"2"
    )
    return max(candidates, default=0)
