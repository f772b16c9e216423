import dataclasses
import itertools

import pytest

from interpreter_bot import events, values
from interpreter_bot.sessions import turn_log

OK = values.Finished(values.Ending.OK, 0.5)
STORED = values.StoredDisplay(mime="image/png", sha256="a" * 64, size_bytes=3)
FILE = values.Artifact("a.csv", 1, "b" * 64)


def log_of(*happened, **arguments):
    log = turn_log.TurnLog(clock=itertools.count().__next__, **arguments)
    for event in happened:
        log.apply(event)
    return log


def printed(cell, text, stream="stdout"):
    return events.OutputShown(cell, values.Text(stream, text))


WHOLE = (
    events.Started(),
    events.StepStarted(1),
    events.TextAdded("I will "),
    events.NoticeShown("Restarted.", 0),
    events.TextAdded("look."),
    events.CodeDrafted("pri"),
    events.CodeStarted(0, "print(1)"),
    printed(0, "1"),
    printed(0, "\n"),
    printed(0, "oh", "stderr"),
    events.StoredDisplayShown(0, STORED),
    events.CodeFinished(0, OK),
    events.FileMade(0, FILE),
    events.PrivateNotice("Log in here."),
    events.StepStarted(2),
    events.ProgressChanged("Downloading", 0.1),
    events.ProgressChanged("Downloading", 0.2),
    events.UsageChanged(values.Usage(input_tokens=1)),
    events.UsageChanged(values.Usage(input_tokens=2)),
    events.TextAdded("Do"),
)
END = events.TurnEnded(status=values.TurnStatus.DONE, text="Done.", seconds=2.0)


def test_parts_stand_in_the_order_in_which_they_came():
    first, notice, cell, last = log_of(*WHOLE, END).parts
    assert (first.text, first.step) == ("I will look.", 1)
    assert notice == events.NoticeShown("Restarted.", 0)
    assert (cell.number, cell.code, cell.finished) == (0, "print(1)", OK)
    assert [output.plain for output in cell.screen.outputs] == ["1\n", "oh"]
    assert (last.text, last.step) == ("Done.", 2)


def test_the_end_replaces_the_words_of_its_step_alone():
    log = log_of(*WHOLE[:12], END)
    assert [p.text for p in log.parts if isinstance(p, turn_log.StepText)] == [
        "I will look.",
        "Done.",
    ]
    assert log.last_words.text == "Done."
    assert log_of(*WHOLE[:12], dataclasses.replace(END, text="")).last_words is None


def test_words_after_code_of_the_same_step_are_new_ones():
    log = log_of(*WHOLE[:12], events.TextAdded("So:"))
    assert [part.text for part in log.parts if isinstance(part, turn_log.StepText)][1:] == ["So:"]


def test_a_draft_goes_once_its_code_runs_or_another_step_begins():
    assert log_of(*WHOLE[:6]).draft == "pri"
    assert log_of(*WHOLE[:7]).draft == ""
    assert log_of(*WHOLE[:6], events.StepStarted(2)).draft == ""
    assert log_of(*WHOLE[:6], END).draft == ""


def test_only_the_latest_of_what_changes_is_kept():
    log = log_of(*WHOLE, events.FileMade(1, dataclasses.replace(FILE, size_bytes=9)))
    assert log.progress == events.ProgressChanged("Downloading", 0.2)
    assert log.usage.input_tokens == 2
    assert [made.artifact.size_bytes for made in log.files.values()] == [9]
    log.apply(events.ProgressChanged(""))
    assert log.progress is None


def test_private_notices_are_no_part_of_the_answer():
    log = log_of(*WHOLE)
    assert log.private_notices == ["Log in here."]
    assert not any("Log in" in str(part) for part in log.parts)


def test_a_growing_share_is_the_same_wait():
    log = log_of(events.ProgressChanged("Downloading", 0.1))
    began = log.activity_start
    log.apply(events.ProgressChanged("Downloading", 0.2))
    assert log.activity_start == began
    log.apply(events.ProgressChanged(""))
    assert log.activity_start > began


def test_a_request_waits_until_it_has_its_lane():
    log = log_of(events.Queued(2), events.Queued(1))
    assert (log.ahead, log.has_started) == (1, False)
    log.apply(events.Started())
    assert (log.ahead, log.has_started) == (None, True)


def test_the_last_printed_line_is_what_a_progress_bar_shows_now():
    log = log_of(printed(0, "begin\n 10 %\r"), printed(0, " 20 %\r"), printed(0, "\n\n"))
    assert log.cells[0].last_line == " 20 %"
    assert log_of(events.CodeStarted(0, "1")).cells[0].last_line == ""


@pytest.mark.parametrize("count", range(len(WHOLE) + 2))
def test_who_comes_late_gets_the_same_with_fewer_events(count):
    happened = (*WHOLE, END)[:count]
    again = log_of(*log_of(*happened).events())
    assert len([*again.events()]) <= count
    assert [*again.events()] == [*log_of(*happened).events()]
    for rest in (*WHOLE, END)[count:]:
        again.apply(rest)
    expected = log_of(*WHOLE, END)
    assert [p.text for p in again.parts if isinstance(p, turn_log.StepText)] == [
        p.text for p in expected.parts if isinstance(p, turn_log.StepText)
    ]
    assert [*again.events()] == [*expected.events()]


def test_what_is_printed_without_a_break_is_one_event():
    shown = [e for e in log_of(*WHOLE).events() if isinstance(e, events.OutputShown)]
    assert shown == [printed(0, "1\n"), printed(0, "oh", "stderr")]


def test_a_long_turn_keeps_its_code_and_its_latest_outputs():
    log = log_of(events.CodeStarted(0, "flood()"), max_characters=1000)
    for number in range(200):
        assert log.cells[0].screen
        log.apply(printed(number % 2, f"{number:03}" * 5))
    assert log.is_cut
    made = [*log.events()]
    assert made[0] == events.CodeStarted(0, "flood()")
    texts = [event.output.text for event in made if isinstance(event, events.OutputShown)]
    assert texts[-1].endswith("199" * 5)
    assert 500 < sum(map(len, texts)) <= 1000


INPUT = events.InputQuestion(
    id="1", session=values.SessionKey("web"), person="anna", cell=0, prompt="Name? "
)
SECRET = dataclasses.replace(INPUT, id="2", is_password=True)
APPROVAL = events.ApprovalQuestion(
    id="3", session=values.SessionKey("web"), person="anna", cell=1, code="x = 1"
)


def test_a_question_is_a_part_and_its_answer_stands_as_on_a_terminal():
    log = log_of(*WHOLE[:7], events.QuestionAsked(INPUT))
    assert log.open_question == INPUT
    assert [*log.events()][-1] == events.QuestionAsked(INPUT)
    log.apply(events.QuestionClosed(INPUT, events.TextAnswer("Ada")))
    # It was answered before this bot could ask it.
    log.apply(events.QuestionClosed(SECRET, events.TextAnswer("")))
    assert log.open_question is None
    assert "".join(output.plain for output in log.cells[0].screen.outputs) == (
        "Name? Ada\nName? •••\n"
    )


@pytest.mark.parametrize("answer", [None, events.Declined(), events.Approved()])
def test_what_was_decided_is_known_to_who_comes_late(answer):
    closed = events.QuestionClosed(APPROVAL, answer)
    log = log_of(*WHOLE[:3], events.QuestionAsked(APPROVAL), closed)
    late = log_of(*log.events())
    assert (late.parts[-1].is_open, late.parts[-1].answer) == (False, answer)
    assert [*late.events()] == [*log.events()]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_question_is_open_until_the_turn_ends_for_good(goes_on):
    end = dataclasses.replace(END, text="", goes_on=goes_on)
    log = log_of(*WHOLE[:3], events.QuestionAsked(APPROVAL), end)
    assert (log.open_question == APPROVAL) is goes_on
