"""What the attacks on the level `container` share: a bot that demands it, and who is there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import errors
from tests import machine
from tests.attacks import boxes

IS_PLAIN = os.geteuid() != 0
"""Whether all sessions have the bot's user id; else each has one of its own."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_bot():
    """A bot at this level; in a directory with a short path."""
    if machine.offers_namespaces():
        pytest.skip("the level container is tried by `make test-in-container`")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("INTERPRETER_BOT_")]:
            patch.delenv(name)
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
            os.chmod(directory, 0o755)
            opening = boxes.Bot.open(pathlib.Path(directory), groups="off", level="container")
            async with contextlib.AsyncExitStack() as stack:
                try:
                    bot = await stack.enter_async_context(opening)
                except errors.SandboxError as error:
                    pytest.skip(str(error))
                yield bot


def commands() -> list[str]:
    """The command lines of all processes here."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.append(pathlib.Path(f"/proc/{name}/cmdline").read_text().replace("\0", " "))
    return found


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(boxes.status(pid)["PPid"])


def directory_of(bot: boxes.Bot, key: str) -> pathlib.Path:
    """Where the sockets of a session's kernel are."""
    name = bot.pool.kernels[key].id[:8]
    return next(bot.settings.paths.runtime.glob(f"*/{name}"))


async def spare_of(bot: boxes.Bot) -> int:
    """A kernel that waits, with everything imported and not confined, for a session."""
    taken = {pid for key in bot.pool.kernels for pid in bot.pids(key)}
    found: list[int] = []

    def look() -> list[int]:
        servers = [child for task in os.listdir("/proc/self/task") for child in children_of(task)]
        keepers = [keeper for server in servers for keeper in children_of(server)]
        found[:] = {kernel for keeper in keepers for kernel in children_of(keeper)} - taken
        return found

    assert await boxes.until(look), "no spare kernel waits"
    return found[0]


def children_of(task: int | str) -> list[int]:
    """The children that a thread has; of a process, its first thread's."""
    with contextlib.suppress(OSError):
        return list(
            map(int, pathlib.Path(f"/proc/{task}/task/{task}/children").read_text().split())
        )
    return []


def shared_files() -> list[str]:
    """The names of what lies in shared memory."""
    return os.listdir("/dev/shm")


def remove_shared_file(name: str) -> None:
    """Remove what a session left there."""
    os.unlink(f"/dev/shm/{name}")
