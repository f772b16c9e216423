"""Notebooks of turns that did not end well."""

import json

import pytest

from interpreter_bot import events, values
from interpreter_bot.sessions import exports, html_exports
from tests.fakes import past_turns


def sources(status, answer="", happened=()):
    turn = past_turns.make_past_turn(*happened, status=status, answer=answer)
    written = json.loads(exports.write_notebook([turn], {}))
    return [cell["source"] for cell in written["cells"]][1:]


SAID = (events.TextAdded("First, [x](sandbox:/x)."),)


@pytest.mark.parametrize(
    ("status", "answer", "happened", "told"),
    [
        ("done", "First, x.", SAID, ["First, x."]),
        ("failed", "No money.", SAID, [SAID[0].text, "No money."]),
        ("failed", "No money.", (), ["No money."]),
        ("stopped", "", SAID, [SAID[0].text, "*Somebody stopped this.*"]),
        ("stopped", "First,", SAID, ["First,", "*Somebody stopped this.*"]),
        (
            "interrupted",
            "",
            (events.CodeStarted(0, "1"),),
            ["1", "*The bot was restarted in the middle of this.*"],
        ),
        ("running", "", SAID, [SAID[0].text]),
    ],
)
def test_words_stay_and_the_end_is_told(status, answer, happened, told):
    assert sources(status, answer, happened) == told


def test_questions_stand_where_they_were_asked():
    about = {"id": "1", "session": values.SessionKey("web"), "person": "p", "cell": 0}
    approval = events.ApprovalQuestion(code="1", **about)
    secret = events.InputQuestion(prompt="Key: ", is_password=True, **about)
    happened = (
        events.QuestionAsked(approval),
        events.QuestionClosed(approval, events.Approved()),
        events.CodeStarted(0, "1"),
        events.QuestionAsked(secret),
        events.QuestionClosed(secret, events.TextAnswer("")),
        events.QuestionClosed(secret, None),
    )
    assert sources("done", happened=happened) == [
        "*Run this code? Approved.*",
        "1",
        "*Your code asked: Key: This question has expired.*",
    ]
    turn = past_turns.make_past_turn(*happened)
    page = html_exports.write_page("T", [turn], {}, {}).decode()
    assert "<pre>Key: •••\n</pre>" in page
    assert "Run this code? Approved." in page
