"""Schedules as people write them."""

import datetime

import pytest

from interpreter_bot import errors
from interpreter_bot.sessions import schedule_texts
from interpreter_bot.store import records
from interpreter_bot.wording import schedule_words

NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)


def parse(text, zone=""):
    return schedule_texts.parse(text, zone=zone, now=NOW)


@pytest.mark.parametrize(
    ("times", "cron"),
    [
        ("weekdays 9:00", "0 9 * * mon-fri"),
        ("every weekday at 9", "0 9 * * mon-fri"),
        ("Daily at 14:30", "30 14 * * *"),
        ("every day at 5:30 pm", "30 17 * * *"),
        ("daily 12am", "0 0 * * *"),
        ("weekends 10:00", "0 10 * * sat,sun"),
        ("Mondays and Thursdays at 9", "0 9 * * mon,thu"),
        ("mon, thu 9.15", "15 9 * * mon,thu"),
        ("monthly 1 9:00", "0 9 1 * *"),
        ("every month on last at 9", "0 9 last * *"),
        ("feb 29 9:00", "0 9 29 feb *"),
        ("yearly 24 December 18:00", "0 18 24 dec *"),
        ("hourly", "0 * * * *"),
        ("every 2 hours", "0 */2 * * *"),
        ("every 15 minutes", "*/15 * * * *"),
        ("0 9 * * 1-5", "0 9 * * 1-5"),
        ("cron 0 9 1 * *", "0 9 1 * *"),
    ],
)
def test_times_are_understood(times, cron):
    plan = parse(f"{times} Europe/Berlin: say hello")
    assert (plan.recurrence.cron, plan.recurrence.zone) == (cron, "Europe/Berlin")
    assert plan.times == " ".join(times.split())
    assert parse(plan.text) == plan


@pytest.mark.parametrize(
    "times",
    [
        *("soon", "9:00", "daily", "every 7 minutes", "every 0 minutes", "every 5 hours"),
        *("daily 25:00", "daily 9:75", "daily 0 pm", "daily 13 pm", "monthly 32 9:00"),
        *("every 15 minutes 9:00", "mon foo 9:00", "0 9 * *", "x" * 200, "monthly", "٣ 9 * * *"),
    ],
)
def test_other_times_are_refused_with_examples(times):
    with pytest.raises(errors.BotError, match="I don't understand the times"):
        parse(f"{times} UTC: say hello")


def test_a_time_that_never_comes_is_refused():
    with pytest.raises(errors.BotError, match="does not occur in the next ten years"):
        parse("feb 30 9:00 UTC: say hello")


@pytest.mark.parametrize("times", ["every 5 minutes", "0,1 9 * * *", "59 23 28 2 *"])
def test_times_that_are_too_close_are_refused(times):
    if times.startswith("59"):
        assert parse(f"{times} UTC: say hello")
        return
    with pytest.raises(errors.BotError, match="Runs have to be at least 15 min apart"):
        parse(f"{times} UTC: say hello")


def test_a_person_whose_zone_is_known_need_not_name_it():
    assert parse("daily 9:00: say hello", "Asia/Tokyo").recurrence.zone == "Asia/Tokyo"
    assert parse("daily 9:00 UTC: say hello", "Asia/Tokyo").recurrence.zone == "UTC"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", schedule_words.HOW_TO_WRITE),
        ("daily 9:00", schedule_words.HOW_TO_WRITE),
        ("daily 9:00:", schedule_words.HOW_TO_WRITE),
        ("daily 9:00: say hello", schedule_words.NO_ZONE),
        ("daily 9:00 Mars/Olympus: say hello", schedule_words.unknown_zone("Mars/Olympus")),
        ("0 9 1 * 1 UTC: say hello", schedule_words.TWO_KINDS_OF_DAYS),
        ("daily 9:00 UTC: alert if x >", schedule_words.no_expression("x >")),
        ("daily 9:00 UTC: alert if x = 1", schedule_words.no_expression("x = 1")),
        (f"daily 9:00 UTC: {'x' * 2000}", schedule_words.too_long(2000)),
    ],
)
def test_what_is_missing_or_wrong_is_said(text, sentence):
    with pytest.raises(errors.BotError) as refusal:
        parse(text)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("task", "kind", "condition"),
    [
        ("refresh this", records.ScheduleKind.REPLAY, ""),
        ("Refresh the chart", records.ScheduleKind.REPLAY, ""),
        ("refreshing news", records.ScheduleKind.PROMPT, ""),
        ("what changed?", records.ScheduleKind.PROMPT, ""),
        ("alert if queue > 100", records.ScheduleKind.ALERT, "queue > 100"),
        ("Alert me when len(df) == 0", records.ScheduleKind.ALERT, "len(df) == 0"),
    ],
)
def test_words_say_what_is_done(task, kind, condition):
    plan = parse(f"daily 9:00 UTC: {task}")
    assert (plan.kind, plan.task, plan.condition) == (kind, task, condition)


def test_a_proposal_is_a_line_of_code():
    assert (
        schedule_texts.parse_command(schedule_texts.make_command("daily 9:00: x"))
        == "daily 9:00: x"
    )
    assert schedule_texts.parse_command("/schedules") is None
    assert schedule_texts.parse_command("print(1)") is None
