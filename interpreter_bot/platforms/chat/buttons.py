"""The buttons below answers and questions: their labels, their looks, and what people enter."""

from __future__ import annotations

from typing import Final

from interpreter_bot import events, values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import past_code
from interpreter_bot.text import code_reading
from interpreter_bot.wording import question_words, session_words

_LABELS_AND_STYLES: Final[dict[str, tuple[str, transport.ButtonStyle]]] = {
    "stop": ("Stop", "danger"),
    "code": (past_code.BUTTON_LABEL, "plain"),
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


def make(action: str, subject_id: str, owner: str, label: str = "") -> transport.Button:
    """Return a button; without a label it has that of its action."""
    # Another version may have buttons that are unknown here.
    default_label, style = _LABELS_AND_STYLES.get(action, (action, "plain"))
    return transport.Button(action, subject_id, owner, label or default_label, style)


def make_answer_buttons(
    question: events.Question, owner: str, *, hides_code: bool
) -> tuple[transport.Button, ...]:
    """Return the buttons that answer a question; if its code is hidden, none that approves it."""
    if isinstance(question, events.InputQuestion):
        choice_buttons = tuple(
            make(f"{events.PICK_PREFIX}{index}", question.id, owner, choice)
            for index, choice in enumerate(question.choices)
        )
        label = question_words.OTHER_ANSWER if choice_buttons else ""
        return (*choice_buttons, make("answer", question.id, owner, label))
    approvals = () if hides_code else ("run", *question.choices)
    # The editor shows all of the code.
    edits = ("change",) if question.can_edit or hides_code else ()
    actions = (*approvals, *edits, "refuse")
    labels = {"run": question_words.approve_label(question.subject)}
    if question.subject == "schedule":
        labels |= {"change": question_words.CHANGE_BUTTON, "refuse": question_words.CANCEL_BUTTON}
    return tuple(make(action, question.id, owner, labels.get(action, "")) for action in actions)


def read_edited(question: events.Question | None, text: str) -> str:
    """Return what a person entered instead of what a question shows.

    Keyboards and clients put typographic quotes into code. In words, people want them.
    """
    is_code = isinstance(question, events.ApprovalQuestion) and question.subject == "code"
    return code_reading.undo_typography(text) if is_code else text
