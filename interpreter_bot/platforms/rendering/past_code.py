"""Code that an answer ran, for whoever asks to see all of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import errors
from interpreter_bot.sessions import past_turns

BUTTON: Final = "Show code"
TOO_LONG_AGO: Final = "That answer is too long ago."
ABOUT: Final = "All code of that answer:"
FILE_NAME: Final = "code.py"


def turn_of(past: Iterable[past_turns.PastTurn], turn_id: str) -> past_turns.PastTurn:
    """Return a turn of a session.

    Raises:
        BotError: it is not among the latest.
    """
    for turn in past:
        if str(turn.id) == turn_id:
            return turn
    raise errors.BotError(TOO_LONG_AGO)


def cells(turn: past_turns.PastTurn) -> Sequence[str]:
    """Return the code of each cell that a turn ran.

    Raises:
        BotError: it ran none.
    """
    codes = [part.code for part in turn.parts if isinstance(part, past_turns.PastCode)]
    if not codes:
        raise errors.BotError(TOO_LONG_AGO)
    return codes


def script(codes: Sequence[str]) -> bytes:
    """Join cells to the content of one file; a single cell is all of it, as it ran."""
    text = codes[0] if len(codes) == 1 else "\n\n".join(f"# %%\n{code}" for code in codes)
    return text.encode("utf-8", "replace")
