"""Why a kernel, or some of its processes, were ended, in sentences for people. Pure."""

from __future__ import annotations

import os
import signal

from interpreter_bot import settings
from interpreter_bot.text import quantities

DISK_FULL = "The disk of the machine is nearly full, so the code was stopped."
MEMORY_SHORT = (
    "The memory of the machine was nearly used up, most of it by this code, so it was stopped."
)
TOO_MANY_LOCKS = "The code locked files in too many places at once, so it was stopped."
TOO_MUCH_SENT = "The Python process sent more than the bot could hold."
HIDING = (
    "The code was stopped because the bot could not see how much memory and disk it uses: one of "
    "its processes hides, or it has too many processes, open files, mappings or sockets."
)
UNCOUNTABLE = (
    "The code made folders in /mnt/data that cannot be counted: they are nested too deeply, or "
    "closed to the bot. Delete them to go on."
)
OVER_SAVED = (
    "The code filled the directory in which variables are saved, which is for nothing else."
)
RESTLESS = "Its code kept itself running in the background, so it was stopped."
GRABBING = (
    "The code started too many programs in sessions of their own, each of which would get as much "
    "of the processor as all that somebody else runs."
)
DEAF = "The code did not react when it was stopped."
LOST = "Its variables are gone, but for those saved before; files in /mnt/data are kept."


def out_of_memory(limit_bytes: int) -> str:
    """Sentence: the session used more memory than allowed, and was killed."""
    size = quantities.size(limit_bytes)
    return f"The code used more memory than the {size} it may have, and was killed."


def partly_out_of_memory(limit_bytes: int) -> str:
    """Sentence: a process other than the kernel's was killed for memory."""
    size = quantities.size(limit_bytes)
    return f"A process that the code started was killed: together they used more than {size}."


def crash(status: int | None) -> str:
    """Sentence: the kernel ended by itself.

    Args:
        status: its wait status; None if unknown.
    """
    if status is None:
        return "The Python process ended unexpectedly."
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"The code ended its own Python process (exit code {code})."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    words = {"SIGSEGV": "a segmentation fault", "SIGABRT": "an abort", "SIGKILL": "a kill"}
    return f"The Python process died of {words.get(name, name)}."


def over_memory(limit_bytes: int) -> str:
    """Sentence: the bot ends the kernel for its memory."""
    return f"The code used more memory than the {quantities.size(limit_bytes)} it may have."


def too_many_processes(limits: settings.Limits) -> str:
    """Sentence: the session has more processes and threads than it may have."""
    return f"The code started more than the {limits.processes:,} processes and threads it may have."


def workspace_full(limits: settings.Limits) -> str:
    """Sentence: /mnt/data grew over its limits."""
    size = quantities.size(limits.workspace_bytes)
    return (
        f"The code filled /mnt/data beyond its {size} or {limits.workspace_files:,} files. "
        "Delete files there to go on."
    )


def temporary_full(limits: settings.Limits) -> str:
    """Sentence: its temporary files grew over their limits."""
    size = quantities.size(limits.temporary_bytes)
    return f"The code wrote more than {size} of temporary files. Delete some to go on."
