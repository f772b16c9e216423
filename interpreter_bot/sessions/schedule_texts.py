"""Schedules as people write them: `weekdays 9:00 Europe/Berlin: refresh the chart`. Pure."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from interpreter_bot import errors, schedules
from interpreter_bot.store import records
from interpreter_bot.wording import schedule_words

MAX_CHARACTERS: Final = 2000
# People type this on the page. No Python code begins with it.
_COMMAND: Final = "/schedule"
_MAX_CHECKED_TIMES: Final = 30
_MIN_MINUTES_BETWEEN_RUNS: Final = 15
_MAX_TIMES_CHARACTERS: Final = 100
_MAX_ZONE_CHARACTERS: Final = 64

# Times may contain colons, but none before a space.
_PARTS: Final = re.compile(r"(.+?):\s+(\S.*)\Z", re.DOTALL)
_ZONE: Final = re.compile(r"UTC|[A-Za-z_]{2,}(?:/[A-Za-z0-9_+-]+)+")
_CRON: Final = re.compile(
    r"(?:[\d*][\d*,/-]*\s+){2}(?:[\d*][\d*,/-]*|last)(?:\s+[\w*][\w*,/-]*){2}", re.ASCII
)
_TIME: Final = re.compile(r"(?:(.*)\s)?(\d{1,2})(?:[:.](\d\d))?(?:\s*(am|pm))?", re.ASCII)
_ALERT: Final = re.compile(r"alert(?: me| us)? (?:if|when) (.+)\Z", re.DOTALL | re.IGNORECASE)
_REFRESH: Final = re.compile(r"refresh\b", re.IGNORECASE)
_FILLERS: Final = frozenset({"cron", "every", "each", "at", "on", "and", "the", "of"})
_DAYS: Final = {
    **dict.fromkeys(("day", "days", "daily"), "*"),
    **dict.fromkeys(("weekday", "weekdays"), "mon-fri"),
    **dict.fromkeys(("weekend", "weekends"), "sat,sun"),
}
_DAY_NAMES: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_NAMES: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_WEEKDAYS: Final = {name[:3] for name in _DAY_NAMES}
_MONTHS: Final = {name[:3] for name in _MONTH_NAMES}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A proposed schedule.

    Attributes:
        times: in the person's words.
        task: what is done then, also in their words.
        condition: the expression of an alert.
    """

    times: str
    recurrence: schedules.Recurrence
    kind: records.ScheduleKind
    task: str
    condition: str = ""

    @property
    def text(self) -> str:
        """The plan as people write it."""
        return f"{self.times} {self.recurrence.zone}: {self.task}"


def make_command(text: str) -> str:
    """Return the code of a request that proposes a schedule instead of running code."""
    return f"{_COMMAND} {text}"


def parse_command(code: str) -> str | None:
    """Return the schedule that the code of a request proposes; None if it is other code."""
    command, _, text = code.strip().partition(" ")
    return text.strip() if command == _COMMAND else None


def parse(text: str, *, zone: str, now: datetime.datetime) -> Plan:
    """Parse a schedule.

    Args:
        zone: the person's time zone; empty if unknown.

    Raises:
        BotError: the schedule is not understood, or not possible; the sentence says why.
    """
    match = _PARTS.match(text.strip())
    if match is None:
        raise errors.BotError(schedule_words.HOW_TO_WRITE)
    if len(text) > MAX_CHARACTERS:
        raise errors.BotError(schedule_words.too_long(MAX_CHARACTERS))
    words, task = match[1].split(), match[2].strip()
    if _ZONE.fullmatch(words[-1]):
        zone = words.pop()
    times = " ".join(words)
    line = _parse_times(times) if len(times) <= _MAX_TIMES_CHARACTERS else None
    if line is None:
        raise errors.BotError(schedule_words.not_understood(times))
    if not zone:
        raise errors.BotError(schedule_words.NO_ZONE)
    recurrence = schedules.Recurrence(line, zone[:_MAX_ZONE_CHARACTERS])
    _check_times(recurrence, times, now)
    kind, condition = _find_kind(task)
    return Plan(times, recurrence, kind, task, condition)


def next_times(
    recurrence: schedules.Recurrence, now: datetime.datetime, count: int
) -> Sequence[datetime.datetime]:
    """Return the next times; fewer if there are no more.

    Raises:
        ValueError: see `schedules.Recurrence.next_after`.
    """
    return tuple(itertools.islice(_times_after(recurrence, now), count))


def _times_after(
    recurrence: schedules.Recurrence, moment: datetime.datetime
) -> Iterator[datetime.datetime]:
    next_time = recurrence.next_after(moment)
    while next_time is not None:
        yield next_time
        next_time = recurrence.next_after(next_time)


def _find_kind(task: str) -> tuple[records.ScheduleKind, str]:
    """Return the kind of schedule that a task asks for, and the condition of an alert."""
    if (alert := _ALERT.match(task)) is None:
        is_replay = _REFRESH.match(task) is not None
        return records.ScheduleKind.REPLAY if is_replay else records.ScheduleKind.PROMPT, ""
    condition = alert[1].strip()
    try:
        ast.parse(condition, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise errors.BotError(schedule_words.no_expression(condition)) from error
    return records.ScheduleKind.ALERT, condition


def _check_times(recurrence: schedules.Recurrence, words: str, now: datetime.datetime) -> None:
    """Raise an error for times that are invalid, never occur, or occur too often."""
    try:
        times = next_times(recurrence, now, _MAX_CHECKED_TIMES)
    except schedules.UnknownZoneError as error:
        raise errors.BotError(schedule_words.unknown_zone(recurrence.zone)) from error
    except ValueError as error:
        raise errors.BotError(schedule_words.not_understood(words)) from error
    if not times:
        raise errors.BotError(schedule_words.never_occurs(words))
    pauses = (later - earlier for earlier, later in itertools.pairwise(times))
    if any(pause < datetime.timedelta(minutes=_MIN_MINUTES_BETWEEN_RUNS) for pause in pauses):
        raise errors.BotError(schedule_words.too_often(_MIN_MINUTES_BETWEEN_RUNS))


def _parse_times(times: str) -> str | None:
    """Parse times to the line of a crontab; None if they are not understood."""
    lower = times.lower().removeprefix("cron").strip()
    if _CRON.fullmatch(lower):
        _, _, day, _, weekday = lower.split()
        if "*" not in (day, weekday):
            # A crontab would run on days that match either field; people expect both to match.
            raise errors.BotError(schedule_words.TWO_KINDS_OF_DAYS)
        return lower
    words = lower.replace(",", " ").split()
    words = [_shorten_name(word) for word in words if word not in _FILLERS]
    return _parse_interval(words) or _parse_days_and_time(" ".join(words))


def _shorten_name(word: str) -> str:
    """Return the short form of the name of a weekday or a month."""
    return word[:3] if word.removesuffix("s") in _DAY_NAMES + _MONTH_NAMES else word


def _parse_interval(words: Sequence[str]) -> str | None:
    """Parse "hourly", "every 15 minutes" and the like to the line of a crontab."""
    if words in (["hour"], ["hourly"]):
        return "0 * * * *"
    count = int(words[0]) if words and words[0].isdecimal() else 0
    match words[1:]:
        case ["minutes" | "minute" | "min"] if count and 60 % count == 0:
            return f"*/{count} * * * *" if count < 60 else "0 * * * *"
        case ["hours" | "hour" | "h"] if count and 24 % count == 0:
            return f"0 */{count} * * *" if count < 24 else "0 0 * * *"
    return None


def _parse_days_and_time(words: str) -> str | None:
    """Parse days with a time at the end to the line of a crontab."""
    match = _TIME.fullmatch(words)
    if match is None:
        return None
    days, hour, minute = (match[1] or "").split(), int(match[2]), int(match[3] or 0)
    if match[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (match[4] == "pm")
    line = _parse_days(days)
    return line and f"{minute} {hour} {line}"


def _parse_days(days: Sequence[str]) -> str | None:
    """Parse the words of days to day of the month, month and weekday, as in a crontab."""
    match days:
        case ["monthly" | "month", ("last" as day)]:
            return f"{day} * *"
        case ["monthly" | "month", day] if day.isdecimal():
            return f"{day} * *"
        case [month, day] if month in _MONTHS and day.isdecimal():
            return f"{day} {month} *"
        case [day, month] if month in _MONTHS:
            return _parse_days([month, day])
        case ["yearly" | "year", *date]:
            return _parse_days(date) if len(date) == 2 else None
        case [word] if word in _DAYS:
            return f"* * {_DAYS[word]}"
        case [_, *_] if all(day in _WEEKDAYS for day in days):
            return f"* * {','.join(days)}"
    return None
