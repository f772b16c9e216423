"""The bot as people run it: a process that is started again when it is killed, and its host."""

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
    """A bot with the page and a host of its own, in a directory. Use `running`.

    Attributes:
        pid: of the bot.
        started: when its process was started last, by `time.monotonic`.
        paths: its directories.
        log: what it and its host say of themselves.
        environment: of its process.
        on_death: is called when it was killed, before it is started again.
    """

    def __init__(
        self,
        place: pathlib.Path,
        model: settings.Model,
        key: str,
        *,
        program: Sequence[str] = (sys.executable, "-m", "interpreter_bot", "run"),
    ) -> None:
        self._program = program
        self.paths = settings.Paths(data=place / "data", runtime=place / "r")
        self.log = place / "log"
        self.pid = 0
        self.started = 0.0
        self.on_death: Callable[[], None] = lambda: None
        self._expected = -signal.SIGKILL
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "OPENAI_API_KEY": key,
            "INTERPRETER_BOT_HOST__MODE": "own",
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
            "INTERPRETER_BOT_KERNELS__SPARES": "0",
            "INTERPRETER_BOT_LOCAL__ENABLED": "false",
            "INTERPRETER_BOT_SESSIONS__MODEL_TITLES": "false",
            "INTERPRETER_BOT_MODELS": f"[{model.model_dump_json(exclude_defaults=True)}]",
            "INTERPRETER_BOT_PATHS__DATA": str(self.paths.data),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(self.paths.runtime),
            "INTERPRETER_BOT_WEB__PORT": "0",
        }

    @contextlib.asynccontextmanager
    async def running(self, at: Callable[[str], None]) -> AsyncIterator[None]:
        """Run it, again whenever it is killed; `at` is told its address each time."""
        is_there = asyncio.Event()

        def told(address: str) -> None:
            is_there.set()
            at(address)

        task = asyncio.create_task(self._run_on(told), name="a bot")
        try:
            waiting = asyncio.create_task(is_there.wait())
            await asyncio.wait(
                {task, waiting}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done() or not waiting.done():
                raise RuntimeError(f"the bot did not start: {self.log.read_text()[-2000:]}")
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _run_on(self, at: Callable[[str], None]) -> None:
        while True:
            self.started = time.monotonic()
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
                    if found := _ADDRESS.search(line.decode()):
                        at(found[0])
                if await process.wait() != self._expected:
                    raise RuntimeError(f"the bot ended: {self.log.read_text()[-2000:]}")
                self.on_death()
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                    await process.wait()

    def kill(self) -> None:
        """Kill it -9; it is started again."""
        self._expected = -signal.SIGKILL
        os.kill(self.pid, signal.SIGKILL)

    def restart(self) -> None:
        """Let it end in order; it is started again."""
        self._expected = 0
        os.kill(self.pid, signal.SIGTERM)

    async def host_pid(self) -> int:
        """Return the process of the newest host; 0 where there is none just now."""
        try:
            return (await host_processes.read_status(host_sockets.newest_link(self.paths))).pid
        except errors.BotError:
            return 0


def all_below(pid: int) -> list[int]:
    """Return a process and all below it; none where there is none."""
    found = [pid] if pid else []
    for one in found:  # Grows while it is walked.
        found += procfs.children(one)
    return found


def found_below(host: int, what: str) -> int:
    """Return a process of a host's: its fork server, or the kernel made last; 0 if there is none.

    They are known by their namespaces of pids: a fork server is the second in one, a kernel in
    another one within that. What a kernel forked, perhaps to save its variables, comes after it.
    Without namespaces a kernel is the first child of its keeper, which is one of the fork server.
    """
    lines = {
        pid: re.search(rb"^NSpid:(.*)$", procfs.read(f"/proc/{pid}/status"), re.M)
        for pid in all_below(host)
    }
    spaces = {pid: line[1].split() for pid, line in lines.items() if line is not None}
    if len({len(names) for names in spaces.values()}) == 1:
        servers = [
            pid
            for pid in procfs.children(host)
            if b"guest/__main__.py" in procfs.read(f"/proc/{pid}/cmdline")
        ]
        keepers = [keeper for server in servers for keeper in procfs.children(server)]
        kernels = [pid for keeper in keepers for pid in procfs.children(keeper)[:1]]
        return max(kernels if what == "kernel" else servers, default=0)
    depth = 3 if what == "kernel" else 2
    seconds = (pid for pid, names in spaces.items() if len(names) == depth and names[-1] == b"2")
    return max(seconds, default=0)
