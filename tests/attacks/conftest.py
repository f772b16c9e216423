"""One bot for all attacks, and new sessions for each test."""

import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from tests.attacks import harness


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_bot():
    """The bot that has to survive all attacks, in a directory with a short path."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("INTERPRETER_BOT_")]:
            patch.delenv(name)
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
            os.chmod(directory, 0o755)
            async with harness.Bot.open(pathlib.Path(directory)) as bot:
                yield bot


@pytest_asyncio.fixture(loop_scope="session")
async def bot(shared_bot, request):
    """The bot; after every attack a new kernel must still answer.

    The next case of the same test uses a new kernel anyway, so only the last case checks it here.
    """
    yield shared_bot
    items = request.session.items
    next_items = items[items.index(request.node) + 1 :][:1]
    if not any(item.function is request.function for item in next_items):
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
        text = harness.code(prelude) + "\n" + harness.attempt(expression)
        return (await shared_bot.run(text, key="attempts")).word

    return attempt_one


@pytest.fixture
def session_key(request):
    """The pool's name for a session of `run`."""
    return lambda key="": f"{request.node.nodeid} {key}"


@pytest.fixture
def files(bot, session_key):
    """The workspace of the test's session."""

    async def workspace():
        return await bot.pool.workspace(session_key())

    return workspace
