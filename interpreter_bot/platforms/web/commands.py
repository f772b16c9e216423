"""What a person types after a slash. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

_COMMAND: Final = re.compile(r"/([a-z]+)(?:\s+(.*))?\Z", re.DOTALL)

HELP: Final = (
    ("/py CODE", "Run Python as it is, without a model; lines may follow. Or use the Python mode."),
    ("/files", "Show the files of this conversation."),
    ("/limits", "Show what one conversation may use."),
    ("/model [NAME]", "Show the models, or choose one for this conversation."),
    ("/usage", "Show what was spent."),
    ("/stop", "Stop what runs; variables are kept."),
    ("/reset", "Start anew with a fresh Python; files are kept."),
    ("/notebook", "Download the conversation as a notebook."),
    ("/help", "Show this."),
)
"""Every command, with what it does."""

_NAMES: Final = frozenset(
    {"py", "files", "limits", "model", "usage", "stop", "reset", "notebook", "help"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command and what was written after it, without the space around it."""

    name: str
    rest: str


def read(text: str) -> Command | None:
    """Read a command; None where the text is none. One that is unknown is given as it is."""
    match = _COMMAND.match(text.strip("\n").rstrip())
    if match is None:
        return None
    rest = match[2] or ""
    return Command(match[1], rest if match[1] == "py" else rest.strip())


def is_known(command: Command) -> bool:
    """Tell a command of ours from a word after a slash."""
    return command.name in _NAMES
