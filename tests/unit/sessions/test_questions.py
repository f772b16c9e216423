"""Questions to people: whose answer counts, for how long, and across bots."""

import asyncio
import contextlib
import dataclasses
import sqlite3
import time

import pytest

from interpreter_bot import errors, events, values
from interpreter_bot.sessions import questions
from interpreter_bot.store import databases
from tests.fakes import full_databases

LATE = "This question has expired."
KEY = values.SessionKey("web", thread="t")
INPUT = events.InputQuestion(id="1", session=KEY, person="anna", cell=0, prompt="Name?")
SECRET = dataclasses.replace(INPUT, is_password=True)
APPROVAL = events.ApprovalQuestion(id="2", session=KEY, person="anna", cell=0, code="x = 1")
PERSONAL = dataclasses.replace(APPROVAL, is_personal=True)
TEXT, RUN, NO = events.TextAnswer("Ada"), events.Approved(), events.Declined()


@contextlib.asynccontextmanager
async def asked(registry, question, **options):
    """Ask, and give what waits for the answer, and the events."""
    told = []
    waiting = asyncio.create_task(registry.ask(question, emit=told.append, **options))
    async with asyncio.timeout(20):
        while not told:  # noqa: ASYNC110 - it is told by the next tick, or after a write.
            await asyncio.sleep(0.001)
    try:
        yield waiting, told
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_the_first_answer_counts():
    registry = questions.Questions()
    async with asked(registry, APPROVAL) as (waiting, told):
        assert registry.find("2") is APPROVAL
        await registry.answer("2", NO, person="anna")
        assert registry.find("2") is None
        with pytest.raises(errors.BotError, match=LATE):
            await registry.answer("2", RUN, person="anna")
        assert await waiting == NO
    assert told == [events.QuestionAsked(APPROVAL), events.QuestionClosed(APPROVAL, NO)]


@pytest.mark.parametrize(
    ("question", "answer", "is_theirs"),
    [
        (APPROVAL, RUN, True),
        (APPROVAL, events.Approved(edited=""), False),
        (APPROVAL, events.Approved(edited="x = 2"), False),
        (PERSONAL, RUN, False),
        (PERSONAL, NO, False),
        (INPUT, TEXT, False),
    ],
)
async def test_an_admin_approves_for_others_but_writes_nothing_and_uses_no_account(
    question, answer, is_theirs
):
    registry = questions.Questions()
    async with asked(registry, question) as (waiting, _):
        with pytest.raises(errors.BotError, match="Only the person who asked"):
            await registry.answer(question.id, answer, person="ben")
        if is_theirs:
            await registry.answer(question.id, answer, person="ben", is_admin=True)
            answer = dataclasses.replace(answer, admin="ben")
        else:
            with pytest.raises(errors.BotError, match="Only the person who asked"):
                await registry.answer(question.id, answer, person="ben", is_admin=True)
            await registry.answer(question.id, answer, person="anna")
        assert await waiting == answer


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_question_that_is_withdrawn_is_closed_once(is_cancelled):
    registry = questions.Questions()
    async with asked(registry, INPUT, turn_id=7) as (waiting, told):
        if is_cancelled:
            waiting.cancel()
            await asyncio.wait({waiting})
        else:
            registry.withdraw(7)
        assert told == [events.QuestionAsked(INPUT), events.QuestionClosed(INPUT, None)]
        with pytest.raises(errors.BotError, match=LATE):
            await registry.answer("1", TEXT, person="anna")
    assert len(told) == 2


async def test_a_message_answers_what_its_author_was_asked_in_its_session():
    registry = questions.Questions()
    async with asked(registry, INPUT, turn_id=1), asked(registry, APPROVAL, turn_id=2):
        assert registry.list_open(KEY, "anna") == (INPUT, APPROVAL)
        assert registry.list_open(KEY, "ben") == ()
        assert registry.list_open(values.SessionKey("web", thread="u"), "anna") == ()
        await registry.answer("1", TEXT, person="anna")
        assert registry.list_open(KEY, "anna") == (APPROVAL,)


async def test_a_secret_is_told_to_nobody_else():
    registry = questions.Questions()
    async with asked(registry, SECRET) as (waiting, told):
        await registry.answer("1", events.TextAnswer("hunter2"), person="anna")
        assert await waiting == events.TextAnswer("hunter2")
    assert told[-1] == events.QuestionClosed(SECRET, events.TextAnswer(""))
    # Asked again under the same id, as by a host to which the answer did not come.
    async with asked(registry, SECRET) as (waiting, _):
        assert not waiting.done()


def test_a_question_about_another_text_is_another():
    ids = {
        questions.question_id(*about)
        for about in ((1, 0, "1", "a"), (2, 0, "1", "a"), (1, 1, "1", "a"), (1, 0, "2", "a"))
    } | {questions.question_id(1, 0, "1", "b"), questions.question_id(1, 0, "1\0a", "")}
    assert len(ids) == 6
    assert all(one.isdigit() and len(one) <= 19 for one in ids)


@pytest.fixture
async def database(tmp_path):
    url = f"sqlite:///{tmp_path}/bot.db"
    async with databases.Database.open(url, blobs_directory=tmp_path / "files") as opened:
        yield opened


async def begun(database):
    session = await database.sessions.open(KEY)
    return (await database.turns.start(session.id, person="anna", text="x")).id


async def registry_of(database):
    registry = questions.Questions(database.questions)
    await registry.load()
    return registry


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (INPUT, TEXT),
        (APPROVAL, NO),
        (APPROVAL, RUN),
        (PERSONAL, events.Approved(scope="session")),
        (APPROVAL, events.Approved(edited="\x00\ud800")),
    ],
)
@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_a_turn_that_goes_on_in_the_next_bot_gets_the_answer(
    database, question, answer, when
):
    turn = await begun(database)
    former = await registry_of(database)
    async with asked(former, question, turn_id=turn, is_suspended=lambda: True) as (_, told):
        if when == "before":
            await former.answer(question.id, answer, person="anna")
    assert events.QuestionClosed(question, None) not in told
    registry = await registry_of(database)
    if when == "between":
        with pytest.raises(errors.BotError, match="Only the person who asked"):
            await registry.answer(question.id, answer, person="ben")
        assert registry.list_open(KEY, "anna") == (question,)
        await registry.answer(question.id, answer, person="anna")
        with pytest.raises(errors.BotError, match=LATE):
            await registry.answer(question.id, answer, person="anna")
        registry = await registry_of(database)
    async with asked(registry, question, turn_id=turn) as (waiting, told):
        if when == "after":
            await registry.answer(question.id, answer, person="anna")
        assert await waiting == answer
    closed = events.QuestionClosed(question, answer)
    assert told == ([events.QuestionAsked(question), closed] if when == "after" else [closed])


async def test_an_answer_that_only_one_of_two_bots_may_take_counts_once(database):
    turn = await begun(database)
    former = await registry_of(database)
    async with asked(former, APPROVAL, turn_id=turn) as (_, told):
        registry = await registry_of(database)
        await registry.answer("2", NO, person="anna")
        with pytest.raises(errors.BotError, match=LATE):
            await former.answer("2", RUN, person="anna")
        # Its turn does not wait for ever.
        former.withdraw(turn)
        assert told[-1] == events.QuestionClosed(APPROVAL, None)


@contextlib.asynccontextmanager
async def being_stored(registry, tmp_path):
    """Answer, and give the task that cannot store the answer as long as this lasts."""
    file = tmp_path / "bot.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        answering = asyncio.create_task(registry.answer("2", RUN, person="anna"))
        await asyncio.sleep(0.05)
        yield answering
    await asyncio.wait({answering}, timeout=20)


async def test_an_answer_counts_though_whoever_gave_it_is_gone(database, tmp_path):
    turn = await begun(database)
    registry = await registry_of(database)
    async with asked(registry, APPROVAL, turn_id=turn) as (waiting, _):
        async with being_stored(registry, tmp_path) as answering:
            answering.cancel()
            await asyncio.sleep(0.05)
        assert answering.cancelled()
        async with asyncio.timeout(20):
            assert await waiting == RUN


async def test_a_question_is_withdrawn_while_its_answer_is_stored(database, tmp_path):
    turn = await begun(database)
    registry = await registry_of(database)
    async with asked(registry, APPROVAL, turn_id=turn) as (waiting, told):
        async with being_stored(registry, tmp_path) as answering:
            registry.withdraw(turn)
            await asyncio.wait({waiting}, timeout=20)
            assert told[-1] == events.QuestionClosed(APPROVAL, None)
        with pytest.raises(errors.BotError, match=LATE):
            answering.result()


async def test_an_answer_that_cannot_be_stored_may_be_given_again(database, tmp_path):
    turn = await begun(database)
    registry = await registry_of(database)
    async with asked(registry, INPUT, turn_id=turn) as (waiting, _):
        async with full_databases.refuse_answers(tmp_path):
            with pytest.raises(errors.StoreError):
                await registry.answer("1", TEXT, person="anna")
        await registry.answer("1", TEXT, person="anna")
        assert await waiting == TEXT


async def test_a_turn_hears_that_nobody_can_answer_though_that_cannot_be_stored(database, tmp_path):
    turn, nobody = await begun(database), events.Unanswered("It could not be shown.")
    registry = await registry_of(database)
    async with asked(registry, INPUT, turn_id=turn) as (waiting, _):
        async with full_databases.refuse_answers(tmp_path):
            await registry.answer("1", nobody, person="anna")
        async with asyncio.timeout(20):
            assert await waiting == nobody


async def test_a_secret_is_not_taken_while_the_next_bot_takes_the_turn_over():
    registry = questions.Questions()
    async with asked(registry, SECRET, turn_id=1, is_suspended=lambda: True):
        pass
    with pytest.raises(errors.BotError, match=LATE):
        await registry.answer("1", events.TextAnswer("hunter2"), person="anna")
    async with asked(registry, SECRET, turn_id=1) as (waiting, _):
        await registry.answer("1", events.TextAnswer("hunter2"), person="anna")
        assert await waiting == events.TextAnswer("hunter2")


async def test_a_secret_is_not_stored_and_is_asked_for_again(database, tmp_path):
    turn = await begun(database)
    former = await registry_of(database)
    async with asked(former, SECRET, turn_id=turn) as (waiting, _):
        registry = await registry_of(database)
        with pytest.raises(errors.BotError, match=LATE):
            await registry.answer("1", events.TextAnswer("hunter2"), person="anna")
        await former.answer("1", events.TextAnswer("hunter2"), person="anna")
        assert await waiting == events.TextAnswer("hunter2")
    async with asked(await registry_of(database), SECRET, turn_id=turn) as (waiting, _):
        assert not waiting.done()
    assert not any(b"hunter2" in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"kind": "VoteQuestion"}, None),
        ({"urgency": "high"}, None),
        ({"session": {"place": "t"}}, None),
        ({"session": None}, None),
        ({"choices": None}, None),
        ({}, {"kind": "Approved", "signature": "x"}),
        ({}, {"scope": "session"}),
    ],
)
async def test_a_question_of_another_release_is_asked_anew(database, changes, answer):
    turn, other = await begun(database), await begun(database)
    document = {"kind": "ApprovalQuestion", **dataclasses.asdict(APPROVAL)}
    await database.questions.put(turn, "2", document | changes)
    if answer is not None:
        await database.questions.answer("2", answer)
    await database.questions.put(other, "1", {"kind": "InputQuestion", **dataclasses.asdict(INPUT)})
    registry = await registry_of(database)
    assert registry.list_open(KEY, "anna") == (INPUT,)
    async with asked(registry, APPROVAL, turn_id=turn) as (waiting, _):
        await registry.answer("2", RUN, person="anna")
        assert await waiting == RUN


async def test_questions_end_with_their_turn_and_with_the_next_question(database):
    turn = await begun(database)
    registry = await registry_of(database)
    async with asked(registry, INPUT, turn_id=turn) as (waiting, _):
        await registry.answer("1", TEXT, person="anna")
        await waiting
    async with asked(registry, APPROVAL, turn_id=turn, is_suspended=lambda: True):
        pass
    assert [row.question["id"] for row in await database.questions.load()] == ["2"]
    assert (await registry_of(database)).list_open(KEY, "anna") == (APPROVAL,)
    await database.turns.finish(turn, values.TurnStatus.DONE)
    assert await database.questions.load() == ()


@pytest.mark.parametrize("is_asked_again", [True, False])
async def test_a_password_may_come_late_if_the_next_bot_did_not_ask_for_it(
    database, is_asked_again
):
    turn = await begun(database)
    async with asked(await registry_of(database), SECRET, turn_id=turn):
        registry = await registry_of(database)
    if is_asked_again:
        async with asked(registry, SECRET, turn_id=turn, is_suspended=lambda: True):
            pass
    assert not registry.may_be_lost_password(KEY, "anna", sent_at=time.time())
    registry.forget(turn)
    is_lost = not is_asked_again
    assert registry.may_be_lost_password(KEY, "anna", sent_at=time.time()) == is_lost
    assert not registry.may_be_lost_password(KEY, "ben", sent_at=time.time())


@pytest.mark.parametrize("is_told", [True, False])
async def test_later_bots_know_of_a_lost_password_until_its_person_is_told(database, is_told):
    turn = await begun(database)
    async with asked(await registry_of(database), SECRET, turn_id=turn):
        registry = await registry_of(database)
    keeps_question = registry.forget(turn)
    await database.turns.finish(turn, values.TurnStatus.DONE, keeps_question=keeps_question)
    if is_told:
        await registry.note_lost_password_refused(KEY, "anna")
    for _ in range(2):
        registry = await registry_of(database)
        is_lost = registry.may_be_lost_password(KEY, "anna", sent_at=time.time())
        assert is_lost != is_told


async def test_a_password_is_lost_with_a_turn_that_ended_with_its_bot(database, tmp_path):
    turn = await begun(database)
    async with asked(await registry_of(database), SECRET, turn_id=turn):
        pass
    url, blobs = f"sqlite:///{tmp_path}/bot.db", tmp_path / "files"
    async with databases.Database.open(url, blobs_directory=blobs) as next_database:
        [orphan] = next_database.orphans
        assert orphan.status is values.TurnStatus.INTERRUPTED
        registry = await registry_of(next_database)
    assert registry.may_be_lost_password(KEY, "anna", sent_at=time.time())


async def test_a_lost_password_is_forgotten_after_a_day(database, tmp_path):
    turn = await begun(database)
    async with asked(await registry_of(database), SECRET, turn_id=turn):
        registry = await registry_of(database)
    registry.forget(turn)
    # Also for a bot that runs for longer.
    for hours, is_lost in (23, True), (25, False):
        sent_at = time.time() + hours * 3600
        assert registry.may_be_lost_password(KEY, "anna", sent_at=sent_at) == is_lost
    await database.turns.finish(turn, values.TurnStatus.DONE, keeps_question=True)
    with contextlib.closing(sqlite3.connect(f"{tmp_path}/bot.db")) as connection, connection:
        connection.execute("UPDATE turns SET ended = datetime('now', '-25 hours')")
    registry = await registry_of(database)
    assert not registry.may_be_lost_password(KEY, "anna", sent_at=time.time())
    assert await database.questions.load_left_behind() == ()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_password_is_not_lost_if_its_bot_saw_the_end(database, is_answered):
    turn = await begun(database)
    registry = await registry_of(database)
    async with asked(registry, SECRET, turn_id=turn) as (waiting, _):
        if is_answered:
            await registry.answer("1", TEXT, person="anna")
            await waiting
    keeps_question = registry.forget(turn)
    await database.turns.finish(turn, values.TurnStatus.DONE, keeps_question=keeps_question)
    registry = await registry_of(database)
    assert not registry.may_be_lost_password(KEY, "anna", sent_at=time.time())
