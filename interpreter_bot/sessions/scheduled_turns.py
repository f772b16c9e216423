"""Turns of schedules: whether their code went well, and whether there is anything to report."""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors, events, values
from interpreter_bot.agent import chat_messages
from interpreter_bot.sessions import requests, turn_environments
from interpreter_bot.store import databases, records
from interpreter_bot.wording import schedule_words

_CONDITION_SECONDS: Final = 20.0
_HOLDS: Final = {"True": True, "False": False}
# What is no number, as NaN, is not equal to itself.
_CHECK: Final = "print((lambda value: bool(value) if value == value else value)({condition}))"

NOBODY_WAITS: Final = chat_messages.Note(
    "[A schedule asks this, and nobody waits. If there is nothing worth a message to people, call "
    "nothing_to_report instead of answering.]"
)


async def end_of_code(
    database: databases.Database,
    request: requests.Request,
    environment: turn_environments.SessionEnvironment,
    finished: values.Finished,
) -> events.TurnEnded:
    """Return the end of a schedule's code, which is quiet if an alert has nothing to report."""
    stored = await database.schedules.find_run(request.schedule_run_id)
    if stored is None:
        raise errors.BotError(schedule_words.DELETED_MEANWHILE)
    run, schedule = stored
    is_alert = schedule.kind is records.ScheduleKind.ALERT
    sentence = "" if finished.ending is values.Ending.OK else schedule_words.CODE_FAILED
    if is_alert and not sentence:
        holds = await _evaluate(schedule.condition, environment)
        if holds is not None:
            held_before = await database.schedules.note_condition(run, holds=holds)
            is_quiet = held_before or not holds
            return events.TurnEnded(status=values.TurnStatus.DONE, is_quiet=is_quiet)
        sentence = schedule_words.CONDITION_UNDECIDED
    status = values.TurnStatus.FAILED if sentence else values.TurnStatus.DONE
    # An alert that fails is told of when it is paused.
    return events.TurnEnded(status=status, sentence=sentence, is_quiet=is_alert)


async def _evaluate(
    condition: str, environment: turn_environments.SessionEnvironment
) -> bool | None:
    """Return whether a condition is true; None if it is neither true nor false."""
    printed: list[str] = []

    def show(output: values.Output) -> None:
        if isinstance(output, values.Text):
            printed.append(output.text)

    code = _CHECK.format(condition=condition)
    await environment.run_hidden_code(code, show=show, seconds=_CONDITION_SECONDS)
    return _HOLDS.get("".join(printed).strip())


async def forget(
    database: databases.Database, request: requests.Request, turn_id: int, end: events.TurnEnded
) -> None:
    """Delete a turn that had nothing to report; its run remembers how it ended."""
    is_done = end.status is values.TurnStatus.DONE
    outcome = records.RunOutcome.QUIET if is_done else records.RunOutcome.FAILED
    async with database.transaction(is_writing=True):
        # No longer if another bot has taken the turn over.
        if await database.turns.finish(turn_id, end.status):
            await database.schedules.note_outcome(request.schedule_run_id, outcome, end.sentence)
            await database.turns.delete(turn_id)
