"""What the bot does for code, and asks a person about first."""

import asyncio

import pytest

from interpreter_bot import errors, events, values
from interpreter_bot.sessions import (
    approvals,
    past_turns,
    questions,
    requests,
    turn_recording,
    turn_stops,
    turn_streams,
)
from interpreter_bot.store import databases
from tests.fakes import replies

KEY = values.SessionKey("slack", "T", "C", "1")
CLOSED = events.QuestionClosed
POST = values.InputRequested(
    "POST to a.example", False, subject="request", grant="POST a.example:443", number=1
)


@pytest.fixture
async def require(tmp_path):
    """Ask in a turn of its own, as a bot does that has just started."""
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    async with databases.Database.open(url, blobs_directory=tmp_path / "files") as database:
        session = await database.sessions.open(KEY)

        async def require(request, *answers, person="u1", is_attended=True, kernel="k1"):
            registry = questions.Questions(database.questions)
            turn = await database.turns.start(session.id, person=person, text="x")
            reply = replies.Reply(approvals=answers)
            reply.answer = registry.answer
            recorder = turn_recording.Recorder(database, lambda _: None)
            recorder.turn_id = turn.id
            asker = requests.Request(
                key=KEY, person=requests.Person(person), text="x", is_attended=is_attended
            )
            stream = turn_streams.TurnStream(
                asker, reply, recorder, all_questions=registry, stop=turn_stops.StopSignal()
            )
            reply.emit(events.CodeStarted(0, "x"))
            stream.cell = 0
            granted = approvals.Approvals(stream, database.grants, session.id)
            answer = await granted.answer_bot_action(request.subject, request, kernel)
            await recorder.flush()
            allowed = await approvals.granted_requests(database, values.format_key(KEY), kernel)
            assert (request.grant in allowed) is (answer == values.FOR_SESSION)
            recorded = await past_turns.load_events(database, turn.id)
            assert [event for event in recorded if isinstance(event, CLOSED)] == reply.closed
            return answer, reply.contents("approve")

        yield require


async def test_a_request_approved_for_the_session_is_for_everybody_and_every_bot(require):
    assert await require(POST, True) == (values.YES, [POST.prompt])
    assert await require(POST, None) == (values.NO, [POST.prompt])
    assert await require(POST, "session") == (values.FOR_SESSION, [POST.prompt])
    assert await require(POST) == (values.FOR_SESSION, [])
    assert await require(POST, person="u2") == (values.FOR_SESSION, [])
    assert await require(POST, None, kernel="k2") == (values.NO, [POST.prompt])
    other = values.InputRequested("GET", False, subject="request", grant="GET a:443", number=2)
    assert await require(other, None) == (values.NO, ["GET"])


async def test_packages_are_asked_for_each_time(require):
    packages = values.InputRequested("greeter 1.0", False, subject="packages", number=1)
    for _ in range(2):
        assert await require(packages, True) == (values.YES, ["greeter 1.0"])


async def test_code_is_told_that_nobody_can_be_asked(require):
    with pytest.raises(errors.BotError, match="nobody is there to be asked"):
        await require(POST, is_attended=False)


async def test_what_cannot_be_edited_is_refused_by_a_sentence_and_stays_open():
    registry = questions.Questions()
    question = events.ApprovalQuestion(
        id="7", session=KEY, person="u1", cell=0, subject="request", code="POST"
    )
    asking = asyncio.create_task(registry.ask(question, emit=events.discard))
    await asyncio.sleep(0)
    with pytest.raises(errors.AnswerRefusedError, match="cannot be edited"):
        await registry.answer("7", events.Approved(edited="GET"), person="u1")
    await registry.answer("7", events.Approved(), person="u1")
    assert await asking == events.Approved()
