"""What the attacks on the level `container` share: a bot that demands it, and who is there."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import errors
from tests.attacks import boxes

IS_PLAIN = os.geteuid() != 0
"""Whether all sessions have the bot's user id; else each has one of its own."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_bot():
    """A bot at this level, wherever the tests run; in a directory with a short path."""
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
