"""Turns of schedules: whether their code succeeded, and whether there is anything to report."""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors, events, values
from interpreter_bot.agent import chat_messages
from interpreter_bot.sessions import requests, turn_environments
from interpreter_bot.store import databases, records
from interpreter_bot.wording import schedule_words

_MAX_CONDITION_SECONDS: Final = 20.0
_TRUTH_VALUES: Final = {"True": True, "False": False}
# NaN and the like, which are not equal to themselves, are printed as they are: neither truth value.
_CONDITION_CODE: Final = (
    "print((lambda value: bool(value) if value == value else value)({condition}))"
)

SCHEDULE_NOTE: Final = chat_messages.Note(
    "[A schedule sent this, and nobody waits. If there is nothing worth a message to people, call "
    "nothing_to_report instead of answering.]"
)


async def make_code_end(
    database: databases.Database,
    request: requests.Request,
    environment: turn_environments.SessionEnvironment,
    finished: values.Finished,
) -> events.TurnEnded:
    """Return the end of a turn that ran a schedule's code; an alert without news ends quietly."""
    run_and_schedule = await database.schedules.find_run(request.schedule_run_id)
    if run_and_schedule is None:
        raise errors.BotError(schedule_words.DELETED_MEANWHILE)
    run, schedule = run_and_schedule
    is_alert = schedule.kind is records.ScheduleKind.ALERT
    sentence = "" if finished.ending is values.Ending.OK else schedule_words.CODE_FAILED
    if is_alert and not sentence:
        is_true = await _evaluate(schedule.condition, environment)
        if is_true is not None:
            was_true = await database.schedules.note_condition(run, holds=is_true)
            is_quiet = was_true or not is_true
            return events.TurnEnded(status=values.TurnStatus.DONE, is_quiet=is_quiet)
        sentence = schedule_words.CONDITION_UNDECIDED
    status = values.TurnStatus.FAILED if sentence else values.TurnStatus.DONE
    # People are notified of a failing alert when it is paused.
    return events.TurnEnded(status=status, sentence=sentence, is_quiet=is_alert)


async def _evaluate(
    condition: str, environment: turn_environments.SessionEnvironment
) -> bool | None:
    """Return whether a condition is true; None if it is neither true nor false."""
    printed: list[str] = []

    def show(output: values.Output) -> None:
        if isinstance(output, values.Text):
            printed.append(output.text)

    code = _CONDITION_CODE.format(condition=condition)
    await environment.run_hidden_code(code, show=show, seconds=_MAX_CONDITION_SECONDS)
    return _TRUTH_VALUES.get("".join(printed).strip())


async def delete_quiet_turn(
    database: databases.Database, request: requests.Request, turn_id: int, end: events.TurnEnded
) -> None:
    """Delete a turn that had nothing to report; its run records the outcome."""
    is_done = end.status is values.TurnStatus.DONE
    outcome = records.RunOutcome.QUIET if is_done else records.RunOutcome.FAILED
    async with database.transaction(is_writing=True):
        # False if another bot has taken over the turn.
        if await database.turns.finish(turn_id, end.status):
            await database.schedules.note_outcome(request.schedule_run_id, outcome, end.sentence)
            await database.turns.delete(turn_id)
