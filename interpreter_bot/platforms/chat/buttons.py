"""The buttons below answers and questions: their labels and looks."""

from __future__ import annotations

from typing import Final

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import past_code
from interpreter_bot.wording import question_words, session_words

_LOOKS: Final[dict[str, tuple[str, transport.Style]]] = {
    "stop": ("Stop", "danger"),
    "code": (past_code.BUTTON, "plain"),
    "again": ("Re-run", "plain"),
    "notebook": ("Notebook", "plain"),
    "page": (session_words.OPEN_ON_PAGE, "plain"),
    "csv": ("All as CSV", "plain"),
    "feedback": ("", "plain"),
    "answer": ("Answer", "primary"),
    "run": ("Run", "success"),
    "change": ("Edit", "plain"),
    "refuse": ("Refuse", "danger"),
    values.FOR_SESSION: (question_words.FOR_SESSION, "plain"),
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


def answering(
    question: events.Question, owner: str, *, hides: bool
) -> tuple[transport.Button, ...]:
    """Return the buttons that answer a question; if its code is hidden, none that approves it."""
    if isinstance(question, events.InputQuestion):
        picks = tuple(
            make(f"{events.PICK_PREFIX}{place}", question.id, owner, choice)
            for place, choice in enumerate(question.choices)
        )
        label = question_words.OTHER_ANSWER if picks else ""
        return (*picks, make("answer", question.id, owner, label))
    approving = () if hides else ("run", *question.choices)
    # What shows the code whole lets it be edited.
    actions = (*approving, *(("change",) if question.can_edit or hides else ()), "refuse")
    labels = {"run": question_words.approve(question.subject)}
    if question.subject == "schedule":
        labels |= {"change": question_words.CHANGE, "refuse": question_words.CANCEL}
    return tuple(make(action, question.id, owner, labels.get(action, "")) for action in actions)
