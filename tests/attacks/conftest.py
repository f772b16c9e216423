"""A bot for all attacks, and sessions that are new for each."""

import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from tests.attacks import boxes


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_bot():
    """One bot that has to survive everything, in a directory with a short path."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("INTERPRETER_BOT_")]:
            patch.delenv(name)
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
            os.chmod(directory, 0o755)
            async with boxes.Bot.open(pathlib.Path(directory)) as bot:
                yield bot


@pytest_asyncio.fixture(loop_scope="session")
async def bot(shared_bot, request):
    """The bot; after every attack a kernel that nobody used before still answers.

    That is what the next case of the same test begins with; after the last one it is asked.
    """
    yield shared_bot
    items = request.session.items
    following = items[items.index(request.node) + 1 :][:1]
    if not any(item.function is request.function for item in following):
        answer = await shared_bot.run("1 + 1", key=f"after {request.node.nodeid}")
        assert answer.plain == "2", answer
    await shared_bot.forget_all()


@pytest.fixture
def run(bot, request):
    """Run code in a session of the test's own: `await run(code, key=…, seconds=…)`."""

    async def run_one(text, *, key="", **options):
        return await bot.run(text, key=f"{request.node.nodeid} {key}", **options)

    return run_one


@pytest.fixture
def attempt(shared_bot):
    """Try an expression that leaves nothing behind, in a session that all such attempts share."""

    async def attempt_one(expression, prelude=""):
        text = boxes.code(prelude) + "\n" + boxes.attempt(expression)
        return (await shared_bot.run(text, key="attempts")).word

    return attempt_one


@pytest.fixture
def key_of(request):
    """The pool's name for a session of `run`."""
    return lambda key="": f"{request.node.nodeid} {key}"


@pytest.fixture
def files(bot, key_of):
    """The workspace of the test's session."""

    async def workspace():
        return await bot.pool.workspace(key_of())

    return workspace
