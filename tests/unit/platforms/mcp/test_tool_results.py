import base64

import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.mcp import replies, tool_results
from interpreter_bot.sessions import turn_log


def _log(ending=values.Ending.OK, *outputs, reason="", lost=False, end=None):
    log = turn_log.TurnLog()
    for output in outputs:
        log.apply(events.OutputShown(0, output))
    if ending is not None:
        log.apply(events.CodeFinished(0, values.Finished(ending, 1.0, reason, lost)))
    log.apply(end or events.TurnEnded(status=values.TurnStatus.DONE))
    return log


def _said(result):
    return "\n".join(one.text for one in result.content if one.type == "text")


def test_what_was_shown_keeps_its_order():
    picture = values.Image(mime="image/png", data=b"p")
    result = tool_results.run_result(
        _log(
            values.Ending.OK,
            values.Text("stdout", "before\n"),
            picture,
            values.Text("stdout", "after\n"),
        ),
        "s-1",
    )
    assert [one.type for one in result.content] == ["text", "image", "text"]
    assert result.content[0].text == "before"
    assert base64.b64decode(result.content[1].data) == b"p"
    assert result.content[2].text == "after\n[session: s-1]"
    assert not result.is_error


def test_silence_is_said():
    assert _said(tool_results.run_result(_log(), "s-1")) == (
        "[The code ran to its end and showed nothing.]\n[session: s-1]"
    )


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (_log(values.Ending.TIMED_OUT, reason="Too slow."), "[Too slow.]"),
        (_log(values.Ending.STOPPED), "[The code ended: stopped.]"),
        (_log(values.Ending.CRASHED, lost=True), "[All variables are gone; files are kept.]"),
        (
            _log(None, end=events.TurnEnded(status=values.TurnStatus.FAILED, sentence="All busy.")),
            "[All busy.]",
        ),
    ],
)
def test_an_end_that_is_none_is_an_error_with_its_reason(log, said):
    result = tool_results.run_result(log, "s-1")
    assert result.is_error
    assert said in _said(result)


def test_progress_is_the_last_line_printed_made_harmless():
    reply = replies.RunReply()
    reply.emit(events.Queued(2))
    assert reply.progress_text == "Waiting behind 2 requests."
    reply.emit(events.Started())
    assert reply.progress_text == ""
    reply.emit(events.OutputShown(0, values.Text("stdout", "10 %\r20\x1b[2J %\r30 %")))
    assert reply.progress_text == "30 %"
    reply.emit(events.OutputShown(0, values.Text("stdout", "\n" + "x" * 5000 + "\n\n")))
    assert reply.progress_text == "x" * 199 + "…"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"plain", "text"),
        ("é€𝄞".encode(), "text"),
        (b"\x89PNG\r\n\x1a\nrest", "image"),
        (b"\xff\xfe\x00", "resource"),
        (b"a\x00b", "resource"),
        (b"\xc3", "resource"),
        (b"", "text"),
    ],
)
def test_a_file_is_given_as_what_it_is(data, kind):
    info = values.FileInfo("x", len(data), 0)
    (content,) = tool_results.file_result(info, data, 0).content
    assert content.type == kind
