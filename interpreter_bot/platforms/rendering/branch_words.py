"""Words about copies of conversations and answers that are taken back, the same everywhere."""

from __future__ import annotations

from typing import Final

from interpreter_bot.sessions import session_branches
from interpreter_bot.text import quantities

COPY: Final = (
    "This thread goes on with a copy of another conversation: its variables, files and history. "
    "Ask on here."
)
COPIED: Final = "A copy of this conversation goes on in a new thread of this channel."
_TITLE_CHARACTERS: Final = 80


def undone(taken_back: session_branches.Undone) -> str:
    """Return what is said once an answer was taken back."""
    asked = quantities.one_line(taken_back.request, _TITLE_CHARACTERS)
    what = f" “{asked}” was asked" if asked else " the last answer"
    if not taken_back.missed_runs:
        return f"Undone: variables, files and what I remember are as before{what}."
    missed = f"{quantities.count(taken_back.missed_runs, 'piece')} of code"
    return (
        f"Undone: files and what I remember are as before{what}. Variables are those saved last, "
        f"before {missed} ran that came before it."
    )
