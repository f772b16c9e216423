"""Who may, what holds, what a message says, how an answer is laid out."""

import pytest

from interpreter_bot.platforms.discord import (
    message_parsing,
)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("plot the sales", "plot the sales"),
        ("\n\n```py\nprint()\n```", "py"),
        ("word " * 50, ("word " * 16).strip() + "…"),
        ("", "Interpreter"),
        ("x" * 300, "x" * 80 + "…"),
    ],
)
def test_title_of_a_thread(text, title):
    assert message_parsing.title(text) == title
    assert 1 <= len(message_parsing.title(text)) <= 100
