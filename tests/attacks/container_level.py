"""Shared by the attacks on the level `container`: a bot at this level, and its processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import errors
from tests import machine
from tests.attacks import harness

IS_PLAIN = os.geteuid() != 0
"""Whether all sessions have the bot's user id; otherwise each has its own id."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_bot():
    """A bot at this level, in a directory with a short path."""
    if machine.offers_namespaces():
        pytest.skip("the level container is tried by `make test-in-container`")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("INTERPRETER_BOT_")]:
            patch.delenv(name)
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
            os.chmod(directory, 0o755)
            opening = harness.Bot.open(
                pathlib.Path(directory), uses_cgroups=False, level="container"
            )
            async with contextlib.AsyncExitStack() as stack:
                try:
                    bot = await stack.enter_async_context(opening)
                except errors.SandboxError as error:
                    pytest.skip(str(error))
                yield bot


def list_command_lines() -> list[str]:
    """Return the command lines of all processes of this container."""
    command_lines = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            command_lines.append(
                pathlib.Path(f"/proc/{name}/cmdline").read_text().replace("\0", " ")
            )
    return command_lines


def read_parent_pid(pid: int) -> int:
    """Return the parent of a process."""
    return int(harness.read_status(pid)["PPid"])


def find_socket_directory(bot: harness.Bot, key: str) -> pathlib.Path:
    """Return the directory of the sockets of a session's kernel."""
    name = bot.pool.kernels[key].id[:8]
    return next(bot.settings.paths.runtime.glob(f"*/{name}"))


async def wait_for_spare(bot: harness.Bot) -> int:
    """Wait for a spare kernel, which has imported everything and is not confined yet."""
    leased_pids = {pid for key in bot.pool.kernels for pid in bot.pids(key)}
    spare_pids: list[int] = []

    def find_spares() -> list[int]:
        servers = [child for task in os.listdir("/proc/self/task") for child in list_children(task)]
        keepers = [keeper for server in servers for keeper in list_children(server)]
        spare_pids[:] = {
            kernel for keeper in keepers for kernel in list_children(keeper)
        } - leased_pids
        return spare_pids

    assert await harness.wait_until(find_spares), "no spare kernel waits"
    return spare_pids[0]


def list_children(task: int | str) -> list[int]:
    """Return the children of a thread; for a process id, those of its first thread."""
    with contextlib.suppress(OSError):
        return list(
            map(int, pathlib.Path(f"/proc/{task}/task/{task}/children").read_text().split())
        )
    return []


def list_shared_files() -> list[str]:
    """Return the names of the files in shared memory."""
    return os.listdir("/dev/shm")


def remove_shared_file(name: str) -> None:
    """Remove a file that a session left in shared memory."""
    os.unlink(f"/dev/shm/{name}")
