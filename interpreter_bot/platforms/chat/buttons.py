"""The buttons below answers and questions: their labels and looks."""

from __future__ import annotations

from typing import Final

from interpreter_bot import events
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import past_code
from interpreter_bot.wording import question_words, session_words

RUNNING: Final = frozenset({"run", events.FOR_SESSION})
"""Actions of buttons that let code run."""
_LOOKS: Final[dict[str, tuple[str, transport.Style]]] = {
    "stop": ("Stop", "danger"),
    "code": (past_code.BUTTON, "plain"),
    "again": ("Re-run", "plain"),
    "notebook": ("Notebook", "plain"),
    "page": (session_words.OPEN_ON_PAGE, "plain"),
    "csv": ("All as CSV", "plain"),
    "answer": ("Answer", "primary"),
    "run": ("Run", "success"),
    "change": ("Edit", "plain"),
    "refuse": ("Refuse", "danger"),
    "once": ("Once", "primary"),
    "session": (question_words.FOR_SESSION, "plain"),
    "install": ("Install and run again", "primary"),
    "yes": ("Yes", "primary"),
    "no": ("No", "danger"),
    "undo": ("Undo", "danger"),
    "reset": ("Reset", "danger"),
    "resetfiles": ("Reset and delete", "danger"),
    "dismiss": ("Cancel", "plain"),
}


def make(action: str, about: str, owner: str, label: str = "") -> transport.Button:
    """Return a button.

    Args:
        action: what it does.
        about: id of the request, turn, question or table.
        owner: whose it is.
        label: if it needs a better one than its action's.
    """
    # Another version may have buttons that are unknown here.
    usual, style = _LOOKS.get(action, (action, "plain"))
    return transport.Button(action, about, owner, label or usual, style)
