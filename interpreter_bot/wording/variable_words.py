"""Variables: lost or restored with a new Python, and tables read from them."""

from __future__ import annotations

from typing import Final

BOT_RESTARTED: Final = "The bot was restarted."
PYTHON_STOPPED: Final = "Python had been stopped."
MACHINE_LOST: Final = "The machine that Python ran on cannot be reached."
FILES_LOST: Final = "Files of this conversation were on a machine that cannot be reached."
FILES_KEPT: Final = "Files in /mnt/data are kept."
USED_ELSEWHERE: Final = (
    "Another part of the bot is using this conversation's Python. Try again in a minute."
)
OLD_VARIABLES_PARTLY_SAVED: Final = (
    "Some variables of that time were not saved, so nothing was changed."
)
OLD_VARIABLES_GONE: Final = "The variables of that time are no longer kept, so nothing was changed."
SAVED_VARIABLES_UNREADABLE: Final = "Your saved variables cannot be read, so they were deleted."
NOT_READ_NOW: Final = "They cannot be read right now."
CRASHED_READING: Final = "Python crashed while it read them."
ALL_SESSIONS_BUSY: Final = (
    "All your Python sessions are busy. Try again when one is done or stopped."
)
PYTHON_STARTING: Final = "Python is still starting. Try again in a minute."
UNREADABLE_ANSWER: Final = "Python sent an unreadable answer about the table. Try again."
NOT_A_QUESTION: Final = "This is not a valid request for a table."


def variables_lost(names: str, reason: str, files: str) -> str:
    """Return that Python is new; the names may be empty."""
    names_clause = f" ({names})" if names else ""
    return (
        f"A new Python was started, without the variables of the earlier one{names_clause}. "
        f"{reason} {files}"
    )


def none_saved(exceptions: str) -> str:
    return f"None of your variables could be saved.{exceptions}"


def variables_restored(count: str, since: str, exceptions: str) -> str:
    return f"Your variables are back{count}{since}.{exceptions}"


def table_unreadable(reason: str) -> str:
    return f"The table could not be read: {reason}"


def table_not_saved(reason: str) -> str:
    return f"The table could not be saved: {reason}"


def new_python(reason: str) -> str:
    return f"A new Python was started, without the variables of the earlier one. {reason}"


def not_restored(reason: str) -> str:
    """Return that variables are not back for now; the reason may be empty."""
    return (
        f"Your saved variables could not be restored. {f'{reason} ' if reason else ''}They are "
        "kept for Python's next start; new variables are not saved until then."
    )


def partly_restored(names: str) -> str:
    return f"Some variables could not be restored: {names}."
