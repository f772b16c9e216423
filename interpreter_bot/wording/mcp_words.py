"""MCP: what an agent that uses the sandbox is told, which its people read too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NO_SESSION: Final = "There is no such session. Leave the handle out to begin a new one."
TEXT_OR_BASE64: Final = "Give the content of the file either as text or as base64."
NOT_BASE64: Final = "The content is not valid Base64."
NO_FILES: Final = "There are no files in /mnt/data."
NO_OUTPUT: Final = "The code ran to its end and showed nothing."
VARIABLES_GONE: Final = "All variables are gone; files are kept."


def instructions(hosts: Sequence[str], seconds: str, memory: str) -> str:
    """Return what clients are told of all tools together."""
    network = (
        f" that reaches {', '.join(hosts)} by HTTP, and nothing else"
        if hosts
        else " without a network"
    )
    return (
        f"A sandboxed Python (IPython){network}. Variables and the files in /mnt/data, the working "
        "directory, stay from call to call of one session: pass its handle on. One call of "
        f"run_code has {seconds}, a session {memory} of memory. Show plots and tables as in a "
        "notebook; files that code writes to /mnt/data can be read with get_file."
    )


def no_tool(names: Iterable[str]) -> str:
    return f"There is no such tool; there are {', '.join(names)}."


def wrong_arguments(tool: str, faults: Iterable[str]) -> str:
    return f"The arguments of {tool} are wrong. {'; '.join(faults)}."


def queued_behind(requests: str) -> str:
    return f"Waiting behind {requests}."


def file_stored(name: str, handle: str) -> str:
    return f"Stored as /mnt/data/{name}.\n[session: {handle}]"


def reset_done(*, files: bool) -> str:
    return f"Reset. Variables are cleared, files are {'deleted' if files else 'kept'}."


def files_made(names: Sequence[str], hidden_count: int) -> str:
    suffix = f", and {hidden_count:,} more" if hidden_count else ""
    return f"Files made or changed: {', '.join(names)}{suffix}"


def more_files(count: int) -> str:
    return f"and {count:,} more; list them in code"


def how_to_continue(size_bytes: int, end: int) -> str:
    return f"{size_bytes:,} bytes in all; to continue, use start={end}"


def not_sent(name: str, size: str, advice: str) -> str:
    return f"{name} ({size}) is not sent: {advice}. Save it to /mnt/data and use get_file."


def code_ended(ending: str) -> str:
    return f"The code ended: {ending}."


def session_line(handle: str) -> str:
    return f"session: {handle}"
