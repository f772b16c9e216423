"""Who answers what code asks, and for how long that is waited for."""

import asyncio

import pytest

from interpreter_bot import errors, values
from interpreter_bot.hosts import executions

REQUEST = values.InputRequested("?", is_password=False)


class Silent:
    """Somebody who is asked and says nothing."""

    def ask(self, number, request):
        pass

    def withdraw(self, number):
        pass


async def test_the_time_limit_of_an_answer_runs_only_while_somebody_can_answer():
    questions = executions.Questions(0.1)
    asking = asyncio.create_task(questions.ask(REQUEST))
    await asyncio.wait({asking}, timeout=0.5)
    assert not asking.done()
    with questions.subscribed(Silent()), pytest.raises(errors.BotError, match="nobody answered"):
        await asyncio.wait_for(asking, 20)


async def test_all_followers_are_asked_until_the_first_one_has_answered():
    questions, ends = executions.Questions(), []

    async def answering(request):
        await asyncio.sleep(0)
        return "first"

    async def waiting(request):
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("withdrawn")

    with (
        questions.subscribed(executions.CallbackQuestioner(questions, waiting)),
        questions.subscribed(Silent()),
        questions.subscribed(executions.CallbackQuestioner(questions, answering)),
    ):
        async with asyncio.timeout(20):
            assert await questions.ask(REQUEST) == "first"
            await asyncio.sleep(0)
            assert ends == ["withdrawn"]


async def test_a_follower_that_leaves_is_not_asked_and_a_refusal_has_a_reason():
    questions, begun, ended = executions.Questions(), asyncio.Event(), asyncio.Event()

    async def waiting(request):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def refusing(request):
        raise errors.BotError("Not now.")

    async with asyncio.timeout(20):
        with questions.subscribed(executions.CallbackQuestioner(questions, waiting)):
            asking = asyncio.create_task(questions.ask(REQUEST))
            await begun.wait()
        await ended.wait()
        questioner = executions.CallbackQuestioner(questions, refusing)
        with questions.subscribed(questioner), pytest.raises(errors.BotError, match="Not now"):
            await asking
