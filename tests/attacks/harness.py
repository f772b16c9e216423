"""Shared by the attacks: a bot with secrets worth stealing, its sessions and their outputs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import pathlib
import secrets
import textwrap
from collections.abc import AsyncIterator, Iterator

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import execution_streams, pools
from interpreter_bot.kernels.files import workspaces
from tests import machine, unprivileged

MIB = settings.MIB
CANARY_PATTERN = "cnry[0-9a-f]{32}"
"""The pattern of secrets; it does not match itself, so a search does not find its own code."""
REFUSED = frozenset({"EPERM", "EACCES", "EROFS"})
MISSING = frozenset({"ENOENT", "ENOTDIR", "ESRCH"})
LIMITS = settings.Limits(
    execution_seconds=10,
    input_seconds=2,
    memory_bytes=512 * MIB,
    processes=64,
    workspace_bytes=64 * MIB,
    workspace_files=500,
    upload_bytes=16 * MIB,
    output_bytes=100_000,
)
HAS_OWN_IDS = os.geteuid() == 0 or bool(os.environ.get(unprivileged.SUBORDINATE_IDS_VARIABLE))
"""Whether each session has a user id of its own: the bot is root, or has subordinate ids."""
IN_CONTAINER = not machine.offers_namespaces()
"""Whether the bot runs in an ordinary container: files of others are visible, but refused."""
SHARE_ONE_ID = IN_CONTAINER and not HAS_OWN_IDS
"""Whether all sessions of a container have the bot's user id, which is the weakest sandbox."""
HEADROOM_BYTES = 64 * MIB
"""Memory that a kernel may use beyond its limit, for its own imports."""
SPARES = 2
_GRACE_SECONDS = 1.5
_PRELOAD = ("numpy", "pandas", "matplotlib.pyplot")
# Helpers for all attempts. `attempt` prints the name of the error, or "allowed".
_PRELUDE = """
import ctypes, errno, fcntl, mmap, os, re, resource, signal, socket, stat, struct
import subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def call(function, *arguments):
    long = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if isinstance(function, int):
        result = libc.syscall(ctypes.c_long(function), *long)
    else:
        result = getattr(libc, function)(*long)
    if result == -1:
        raise OSError(ctypes.get_errno(), function)
    return result

def put(path, text, flags=os.O_WRONLY):
    descriptor = os.open(path, flags)
    try:
        return os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)

def attempt(action):
    try:
        result = action()
    except OSError as error:
        print(errno.errorcode.get(error.errno, repr(error)))
    else:
        print("allowed:", result)
"""
# Wait until a child or this process is killed, however busy the machine is.
UNTIL_KILLED = """
end = time.monotonic() + 20
while time.monotonic() < end:
    time.sleep(0.2)
    try:
        if os.waitpid(-1, os.WNOHANG)[0]: break
    except ChildProcessError: pass
time.sleep(1)
"""
UNTIL_ENDED = "\ntime.sleep(20)\n"
"""For limits that the bot checks at intervals, which are longer on a busy machine."""


def code(text: str) -> str:
    """Put the helpers for attempts before a piece of code."""
    return _PRELUDE + textwrap.dedent(text)


def attempt(expression: str) -> str:
    """Write code that tries an expression and prints how it was refused."""
    return _PRELUDE + f"attempt(lambda: {expression})\n"


@dataclasses.dataclass(frozen=True)
class Execution:
    """An execution's outputs and its ending."""

    outputs: tuple[values.Output, ...]
    finished: values.Finished

    @property
    def ending(self) -> values.Ending:
        return self.finished.ending

    @property
    def text(self) -> str:
        return "".join(o.text for o in self.outputs if isinstance(o, values.Text))

    @property
    def word(self) -> str:
        return self.text.strip()

    @property
    def plain(self) -> str:
        """All outputs as plain text; the pieces of printed text are joined."""
        groups = itertools.groupby(
            self.outputs, key=lambda o: "text" if isinstance(o, values.Text) else id(o)
        )
        return "\n".join("".join(o.plain for o in outputs) for _, outputs in groups)

    @property
    def notices(self) -> list[str]:
        return [o.text for o in self.outputs if isinstance(o, values.Notice)]

    @property
    def errors(self) -> list[values.Error]:
        return [o for o in self.outputs if isinstance(o, values.Error)]


class Canaries:
    """Secrets of the bot, all with the same random word, in the usual places of secrets."""

    VARIABLES = ("SLACK_BOT_TOKEN", "OPENAI_API_KEY", "CNRY_DATABASE_URL")

    def __init__(self, root: pathlib.Path) -> None:
        self.word = f"cnry{secrets.token_hex(16)}"
        self.public = root / "public.txt"
        self.database = root / "data" / "interpreter-bot.sqlite"
        self._descriptors: list[int] = []

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the secrets in the environment, in files and in inheritable descriptors."""
        self.database.parent.mkdir()
        for path, mode in ((self.public, 0o644), (self.database, 0o600)):
            path.write_text(self.word)
            path.chmod(mode)
            descriptor = os.open(path, os.O_RDONLY)
            os.set_inheritable(descriptor, True)
            self._descriptors.append(descriptor)
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name in self.VARIABLES:
                    patch.setenv(name, self.word)
                yield
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)


class Bot:
    """A pool, and a test's sessions in it."""

    def __init__(self, config: settings.Settings, canaries: Canaries, pool: pools.Pool) -> None:
        self.settings = config
        self.limits = config.limits
        self.canaries = canaries
        self.pool = pool
        self.keys: set[str] = set()
        self._forget_tasks: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        root: pathlib.Path,
        limits: settings.Limits = LIMITS,
        *,
        uses_cgroups: bool = True,
        level: str = "auto",
        **kernels,
    ) -> AsyncIterator[Bot]:
        """Open a pool in a directory that everybody on the host may look into."""
        canaries = Canaries(root)
        sandbox = settings.Sandbox(level=level)
        config = settings.Settings(
            paths=settings.Paths(data=root / "data", runtime=root / "run"),
            limits=limits,
            sandbox=sandbox if uses_cgroups else sandbox.without_cgroups(),
            # No saving of variables disturbs the attacks.
            snapshots=settings.Snapshots(checkpoints=0),
            kernels=settings.Kernels(
                **{
                    "spares": SPARES,
                    "concurrent": 12,
                    "preload": _PRELOAD,
                }
                | kernels
            ),
        )
        with canaries.planted():
            async with pools.Pool.open(config, grace_seconds=_GRACE_SECONDS) as pool:
                bot = cls(config, canaries, pool)
                yield bot
                for _ in range(2):
                    await bot.forget_all()

    async def run(
        self,
        text: str,
        *,
        key: str,
        seconds: float | None = None,
        ask: execution_streams.Ask | None = None,
        outputs: list[values.Output] | None = None,
    ) -> Execution:
        """Run code in a session; check that it ends in a known way, with a reason.

        Each output is added to `outputs` at once.
        """
        self.keys.add(key)
        outputs = [] if outputs is None else outputs
        limit = self.limits.execution_seconds if seconds is None else seconds
        async with self.pool.lease(key) as lease:
            kernel = await lease.kernel()
            # Without an ending the bot hangs, so the attack has succeeded.
            async with asyncio.timeout(limit + _GRACE_SECONDS + 10):
                finished = await kernel.execute(text, show=outputs.append, ask=ask, seconds=seconds)
        assert finished.ending in values.Ending
        if finished.ending not in (values.Ending.OK, values.Ending.ERROR):
            assert finished.reason.endswith((".", ")")), finished
        if finished.kernel_lost:
            assert "variables" in finished.reason, finished
        return Execution(tuple(outputs), finished)

    def pids(self, key: str) -> list[int]:
        """Host process ids of a session, its first process first."""
        return self.pool.kernels[key].provisioner.meter().pids()

    @property
    def has_groups(self) -> bool:
        """Whether sessions have control groups; without them, uncountable memory is refused."""
        kernel = next(iter(self.pool.kernels.values()))
        return kernel.provisioner.meter().counted_bytes() is not None

    def memory_bytes(self, key: str) -> int:
        """Return the memory use of a session, measured from outside."""
        return self.pool.kernels[key].provisioner.meter().memory_bytes()

    async def forget_all(self) -> None:
        """Start to end every session and to remove its files; the next call waits for that."""
        await asyncio.gather(*self._forget_tasks)
        self._forget_tasks = [asyncio.create_task(self.pool.forget(key)) for key in self.keys]
        self.keys.clear()


async def read_file(workspace: workspaces.Workspace, name: str, **options: int) -> bytes:
    """Read a file as a platform does."""
    async with workspace.read(name, **options) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def read_artifact(
    workspace: workspaces.Workspace, name: str, *, max_bytes: int = LIMITS.file_bytes
) -> bytes:
    """Read a file as for an artifact; the workspace must list it."""
    assert name in {info.name for info in await workspace.list()}
    return await read_file(workspace, name, max_bytes=max_bytes, may_be_sparse=False)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def read_status(pid: int) -> dict[str, str]:
    """Read /proc/PID/status of a process of the host."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def wait_until(condition, seconds: float = 20.0) -> bool:
    """Wait for a condition; return whether it became true."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        await asyncio.sleep(0.02)
    return bool(condition())
