"""Schedules: how they are written, what a card says, and what becomes of their runs."""

from __future__ import annotations

from typing import Final

from interpreter_bot import values
from interpreter_bot.text import quantities

_EXAMPLE: Final = "“weekdays 9:00 Europe/Berlin: refresh the chart”"
HOW_TO_WRITE: Final = f"Write when, a time zone, a colon, and what to do: {_EXAMPLE}."
NO_ZONE: Final = f"Which time zone? Write it before the colon: {_EXAMPLE}."
TWO_KINDS_OF_DAYS: Final = "Name days of the month or weekdays, not both."
NOTHING_TO_REFRESH: Final = (
    "No answer in this conversation ran code, so there is nothing to refresh. Ask for something "
    "first."
)
CODE_TOO_LONG: Final = "The code of this conversation is too long to be run again."
NO_MODEL: Final = (
    "No model is set up that could be asked. Begin with “refresh” to run the code of the last "
    "answer again, or with “alert if” and a condition."
)
SCHEDULES_OFF: Final = "Schedules are turned off here."
PROPOSAL_DECLINED: Final = "No schedule was set up."
NOT_YOURS: Final = "Only the person who set it up can do that, or an administrator."
NO_SCHEDULES: Final = f"There are no schedules here. Set one up with “schedule”, as in {_EXAMPLE}."
HOW_TO_MANAGE: Final = (
    "Write “schedules” for a list, or an action and a number, such as “schedules pause 3”. "
    "Actions are pause, resume, run, history and delete."
)
NO_RUNS: Final = "It has not run yet."
PAUSED_BY_PERSON: Final = "Paused by a person."
CODE_FAILED: Final = "The code failed."
CONDITION_UNDECIDED: Final = "The condition is neither true nor false."
NEVER_AGAIN: Final = "It will not run again."
DELETED: Final = "Deleted."
DELETED_MEANWHILE: Final = "The schedule was deleted."
RUN_STARTED: Final = "Running it now."
RUN_WAITS: Final = "It is running, and its next run is waiting already."
ONLY_IN_ITS_CHANNEL: Final = "That can only be done in the channel where it was set up."
_REFRESH_DESCRIPTION: Final = (
    "Runs the code of the last answer again, in a new Python with a copy of these files, without "
    "a model."
)
KIND_DESCRIPTIONS: Final = {
    "replay": _REFRESH_DESCRIPTION,
    "alert": f"{_REFRESH_DESCRIPTION} Posts only when the condition becomes true.",
}
_OUTCOME_PHRASES: Final = {
    "done": "done",
    "quiet": "nothing to report",
    "failed": "failed",
    "interrupted": "interrupted by a restart",
}
_MAX_SHOWN_CHARACTERS: Final = 80


def asks_model(model: str) -> str:
    return f"Asks {model}, in this conversation."


def next_times(times: str) -> str:
    return f"Next: {times}."


def last_cost(spent: values.Usage) -> str:
    money = f", at a cost of {spent.money:,.4f}" if spent.money else ""
    return f"The last answer took {spent.tokens:,} tokens{money}."


def too_long(max_characters: int) -> str:
    return f"A schedule may have at most {max_characters:,} characters."


def not_understood(times: str) -> str:
    return (
        f"I don't understand the times “{_shorten(times)}”. Write, for example, “weekdays "
        "9:00”, “mon, thu 14:30”, “hourly”, “every 15 minutes”, “monthly 1 9:00”, “feb 29 9:00”, "
        "or a line of a crontab, such as “0 9 * * 1-5”."
    )


def unknown_zone(zone: str) -> str:
    return (
        f"I don't know the time zone “{_shorten(zone)}”. Write a name such as Europe/Berlin, or "
        "UTC."
    )


def never_occurs(times: str) -> str:
    return f"“{_shorten(times)}” does not occur in the next ten years."


def too_often(min_minutes: float) -> str:
    return f"Runs have to be at least {quantities.duration(60 * min_minutes)} apart."


def no_expression(condition: str) -> str:
    return f"“{_shorten(condition)}” is not a Python expression, such as “queue > 100”."


def too_many_of_person(limit: int) -> str:
    return f"You have {quantities.count(limit, 'schedule')}, which is the limit. Delete one first."


def too_many_in_place(limit: int) -> str:
    return (
        f"There are {quantities.count(limit, 'schedule')} in this channel, which is the limit. "
        "Delete one first."
    )


def unknown_schedule(number: str) -> str:
    return f"There is no schedule “{_shorten(number)}” here."


def schedule_set_up(number: int, first: str) -> str:
    return f"Schedule {number} is set up. It runs first on {first}."


def run_heading(number: int, task: str, planned: str = "") -> str:
    """Return the heading of a run; `planned` is the time for which a late run was planned."""
    suffix = f" It was planned for {planned}, and runs late." if planned else ""
    return f"Schedule {number}: {task}{suffix and '.'}{suffix}"


def run_failed(number: int, sentence: str) -> str:
    return f"Schedule {number} did not run. {sentence}"


def schedule_paused(number: int, reason: str) -> str:
    return f"Schedule {number} is paused. {reason} “schedules resume {number}” resumes it."


def paused_after_failures(count: int, sentence: str) -> str:
    return f"It failed {quantities.count(count, 'time')} in a row. {sentence}".rstrip()


def schedule_resumed(first: str) -> str:
    return f"Resumed. It runs next on {first}."


def list_entry(times: str, task: str, state: str) -> str:
    return f"{times}: {_shorten(task)} ({state})"


def run_ended(outcome: str | None, sentence: str) -> str:
    ending = _OUTCOME_PHRASES.get(outcome or "", "not finished")
    return f"{ending}: {_shorten(sentence)}" if sentence else ending


def next_run(moment: str) -> str:
    return f"next on {moment}"


def paused_state(reason: str) -> str:
    is_by_person = reason == PAUSED_BY_PERSON
    return "paused by a person" if is_by_person else f"paused: {_shorten(reason)}"


def _shorten(text: str) -> str:
    return quantities.one_line(text, _MAX_SHOWN_CHARACTERS)
