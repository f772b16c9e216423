"""Sentences for how an execution ended, what a turn waits for, what went wrong, and what became of
a conversation that is copied or an answer that is taken back.
"""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.sessions import forks_and_undo
from interpreter_bot.text import quantities

FAULT: Final = "Something went wrong inside the bot. The details are in its log."
SILENT: Final = "Done. No output."
_GENERAL: Final = {
    values.Ending.TIMED_OUT: "The code took too long and was stopped.",
    values.Ending.OUT_OF_MEMORY: "The code ran out of memory and was stopped.",
    values.Ending.CRASHED: "The Python process ended unexpectedly.",
    values.Ending.REFUSED: "The code was not run.",
    values.Ending.ERROR: "The code ended with an error.",
}
_LOST: Final = "Its variables are gone; files in /mnt/data are kept."
_KEPT: Final = "Variables are kept."
_INTERRUPTED: Final = frozenset({values.Ending.TIMED_OUT, values.Ending.STOPPED})

COPY: Final = (
    "This is a copy of another conversation, with its variables, files and history. Continue here."
)
COPIED: Final = "I copied this conversation to a new thread in this channel."
_TITLE_CHARACTERS: Final = 80
MIN_ELAPSED_SECONDS: Final = 5.0
"""Shorter waits are shown without a time."""


def ending_sentence(finished: values.Finished, *, has_shown: bool, has_error: bool = False) -> str:
    """Return the sentence for how an execution ended.

    Args:
        finished: the end.
        has_shown: something stands on the screen, or a file was made.
        has_error: a traceback is part of that.

    Returns:
        One or two sentences; empty where the screen says it all.
    """
    if finished.ending is values.Ending.OK:
        return finished.reason or ("" if has_shown else SILENT)
    if finished.ending is values.Ending.ERROR and has_error:
        return finished.reason
    if finished.ending is values.Ending.STOPPED and not finished.reason:
        # A person did it, and the end of the turn says so.
        return _LOST if finished.kernel_lost else ""
    text = finished.reason or _GENERAL[finished.ending]
    if finished.kernel_lost:
        # The reason already says so if the kernel died of it.
        return text if "variables are gone" in text else f"{text} {_LOST}"
    return f"{text} {_KEPT}" if finished.ending in _INTERRUPTED else text


def queued(ahead: int) -> str:
    """Return the sentence for a queue with so many requests ahead; empty for none."""
    return f"Queued: {quantities.count(ahead, 'request')} ahead" if ahead else ""


def elapsed(what: str, seconds: float, limit_seconds: float | None = None) -> str:
    """Return what is waited for and for how long already; at first only what it is.

    Args:
        what: such as "Running Python".
        seconds: since it began.
        limit_seconds: after which it is stopped, if it is.
    """
    if seconds < MIN_ELAPSED_SECONDS or not what:
        return what
    limit = "" if limit_seconds is None else f", {quantities.duration(limit_seconds)} at most"
    return f"{what} · {quantities.duration(round(seconds))}{limit}"


def waiting_sentence(text: str, share: float | None) -> str:
    """Return one line on what is waited for, and how far it is.

    Args:
        text: what it is; if empty, the result is empty.
        share: from 0 to 1; None if it is unknown.
    """
    return f"{share:.0%}: {text}" if text and share is not None else text


def error_sentence(error: Exception) -> str:
    """Return what people are told of an error: ours say it themselves, of others one sentence."""
    return str(error) if isinstance(error, errors.BotError) else FAULT


def undone(taken_back: forks_and_undo.Undone) -> str:
    """Return what is said once an answer was taken back."""
    request = quantities.one_line(taken_back.request, _TITLE_CHARACTERS)
    before = f"before “{request}”" if request else "before the last answer"
    if not taken_back.missed_runs:
        return f"Undone. Variables, files and history are back to {before}."
    missed = quantities.count(taken_back.missed_runs, "earlier run")
    return (
        f"Undone. Files and history are back to {before}. Variables were restored from the last "
        f"save, which misses {missed}."
    )
