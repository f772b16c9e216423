"""Questions to a person: may this code run, what does its `input()` get, and who may answer."""

from __future__ import annotations

from typing import Final

RUN_THIS: Final = "Run this code?"
_TITLE_OF_SUBJECT: Final = {
    "plan": "Carry out this plan?",
    "note": "Remember this here?",
    "tool": "Make this call?",
    "statement": "Run this statement?",
    "schedule": "Set up this schedule?",
    "packages": "Install these packages?",
    "import": "Install this package and run the code again?",
    "request": "Send this request?",
}
_APPROVE_LABEL: Final = {
    "note": "Remember",
    "schedule": "Confirm",
    "packages": "Install",
    "import": "Install and run again",
    "request": "Send",
}
CHANGE_BUTTON: Final = "Change"
CANCEL_BUTTON: Final = "Cancel"
NOT_EDITABLE: Final = "This cannot be edited. Approve or decline it."
NOBODY_TO_APPROVE: Final = "It needs a person's approval, and nobody is there to be asked."
NOT_YOURS: Final = "Only the person who asked can do that."
EXPIRED: Final = "This question has expired."
DECIDED: Final = "This was already decided."
APPROVED: Final = "Approved."
APPROVED_FOR_SESSION: Final = "Approved for this session."
APPROVED_AS_EDITED: Final = "Approved, as edited."
DECLINED: Final = "Declined."
ANSWERED: Final = "Answered."
CANCELLED: Final = "Cancelled. Nothing was changed."
FOR_SESSION: Final = "For this session"
INPUT_TITLE: Final = "Your code asks"
ANSWER_LABEL: Final = "Your answer"
REPLY_OR_BUTTON: Final = "Reply to this message, or press Answer."
CHOOSE_OR_REPLY: Final = "Choose an answer, or reply to this message with another one."
OTHER_ANSWER: Final = "Other answer"
NOBODY_ANSWERS: Final = "Nobody is there who could answer."
PASSWORD: Final = "This is a password: press Answer, so that nobody else reads it."
NO_PASSWORDS: Final = (
    "I don't take passwords from messages. Press Answer, and delete the message if it held one."
)
LOST_PASSWORD: Final = (
    "I was restarted after code had asked you for a password, so I did not pass this message on. "
    "Delete it if it held the password, else send it again."
)
WHOLE_CODE_IN_FILE: Final = "The file has the whole code, exactly as it will run."
WHOLE_CODE: Final = "The whole code"
TOO_LONG_TO_EDIT: Final = "The code is too long to edit here."
EDITED_BY_ASKER: Final = "Only the person who asked can edit it."


def title(subject: str) -> str:
    """Return the question whether something of this kind may be done."""
    return _TITLE_OF_SUBJECT.get(subject, RUN_THIS)


def approve_label(subject: str) -> str:
    """Return the label of the button that approves something of this kind."""
    return _APPROVE_LABEL.get(subject, "Run")


def edit_form(subject: str) -> tuple[str, str, str]:
    """Return title, label and button of the form in which something of this kind is edited."""
    if subject == "note":
        return "Edit the note", "The note", approve_label(subject)
    return "Edit before running", "The code", "Run"


def note_too_long(characters: int, limit: int) -> str:
    return f"A note may have {limit:,} characters, and that has {characters:,}."


def code_asks(prompt: str) -> str:
    return f"Your code is asking: {prompt}" if prompt else "Your code is asking for input."


def code_asked(prompt: str) -> str:
    return f"Your code asked: {prompt}" if prompt else "Your code asked for input."


def answered_question(question: str, answer: str) -> str:
    """Return a question of the model with its answer, in a line."""
    return f"{question} → {answer}"


def all_code(reason: str, warning: str) -> str:
    """Return what goes with a file of code that waits for approval; the warning may be empty."""
    return f"{reason} All of the code: {warning}".rstrip()
