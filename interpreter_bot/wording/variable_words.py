"""Variables: lost or restored with a new Python, and tables read from them."""

from __future__ import annotations

from typing import Final

RESTARTED: Final = "The bot was restarted."
STOPPED: Final = "Python had been stopped."
MACHINE_LOST: Final = "The machine that Python ran on cannot be reached."
FILES_LOST: Final = "Files of this conversation were on a machine that cannot be reached."
FILES_KEPT: Final = "Files in /mnt/data are kept."
NO_ROOM: Final = "All your Python sessions are busy. Try again when one is done or stopped."
STARTING: Final = "Python is still starting. Try again in a minute."
UNREADABLE_ANSWER: Final = "Python sent an unreadable answer about the table. Try again."
NOT_A_QUESTION: Final = "A table cannot be asked that."


def lost(names: str, reason: str, files: str) -> str:
    """Return that Python is new; the names may be empty."""
    listed = f" ({names})" if names else ""
    return (
        f"A new Python was started, without the variables of the earlier one{listed}. {reason} "
        f"{files}"
    )


def none_kept(exceptions: str) -> str:
    return f"None of your variables could be saved.{exceptions}"


def restored(count: str, since: str, exceptions: str) -> str:
    return f"Your variables are back{count}{since}.{exceptions}"


def table_unreadable(reason: str) -> str:
    return f"The table could not be read: {reason}"


def table_not_saved(reason: str) -> str:
    return f"The table could not be saved: {reason}"
