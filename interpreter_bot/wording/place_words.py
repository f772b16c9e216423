"""Places: what holds in a channel or server, and what is remembered there."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

PLACE_TITLE: Final = "What applies here"
FORM_TITLES: Final = ("What applies here", "What applies everywhere")
"""Of the form of a channel, and of a whole server."""
FIELD_LABELS: Final = {
    "instructions": "Instructions for the model",
    "approval": "Ask a person before code runs",
    "model": "Model",
    "threads": "A mention opens a thread",
    "follow_threads": "Answer in my threads without a mention",
    "show_code": "Code stays visible after it has run",
}
"""Of what can be chosen, by its name."""
NO_INSTRUCTIONS: Final = "none"
BY_DEFAULT: Final = "default"
NOTES_LABEL: Final = "notes"
PACKAGES_LABEL: Final = "packages"
NETWORK_LABEL: Final = "network"
DATA_LABEL: Final = "data"
SKILLS_LABEL: Final = "skills"
TOOLS_LABEL: Final = "tools"
DAILY_ALLOWANCE_LABEL: Final = "each person, a day"
FIXED_BY_OPERATOR: Final = (
    "Whoever runs this bot has set that for this place, so it can't be changed here."
)
NOTHING_CHANGED: Final = "Nothing was changed."
FORM_BY_COMMAND: Final = "A message can't open a form. Use `/interpreter` for that."
_SCOPE_PHRASES: Final = {
    "thread": "for this thread",
    "channel": "for this channel",
    "server": "for the whole server",
    "platform": "for everybody",
}

MEMORY_TITLE: Final = "What I remember here"
NEW_NOTE_TITLE: Final = "A new note"
EDIT_NOTE_TITLE: Final = "Change a note"
NOTE_FIELD: Final = "note"
NOTE_LABEL: Final = "What I should remember"
NOTHING_REMEMBERED: Final = "I remember nothing here. “memory add” opens a form for a note."
MEMORY_OFF: Final = "My memory is switched off."
MEMORY_USAGE: Final = (
    "Write memory, memory add, memory edit 3, memory forget 3 or memory forget all, with the "
    "number of a note."
)
REMEMBERED: Final = "I'll remember that here."
NOTE_CHANGED: Final = "The note is changed."
FORGOTTEN: Final = "Forgotten."
ALL_FORGOTTEN: Final = "I have forgotten all notes of this place."
NOTE_EMPTY: Final = "A note needs some text."
CHANGED_MEANWHILE: Final = "Somebody has just changed or deleted that note."
NOT_YOUR_NOTE: Final = "Only the person who confirmed this note and administrators can do that."
FOR_WHOLE_SERVER: Final = "for the whole server"


def confirmed_by_admin(name: str) -> str:
    """Name who confirmed a note that a model proposed to somebody else."""
    return f"an administrator, for {name}"


def no_note(number: str) -> str:
    return f"There is no note {quantities.one_line(number, 20)} here."


def note_too_long(characters: int, limit: int) -> str:
    return f"That has {characters:,} characters, and the limit is {limit:,}. Please shorten it."


def memory_full(limit: int) -> str:
    return f"I remember {quantities.count(limit, 'note')} here already. Forget one first."


def notes_not_told(count: int) -> str:
    return f"the model is not told {quantities.count(count, 'older note')}, for lack of room"


def choice_origin(kind: str, author: str, *, is_fixed: bool) -> str:
    """Return who chose something, and for whom: a person, a channel, a server or a platform."""
    if kind == "person":
        return "set by you"
    chooser = "whoever runs this bot" if is_fixed else author
    return f"set {_SCOPE_PHRASES[kind]} by {chooser}" if chooser else f"set {_SCOPE_PHRASES[kind]}"


def choices_saved(names: str) -> str:
    return f"Saved: {names}."
