import asyncio

import pytest

from interpreter_bot import errors
from interpreter_bot.platforms.web import events, turns


def _turn(told):
    head = {"request": "x", "files": [], "is_code": False, "started": 0.0}
    return turns.Turn("id", head, lambda _, event: told.append(event))


def test_pieces_that_continue_each_other_become_one():
    log = turns.Log()
    for piece in "Hello":
        log.append(events.text(piece))
    log.append(events.printed(0, "stdout", "a"))
    log.append(events.printed(0, "stderr", "b"))
    log.append(events.printed(0, "stderr", "c"))
    assert [event["delta"] for event in log.told()] == ["Hello", "a", "bc"]


def test_what_was_written_of_code_is_gone_once_it_runs():
    log = turns.Log()
    for event in (events.writing("pri"), events.writing("nt(1)"), events.code(0, "print(1)")):
        log.append(event)
    assert [event["kind"] for event in log.told()] == ["code"]


def test_of_what_is_waited_for_only_the_latest_is_remembered_and_only_while_it_is():
    log = turns.Log()
    for share in (None, 0.1, 0.2):
        log.append(events.progress("Downloading", share))
    assert log.told() == [events.progress("Downloading", 0.2)]
    log.append(events.progress("", None))
    assert log.told() == []


def test_a_long_turn_keeps_its_end_and_its_code():
    log = turns.Log(1000)
    log.append(events.code(0, "flood()"))
    for number in range(200):
        log.append(events.printed(number % 2, "stdout", f"{number:03}" * 5))
    told = log.told()
    assert told[0]["kind"] == "announcement"
    assert told[1] == events.code(0, "flood()")
    assert told[-1]["delta"] == "199" * 5
    assert sum(len(event.get("delta", "")) for event in told) <= 1000


async def test_the_first_answer_counts():
    told = []
    turn = _turn(told)
    asking = asyncio.create_task(turn.ask(lambda n: events.approving(0, n, "x = 1")))
    await asyncio.sleep(0)
    turn.answer(1, "x = 2")
    with pytest.raises(errors.BotError):
        turn.answer(1, None)
    assert await asking == "x = 2"
    assert [event["kind"] for event in told] == ["approving", "settled"]


async def test_a_question_that_is_given_up_is_settled():
    told = []
    turn = _turn(told)
    asking = asyncio.create_task(turn.ask(lambda n: events.approving(0, n, "")))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    assert told[-1] == events.settled(1)
    with pytest.raises(errors.BotError):
        turn.answer(1, "late")
