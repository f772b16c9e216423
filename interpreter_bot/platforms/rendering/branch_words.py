"""Words about copies of conversations and answers that are taken back, the same everywhere."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

COPY: Final = (
    "This thread goes on with a copy of another conversation: its variables, files and history. "
    "Ask on here."
)
COPIED: Final = "A copy of this conversation goes on in a new thread of this channel."
_TITLE_CHARACTERS: Final = 80


def undone(request: str) -> str:
    """Return what is said once an answer was taken back; `request` is what had been asked."""
    asked = quantities.one_line(request, _TITLE_CHARACTERS)
    what = f" “{asked}” was asked" if asked else " the last answer"
    return f"Undone: variables, files and what I remember are as before{what}."
