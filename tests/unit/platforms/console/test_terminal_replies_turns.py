"""How turns with a model look on a terminal, in a pipe, and as lines of JSON."""

import asyncio
import io
import json
import os
import time

import pytest

from interpreter_bot import code_activity, events, values
from interpreter_bot.platforms.console import json_replies, terminal_input, terminal_replies
from tests.unit.platforms.console.test_terminal_output import Terminal

WAITS = (("Looking…", None), ("Downloading. Free.", 0.0), ("Downloading. Free.", 0.5), ("", None))


def no_answers():
    return json_replies.JsonAnswers(terminal_input.StdinAnswers(is_script=True))


def printed(*, out, err):
    printer = terminal_replies.TurnPrinter(
        None, terminal_input.StdinAnswers(is_script=True), None, out=out, err=err
    )
    for text, share in WAITS:
        printer.emit(events.ProgressChanged(text, share))
    printer.emit(events.TextAdded("Hello."))
    return err.getvalue()


def test_what_is_waited_for_is_said_once_with_a_bar_that_goes_away(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    said = printed(out=Terminal(), err=Terminal())
    bars = said.removeprefix("Looking…\nDownloading. Free.\n").split("\r\x1b[2K")
    assert bars == ["", f"[{'.' * 30}] 0%", f"[{'#' * 15}{'.' * 15}] 50%", ""]


def test_a_pipe_is_told_what_is_waited_for_and_sees_no_bar():
    assert printed(out=io.StringIO(), err=io.StringIO()) == "Looking…\nDownloading. Free.\n"


def test_json_has_every_step_of_it():
    out = io.StringIO()
    lines = json_replies.JsonLines(None, no_answers(), None, out=out)
    for text, share in WAITS:
        lines.emit(events.ProgressChanged(text, share))
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["type"], line["text"], line["share"]) for line in told] == [
        ("progress", text, share) for text, share in WAITS
    ]


def ended():
    asked = (code_activity.ShownQuery("sales", "select 1", rows=1, seconds=0.5),)
    return events.TurnEnded(status=values.TurnStatus.DONE, queries=asked)


def test_queries_are_printed_below_an_answer_where_that_is_wanted():
    for is_wanted, shown in ((True, "-- sales: 1 row in 0.5 s\nselect 1\n"), (False, "")):
        err = io.StringIO()
        answers = terminal_input.StdinAnswers(is_script=True)
        printer = terminal_replies.TurnPrinter(None, answers, None, out=io.StringIO(), err=err)
        printer.shows_queries = is_wanted
        printer.emit(ended())
        assert err.getvalue() == shown


def test_json_always_has_the_queries_of_a_turn():
    out = io.StringIO()
    lines = json_replies.JsonLines(None, no_answers(), None, out=out)
    lines.emit(ended())
    [asked] = json.loads(out.getvalue())["queries"]
    assert asked == {
        "connection": "sales",
        "statement": "select 1",
        "rows": 1,
        "seconds": 0.5,
        "reason": "",
        "outcome": "1 row in 0.5 s",
    }


def test_who_waits_at_a_terminal_sees_for_how_long_and_how_long_it_may_take(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    terminal = Terminal()
    answers = terminal_input.StdinAnswers(is_script=True)
    printer = terminal_replies.TurnPrinter(
        None, answers, None, out=terminal, err=terminal, limit_seconds=120.0
    )

    def wait(seconds):
        now[0] += seconds
        before = len(terminal.getvalue())
        printer.tick()
        return terminal.getvalue()[before:].removeprefix("\r\x1b[2K")

    printer.emit(events.Started())
    printer.emit(events.StepStarted(1))
    assert wait(1) == ""
    assert wait(4) == "Thinking… 5 s"
    printer.emit(events.CodeStarted(0, "work()"))
    assert wait(62) == "Running… 1 min 2 s of at most 2 min"
    printer.emit(events.OutputShown(0, values.Text("stdout", "half a line")))
    # A line that code has not ended is not torn.
    assert wait(1) == ""
    printer.emit(events.OutputShown(0, values.Text("stdout", "\n")))
    assert wait(1) == "Running… 1 min 4 s of at most 2 min"
    printer.emit(events.CodeFinished(0, values.Finished(values.Ending.OK, 64.0)))
    printer.emit(ended())
    assert wait(9) == ""
    assert "work()\n" in terminal.getvalue()


HOSTILE_TEXT = "\u202egnp\u2066 \x1b[2J\x1b]0;title\x07\x9b2J\r`a` \x08\udc80" + "x" * 2000


@pytest.mark.parametrize(
    "event",
    [
        events.NoticeShown(f"Schedule 1: {HOSTILE_TEXT}"),
        events.PrivateNotice(HOSTILE_TEXT),
        events.ProgressChanged(HOSTILE_TEXT, None),
        events.TurnEnded(status=values.TurnStatus.FAILED, sentence=HOSTILE_TEXT),
        events.QuestionAsked(
            events.ApprovalQuestion(
                id="1",
                session=values.SessionKey("test"),
                person="anna",
                cell=0,
                subject="schedule",
                code=f"daily 9:00 UTC: {HOSTILE_TEXT}",
                facts=HOSTILE_TEXT,
            )
        ),
    ],
)
async def test_hostile_words_of_schedules_do_not_control_a_terminal(monkeypatch, event):
    monkeypatch.setenv("NO_COLOR", "1")

    async def take_answer(question_id, answer, *, person):
        pass

    terminal = Terminal()
    answers = terminal_input.StdinAnswers(is_script=True)
    printer = terminal_replies.TurnPrinter(None, answers, take_answer, out=terminal, err=terminal)
    printer.emit(event)
    shown = terminal.getvalue()
    assert shown.count("x") >= 2000
    assert not set(shown) & set("\u202e\u2066\x1b\x07\x9b\r\x08\udc80")
    printer.show_refusal(HOSTILE_TEXT)
    printer.show_text(HOSTILE_TEXT)
    assert not set(terminal.getvalue()) & set("\u202e\u2066\x1b\x07\x9b\r\x08\udc80")


QUESTION = events.InputQuestion(
    id="1",
    session=values.SessionKey("test"),
    person="anna",
    cell=0,
    prompt="Which region?",
    is_of_model=True,
    choices=("North", "South"),
)


async def asked_at(make_reply, typed):
    """Ask the question of a reply that reads what was typed; return its answer."""
    given = asyncio.get_running_loop().create_future()

    async def take_answer(question_id, answer, *, person):
        given.set_result(answer)

    read, write = os.pipe()
    os.write(write, typed)
    os.close(write)
    answers = terminal_input.StdinAnswers(is_script=False, descriptor=read)
    make_reply(answers, take_answer).emit(events.QuestionAsked(QUESTION))
    try:
        return await asyncio.wait_for(given, 10)
    finally:
        os.close(read)


async def test_a_question_of_the_model_has_numbers_and_its_end_is_no_answer():
    err = io.StringIO()

    def printer(answers, take_answer):
        return terminal_replies.TurnPrinter(None, answers, take_answer, out=io.StringIO(), err=err)

    assert await asked_at(printer, b"2\n") == events.TextAnswer("2")
    assert "Which region?\n1. North\n2. South\n" in err.getvalue()
    assert isinstance(await asked_at(printer, b""), events.Unanswered)


async def test_a_program_gets_the_choices_of_the_model():
    out = io.StringIO()

    def lines(answers, take_answer):
        answers = json_replies.JsonAnswers(answers)
        return json_replies.JsonLines(None, answers, take_answer, out=out)

    assert isinstance(await asked_at(lines, b""), events.Unanswered)
    asked = json.loads(out.getvalue().splitlines()[0])
    assert (asked["type"], asked["is_of_model"]) == ("input", True)
    assert asked["choices"] == ["North", "South"]
