"""Running code: what it waits for, how it ended, and why the bot stopped it."""

from __future__ import annotations

import os
import signal
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.text import quantities

BOT_FAULT: Final = "Something went wrong inside the bot. The details are in its log."
NO_OUTPUT: Final = "Done. No output."
NOTHING_RUNS: Final = "Nothing is running."
_SENTENCE_OF_ENDING: Final = {
    values.Ending.TIMED_OUT: "The code took too long and was stopped.",
    values.Ending.OUT_OF_MEMORY: "The code ran out of memory and was stopped.",
    values.Ending.CRASHED: "The Python process ended unexpectedly.",
    values.Ending.REFUSED: "The code was not run.",
    values.Ending.ERROR: "The code ended with an error.",
}
_VARIABLES_LOST: Final = "Its variables are gone; files in /mnt/data are kept."
_VARIABLES_KEPT: Final = "Variables are kept."
_INTERRUPTED: Final = frozenset({values.Ending.TIMED_OUT, values.Ending.STOPPED})

STOPPED_FOR_OWN: Final = (
    "Python was stopped for another conversation of the person who used it last."
)
STOPPED_FOR_OTHERS: Final = "Python was stopped to make room for others."
STOPPED_WHEN_IDLE: Final = "Python was stopped because nobody had used it for a while."
SESSION_ENDED: Final = "The session was ended."
SAVING_FIRST: Final = "Saving the variables of an idle conversation first."
ALL_KERNELS_USED: Final = "Python is busy everywhere. Yours starts when there is room."
DISK_FULL_FOR_VARIABLES: Final = (
    "The machine's disk is full, so variables could not be saved. If Python ends now, the last "
    "save comes back."
)
UNSANDBOXED_WARNING: Final = "UNSANDBOXED: this code runs with the bot's own rights on its machine."
RUN_CUT_SHORT: Final = "Stopped."
CELL_CUT_SHORT: Final = "The run ended before this cell was done."
EXECUTION_ABANDONED: Final = "The execution was abandoned."
CODE_NOT_RUN: Final = "The Python process reports that it did not run the code."
OUTPUT_LOST: Final = "Some of the output was lost on the way."
OUTPUT_TOO_COMPLEX: Final = (
    "Part of the output was left out, because it had too many or too long values."
)
OUTPUT_CUT: Final = "This is too much output to show all of it. Its end comes when the code ends."
MALFORMED_MESSAGES: Final = "The Python process sent messages that make no sense."
CONNECTIONS_BROKEN: Final = "The Python process broke its connections."
TOO_MANY_MESSAGES: Final = "The Python process sent more messages than anyone could read."
TOO_MANY_QUESTIONS: Final = "The code asked for input more often than anyone would answer."
DISK_FULL: Final = "The machine's disk is nearly full, so the code was stopped."
MEMORY_SHORT: Final = (
    "The machine was running out of memory, and this code used most of it, so it was stopped."
)
TOO_MUCH_SENT: Final = "The Python process sent more output than the bot can hold."
FOLDERS_UNCOUNTABLE: Final = (
    "The code made folders in /mnt/data that are nested too deeply or that the bot cannot open. "
    "Delete them to continue."
)
SAVED_FOLDER_FULL: Final = "The code filled the folder that is reserved for saved variables."
TOO_MANY_PROCESS_SESSIONS: Final = (
    "The code started too many process sessions (setsid), which take processor time from other "
    "people."
)
NOT_STOPPING: Final = "The code did not stop when it was asked to."
VARIABLES_LOST: Final = (
    "Its variables are gone, except those saved earlier; files in /mnt/data are kept."
)

MIN_ELAPSED_SECONDS: Final = 5.0
"""Shorter waits are shown without a time."""


def ending_sentence(finished: values.Finished, *, has_shown: bool, has_error: bool = False) -> str:
    """Return the sentence for how an execution ended.

    Args:
        finished: the end.
        has_shown: output is on the screen, or a file was made.
        has_error: a traceback is part of the output.

    Returns:
        One or two sentences; empty if the output says it all.
    """
    if finished.ending is values.Ending.BACKGROUND:
        # A notice says so.
        return ""
    if finished.ending is values.Ending.OK:
        return finished.reason or ("" if has_shown else NO_OUTPUT)
    if finished.ending is values.Ending.ERROR and has_error:
        return finished.reason
    if finished.ending is values.Ending.STOPPED and not finished.reason:
        # A person did it, and the end of the turn says so.
        return _VARIABLES_LOST if finished.kernel_lost else ""
    text = finished.reason or _SENTENCE_OF_ENDING[finished.ending]
    if finished.kernel_lost:
        # If the kernel died of it, the reason already says so.
        return text if "variables are gone" in text else f"{text} {_VARIABLES_LOST}"
    return f"{text} {_VARIABLES_KEPT}" if finished.ending in _INTERRUPTED else text


def queued(ahead: int) -> str:
    """Return the sentence for a queue with so many requests ahead; empty for none."""
    return f"Queued: {quantities.count(ahead, 'request')} ahead" if ahead else ""


def waiting_sentence(text: str, share: float | None) -> str:
    """Return a line on what the turn waits for, and how far that is.

    Args:
        text: what it is; if empty, the result is empty.
        share: from 0 to 1; None if it is unknown.
    """
    return f"{share:.0%}: {text}" if text and share is not None else text


def error_sentence(error: Exception) -> str:
    """Return the sentence of one of our errors; for any other error, that something went wrong."""
    return str(error) if isinstance(error, errors.BotError) else BOT_FAULT


def out_of_memory(limit_bytes: int) -> str:
    return f"The code used more than its {quantities.size(limit_bytes)} of memory and was killed."


def partly_out_of_memory(limit_bytes: int) -> str:
    size = quantities.size(limit_bytes)
    return f"A process of the code was killed: all together used more than {size}."


def over_memory(limit_bytes: int) -> str:
    return f"The code used more than its {quantities.size(limit_bytes)} of memory."


def crash_sentence(status: int | None) -> str:
    """Return why a kernel ended by itself, from its wait status; None if that is unknown."""
    if status is None:
        return _SENTENCE_OF_ENDING[values.Ending.CRASHED]
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"The code ended its own Python process (exit code {code})."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL":
        return "The Python process was killed."
    words = {"SIGSEGV": "segmentation fault", "SIGABRT": "abort"}
    return f"The Python process crashed ({words.get(name, name)})."


def too_many_processes(limits: settings.Limits) -> str:
    return f"The code started more than its {limits.processes:,} processes and threads."


def workspace_full(limits: settings.Limits) -> str:
    size = quantities.size(limits.workspace_bytes)
    return (
        f"The code filled /mnt/data beyond {size} or {limits.workspace_files:,} files. "
        "Delete files there to continue."
    )


def temporary_full(limits: settings.Limits) -> str:
    size = quantities.size(limits.temporary_bytes)
    return f"The code wrote more than {size} of temporary files. Delete some to continue."


def stopped_after(seconds: float) -> str:
    return f"The code was stopped after {quantities.duration(seconds)}."


def starting_python(ahead: int) -> str:
    return f"Starting Python: {ahead} ahead of you."


def too_many_sessions(limit: int) -> str:
    return (
        f"Python runs in {limit} of your conversations, the most that one person may have at a "
        "time. This one starts when one of them is done or stopped."
    )


def output_too_large(limit_mib: int) -> str:
    return f"Part of the output was left out, because it had more than {limit_mib} MiB."


def output_cut(characters: int) -> str:
    return f"{characters:,} characters are left out here."


def output_ended(limit_bytes: int) -> str:
    return f"The output was cut after {limit_bytes:,} bytes; the rest is not shown."


def too_many_displays(limit: int) -> str:
    return f"Only {limit:,} pictures and tables of one piece of code are shown; there were more."


def display_too_large(size: str, kind: str) -> str:
    return f"Too large to be shown: {size} ({kind})."
