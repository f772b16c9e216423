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


async def test_time_for_an_answer_runs_only_while_somebody_is_there_to_give_it():
    questions = executions.Questions(0.1)
    asking = asyncio.create_task(questions.ask(REQUEST))
    await asyncio.wait({asking}, timeout=0.5)
    assert not asking.done()
    with questions.subscribed(Silent()), pytest.raises(errors.BotError, match="nobody answered"):
        await asyncio.wait_for(asking, 20)


async def test_all_who_can_be_called_are_asked_and_the_others_no_longer_once_one_has_answered():
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


async def test_who_goes_is_asked_no_more_and_who_refuses_says_why():
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
