"""The model asks the person who asked, at most a few times, and nothing twice."""

import asyncio

import pytest

from interpreter_bot import events, settings, values
from tests.fakes import openai_server, replies
from tests.integration.sessions.conftest import KEY
from tests.integration.sessions.test_restarts import open_after_kill, resume_in_reply

pytestmark = pytest.mark.kernel

CHOICES = ["North", "South"]
SERVED = ("scripted", "x-1.5b")


def make_question_call(question="Which region?", choices=CHOICES):
    return openai_server.call("ask_person", {"question": question, "choices": choices})


def list_call_results(bot):
    """Return the results of the model's calls in the last request to it."""
    messages = bot.server.requests[-1].messages
    return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize(
    ("written", "answer"),
    [("South", "South"), ("south ", "South"), ("2", "South"), ("2.", "South"), ("Both!", "Both!")],
)
async def test_the_model_gets_the_choice_or_the_words(open_bot, written, answer):
    reply = replies.Reply(answers=[written])
    async with open_bot(make_question_call(), openai_server.text("Fine.")) as bot:
        await bot.ask("Plot it", reply)
        assert list_call_results(bot) == [f"[The person answered:] {answer}"]
        (turn,) = await bot.service.queries.history(KEY)
    (question,) = reply.contents("ask")
    assert (question.prompt, question.choices) == ("Which region?", ("North", "South"))
    closed = [event for event in turn.events if isinstance(event, events.QuestionClosed)]
    assert [event.answer for event in closed] == [events.TextAnswer(answer)]
    assert reply.end.text == "Fine."


async def test_the_same_question_is_asked_once_and_only_a_few_are_asked(open_bot):
    script = [
        make_question_call(),
        make_question_call(" which  REGION "),
        *(make_question_call(f"{n}?") for n in range(4)),
    ]
    reply = replies.Reply(answers=["North", "a", "b", "c", "d"])
    async with open_bot(*script, openai_server.text("Fine.")) as bot:
        await bot.ask("Plot it", reply)
        answers = list_call_results(bot)
    assert [question.prompt for question in reply.contents("ask")] == ["Which region?", "0?", "1?"]
    assert answers[1] == "[You asked this before.] [The person answered:] North"
    assert answers[2:4] == ["[The person answered:] a", "[The person answered:] b"]
    assert all(answer.startswith("[Not asked:") for answer in answers[4:])


@pytest.mark.parametrize(
    ("model", "is_attended"),
    [
        ({}, False),
        ({"protocol": "fenced"}, True),
        ({"name": "x-1.5b", "protocol": "chat"}, True),
    ],
)
async def test_only_models_that_can_ask_somebody_are_offered_it(open_bot, model, is_attended):
    script, server_options = (
        [make_question_call(), openai_server.text("I took North.")],
        {"models": SERVED},
    )
    async with open_bot(*script, model=model, server_options=server_options) as bot:
        reply = await bot.ask("Plot it", is_attended=is_attended)
        assert "ask_person" not in str(bot.server.requests[0].body)
    assert (reply.contents("ask"), reply.end.text) == ([], "I took North.")


async def test_a_question_that_nobody_answers_is_withdrawn_and_the_turn_goes_on(open_bot):
    limits = settings.Limits(input_seconds=0.3)
    reply = replies.Reply(is_answering=False)
    async with open_bot(
        make_question_call(), openai_server.text("I took North."), limits=limits
    ) as bot:
        await bot.ask("Plot it", reply)
        assert list_call_results(bot)[0].startswith("[There is no answer:")
    assert [event.answer for event in reply.closed] == [None]
    assert reply.end.text == "I took North."


async def test_stop_ends_a_turn_that_asks(open_bot):
    reply = replies.Reply(is_answering=False)
    async with open_bot(make_question_call()) as bot:
        turn_task = asyncio.create_task(bot.ask("Plot it", reply))
        await reply.until("ask")
        await bot.service.stop(KEY)
        await turn_task
    assert reply.end.status is values.TurnStatus.STOPPED


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_question_survives_the_bot_and_its_answer_comes_once(
    open_bot,
    shared_host,
    tmp_path,
    is_early,
):
    """The answer is given before, or after, the next bot asks again."""
    former = replies.Reply(is_answering=False)
    async with open_bot(make_question_call()) as bot:
        turn_task = asyncio.create_task(bot.ask("Plot it", former))
        await former.until("ask")
        (question,) = former.contents("ask")
        script = [make_question_call("Which region?"), openai_server.text("Fine.")]
        async with open_after_kill(open_bot, tmp_path, *script) as after:
            if is_early:
                answer = events.TextAnswer("1")
                await after.service.questions.answer(question.id, answer, person=question.person)
            reply = resume_in_reply(after, answers=[] if is_early else ["1"])
            await reply.until("over")
            answers = list_call_results(after)
        await bot.service.stop(KEY)
        await turn_task
    assert reply.contents("ask") == ([] if is_early else [question])
    assert answers == [
        "[The person answered:] North",
        "[You asked this before.] [The person answered:] North",
    ]
    assert reply.end.text == "Fine."
