"""Notebooks of turns that did not end well."""

import datetime
import json

import pytest

from interpreter_bot import events
from interpreter_bot.sessions import exports, past_turns

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def sources(status, answer="", happened=()):
    turn = past_turns.PastTurn(
        id=1,
        person="p",
        request="go",
        attachments=(),
        status=status,
        answer=answer,
        started=START,
        ended=None,
        events=happened,
    )
    written = json.loads(exports.write([turn], {}))
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
