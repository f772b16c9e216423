"""What a person enters instead of what a question shows."""

import pytest

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import buttons


@pytest.mark.parametrize("subject", ["code", "note", "plan"])
def test_typographic_quotes_are_straightened_in_code_alone(subject):
    session = values.SessionKey("slack", "T1", "C1")
    question = events.ApprovalQuestion(
        id="1", session=session, person="U1", cell=0, subject=subject, code="x"
    )
    entered = "print(“2”)…"
    expected = 'print("2")...' if subject == "code" else entered
    assert buttons.read_edited(question, entered) == expected
