"""A conversation and its Python: reset, undone, copied, continued, ended, deleted."""

from __future__ import annotations

from typing import Final

from interpreter_bot.text import quantities

_TITLE_CHARACTERS: Final = 80
COPY: Final = (
    "This is a copy of another conversation, with its variables, files and history. Continue here."
)
COPIED: Final = "I copied this conversation to a new thread in this channel."


def undone(request: str, missed_runs: int) -> str:
    """Return that an answer was taken back.

    Args:
        request: what was asked; may be empty.
        missed_runs: runs before it that the restored variables know nothing of.
    """
    title = quantities.one_line(request, _TITLE_CHARACTERS)
    before = f"before “{title}”" if title else "before the last answer"
    if not missed_runs:
        return f"Undone. Variables, files and history are back to {before}."
    return (
        f"Undone. Files and history are back to {before}. Variables were restored from the last "
        f"save, which misses {quantities.count(missed_runs, 'earlier run')}."
    )
