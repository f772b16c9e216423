"""What a person types after a slash. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors

_COMMAND: Final = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?\Z", re.DOTALL)

HELP: Final = (
    ("/py CODE", "Run Python as it is, without a model; lines may follow. Or use the Python mode."),
    ("/files", "Show the files of this conversation."),
    ("/limits", "Show what one conversation may use."),
    ("/model [NAME]", "Show the models, or choose one for this conversation."),
    ("/approval [never|plan|every]", "Show or choose whether you are asked before code runs."),
    ("/usage", "Show what was spent."),
    ("/stop", "Stop what runs; variables are kept."),
    ("/reset", "Start anew with a fresh Python; files are kept."),
    ("/notebook", "Download the conversation as a notebook."),
    ("/help", "Show this."),
)
"""Every command, with what it does."""

_NAMES: Final = frozenset(
    {"py", "files", "limits", "model", "approval", "usage", "stop", "reset", "notebook", "help"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command and what was written after it, without the space around it."""

    name: str
    rest: str


def read(text: str) -> Command | None:
    """Read a command in letters of any case; None where the text is none.

    One that is unknown is given as it is, but words that merely begin with a capital are no typo.
    """
    match = _COMMAND.match(text.strip("\n").rstrip())
    if match is None:
        return None
    name, rest = match[1].lower(), match[2] or ""
    if name not in _NAMES and not match[1].islower():
        return None
    return Command(name, rest if name == "py" else rest.strip())


def is_known(command: Command) -> bool:
    """Tell a command of ours from a word after a slash."""
    return command.name in _NAMES


def meant(words: str, titles: Sequence[str]) -> str:
    """Return the title that somebody means who typed it, or a part that only it has.

    Raises:
        BotError: none is meant, or several; the sentence says which there are.
    """
    wanted = words.casefold()
    exact = [title for title in titles if title.casefold() == wanted]
    found = exact or [title for title in titles if wanted in title.casefold()]
    if len(found) == 1:
        return found[0]
    said = "; ".join(found or titles)
    if found:
        raise errors.BotError(f"Several models are called {words}: {said}.")
    raise errors.BotError(f"There is no model {words}. There are: {said or 'none'}.")
