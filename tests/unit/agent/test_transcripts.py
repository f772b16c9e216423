"""The transcript fits the window, and stays one that servers accept."""

import hypothesis
import pytest
from hypothesis import strategies as st

from interpreter_bot.agent import chat_messages, context_windows, transcripts


def conversation(turns, *, steps=2, length=2000):
    transcript = transcripts.Transcript()
    for turn in range(turns):
        transcript.add_user_message(f"question {turn}")
        for step in range(steps):
            call = chat_messages.Call(f"call_{step}", "run_code", '{"code": "1"}')
            transcript.add_reply("", (call,))
            transcript.add_tool_result(call, f"output {turn}.{step} " + "x" * length)
        transcript.add_reply(f"answer {turn}")
    return transcript


def is_whole(entries):
    pending = set()
    for one in entries:
        if isinstance(one, chat_messages.ToolResult):
            pending.remove(one.call_id)
        else:
            assert not pending
            pending = (
                {call.id for call in one.calls}
                if isinstance(one, chat_messages.AssistantMessage)
                else set()
            )
    return not pending


def test_what_fits_is_left_alone():
    entries = conversation(3).entries
    assert context_windows.fit(entries, 100_000) == context_windows.FittedTranscript(
        entries, context_windows.estimate_tokens(entries)
    )


def test_old_outputs_go_first():
    fit = context_windows.fit(conversation(3).entries, 3200)
    assert fit.dropped_messages == ()
    texts = [one.text for one in fit.messages]
    assert "characters left out" in texts[2]
    assert len(texts[-2]) > 2000


def test_then_the_oldest_turns():
    fit = context_windows.fit(conversation(40).entries, 3000)
    assert fit.dropped_messages[0].text == "question 0"
    assert isinstance(fit.messages[0], chat_messages.UserMessage)
    assert fit.messages[-1].text == "answer 39"


@hypothesis.given(
    st.integers(1, 6), st.integers(0, 6), st.integers(0, 9000), st.integers(500, 8000)
)
def test_whatever_is_kept_fits_and_is_whole(turns, steps, length, limit):
    fit = context_windows.fit(conversation(turns, steps=steps, length=length).entries, limit)
    assert context_windows.estimate_tokens(fit.messages) <= limit or len(fit.messages) <= 5
    assert is_whole(fit.messages)
    assert is_whole(fit.dropped_messages)


def test_question_longer_than_the_window_is_cut():
    fit = context_windows.fit([chat_messages.UserMessage("word " * 50_000)], 2000)
    assert context_windows.estimate_tokens(fit.messages) <= 2000
    assert "characters left out" in fit.messages[0].text


def test_note_keeps_an_earlier_summary():
    dropped = [
        chat_messages.UserMessage("Before, apples.", is_from_bot=True),
        chat_messages.UserMessage("pears?"),
    ]
    note = transcripts.describe_dropped(dropped)
    assert "Before, apples." in note
    assert "pears?" in note


def test_open_calls_are_settled_though_their_ids_were_used_before():
    transcript = conversation(1, steps=1)
    transcript.add_reply("", (chat_messages.Call("call_0", "run_code", "{}"),))
    transcript.answer_open_calls(chat_messages.Note("[stopped]"))
    assert transcript.entries[-1] == chat_messages.ToolResult("call_0", "[stopped]")
    assert is_whole(transcript.entries)


def test_only_the_first_open_call_is_told_what_was_shown():
    transcript = transcripts.Transcript()
    calls = tuple(chat_messages.Call(name, "run_code", "{}") for name in "abc")
    transcript.add_reply("", calls)
    transcript.add_tool_result(calls[0], "done")
    transcript.answer_open_calls(
        chat_messages.Note("was running"), note_for_others=chat_messages.Note("never ran")
    )
    assert [one.text for one in transcript.entries[1:]] == ["done", "was running", "never ran"]


def test_stored_transcript_that_was_torn_is_mended():
    said = chat_messages.AssistantMessage("", (chat_messages.Call("1", "run_code", "{}"),))
    assert is_whole(transcripts.Transcript([chat_messages.UserMessage("x"), said]).entries)


@pytest.mark.parametrize("stored", [{}, {"kind": "x"}, {"kind": "said", "text": "", "calls": [5]}])
def test_what_was_never_stored_is_refused(stored):
    with pytest.raises(ValueError, match="not a stored message"):
        chat_messages.from_dict(stored)


def test_text_of_any_script_is_estimated_from_above():
    assert context_windows.estimate_text_tokens("word " * 100) >= 100
    assert context_windows.estimate_text_tokens("汉字" * 100) >= 200
