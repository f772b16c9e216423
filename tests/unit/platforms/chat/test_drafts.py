"""How a turn's answer is rendered as messages."""

import itertools

import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import drafts, layout, transport
from interpreter_bot.platforms.discord import markdown
from interpreter_bot.sessions import turn_log
from interpreter_bot.wording import model_words

TAKES = transport.Capabilities(
    max_characters=1900, max_messages=8, max_files=10, max_file_bytes=1000, max_message_bytes=1000
)


def drawing(log, *, is_job=False):
    style = drafts.AnswerStyle(
        owner="1", is_code=False, shows_code=False, limit_seconds=60, is_job=is_job
    )
    return drafts.TurnDrawing(
        log, style, markdown, TAKES, lambda name, description, data: f"[{name}]"
    )


def laid_out(*texts):
    """Render an answer as it grows: the messages after each text, the last of which is its end."""
    log = turn_log.TurnLog()
    drawn = drawing(log)
    log.apply(events.StepStarted(1))
    for event in (*map(events.TextAdded, texts), events.TurnEnded(status=values.TurnStatus.DONE)):
        log.apply(event)
        yield [draft.full_text for draft in layout.lay_out(drawn.parts(), TAKES)]


@pytest.mark.parametrize("filling", ["word ", "x", "`a` ", "https://a.example/b "])
@pytest.mark.parametrize("after", ["", "\n\n"])
def test_one_very_long_line_is_cut_as_many_lines_are(filling, after):
    text = "Begin. " + filling * (60_000 // len(filling)) + "The end."
    *_, messages = laid_out(text + after)
    assert len(messages) <= 11
    assert messages[0].startswith("Begin.")
    assert messages[-1].endswith("The end.")
    (note,) = [message for message in messages if "only in the file" in message]
    assert " 0 characters" not in note
    assert "[answer-1.md]" in note


def test_a_very_long_line_does_not_shrink_while_it_is_written():
    growth = [len("".join(messages)) for messages in laid_out(*["word " * 800] * 8)]
    assert all(later > earlier * 0.98 for earlier, later in itertools.pairwise(growth))


def test_nothing_is_said_to_be_missing_if_nothing_is():
    lines = ["word " * 300 + "."] * 11
    *_, messages = laid_out("\n".join(lines)[:16_000])
    assert "only in the file" not in "".join(messages)


@pytest.mark.parametrize(
    ("status", "ending", "end"),
    [
        (values.TurnStatus.DONE, values.Ending.OK, "is done, after 31 min 40 s."),
        (values.TurnStatus.DONE, values.Ending.ERROR, "failed after 31 min 40 s."),
        (values.TurnStatus.DONE, values.Ending.TIMED_OUT, "failed after 31 min 40 s."),
        (values.TurnStatus.STOPPED, values.Ending.STOPPED, "was stopped after 31 min 40 s."),
        (values.TurnStatus.FAILED, values.Ending.OK, "failed after 31 min 40 s."),
    ],
)
def test_the_end_of_a_job_tells_how_it_ended_and_how_long_its_code_ran_in_all(status, ending, end):
    log = turn_log.TurnLog()
    log.apply(events.CodeStarted(0, "print(1)"))
    log.apply(events.CodeFinished(0, values.Finished(ending, 1900.0)))
    log.apply(events.TurnEnded(status=status, seconds=1840.0))
    assert f"<@1> **The code in the background {end}**" in [*drawing(log, is_job=True).parts()]


def test_final_words_stand_apart_from_earlier_ones_and_without_an_answer_that_was_checked():
    log, notice = turn_log.TurnLog(), model_words.ANSWER_CHECKED
    for event in (
        events.StepStarted(1),
        events.TextAdded("First\nwords."),
        events.CodeStarted(0, "x = 1"),
        events.CodeFinished(0, values.Finished(values.Ending.OK, 1.0)),
        events.StepStarted(2),
        events.TextAdded("Wrong\nanswer."),
        events.NoticeShown(notice, 0),
        events.StepStarted(3),
        events.TextAdded("Right answer."),
        events.TurnEnded(status=values.TurnStatus.DONE, turn_id=1, text="Right answer."),
    ):
        log.apply(event)
    [message] = layout.lay_out(drawing(log).parts(), TAKES)
    assert message.text.startswith("Right answer.\n\nFirst\nwords.\n")
    assert "Wrong" not in message.text
