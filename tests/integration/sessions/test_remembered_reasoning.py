"""What a provider wants back outlives the bot, and is seen by nobody."""

import pytest

from tests.fakes import openai_server, reasoning_models
from tests.integration.sessions.conftest import KEY

pytestmark = pytest.mark.kernel


async def test_signatures_outlive_a_restart_and_are_shown_to_nobody(open_bot):
    reasoning = reasoning_models.Gemini()
    first = [openai_server.code("print(5)"), openai_server.text("Five.")]
    second = [openai_server.code("print(6)"), openai_server.text("Six.")]
    seen, port = [], 0
    for script in (first, second):
        # A model elsewhere is another one.
        async with open_bot(*script, server_options={"reasoning": reasoning, "port": port}) as bot:
            port = bot.server.port
            reply = await bot.ask("go")
            assert bot.server.refusals == []
            (*_, turn) = await bot.service.queries.history(KEY)
            seen += [repr(reply.received), repr(turn)]
            bodies = [request.body for request in bot.server.requests]
    assert reply.end.text == "Six."
    assert "Signed+" in str(bodies[0])
    assert "Signed+" not in "".join(seen)


@pytest.mark.slow
async def test_a_conversation_has_one_cache_key_for_ever(open_bot):
    keys = []
    for _ in range(2):
        async with open_bot(openai_server.text("a"), openai_server.text("b")) as bot:
            await bot.ask("x")
            await bot.ask("y")
            keys += [request.body["prompt_cache_key"] for request in bot.server.requests]
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
