"""Facts about a session: its limits, and what code may reach, each with a note."""

from __future__ import annotations

from typing import Final

LIMITS_OF_CODE: Final = {
    "execution_seconds": ("Time for one piece of code", "The code is stopped; variables are kept."),
    "input_seconds": ("Waiting for your answer", "The code is stopped."),
    "memory_bytes": (
        "Memory",
        "MemoryError; variables are kept. If the code continues, Python is restarted.",
    ),
    "cpu_cores": ("Processor cores", "Code runs slower."),
    "processes": ("Processes and threads", "New ones fail to start."),
    "upload_bytes": ("A file you upload", "It is refused."),
    "file_bytes": ("A file that code writes", "Writing fails."),
    "workspace_bytes": ("All files in /mnt/data", "The code is stopped."),
    "workspace_files": ("Number of files", "The code is stopped."),
    "output_bytes": ("Printed text of one piece of code", "The rest is left out."),
    "displays": ("Pictures and tables of one piece of code", "More are left out."),
}
"""By setting: its label, and what happens at the limit."""
LIMITS_OF_HOST: Final = {
    "temporary_bytes": ("Files in /tmp", "OSError: no space left."),
    "address_space_bytes": ("Address space", "MemoryError."),
    "disk_reserve_bytes": (
        "Free space of the host's disk",
        "If less is free, the code is stopped.",
    ),
    "memory_reserve_bytes": (
        "Available memory of the host",
        "If less is available, the session that uses most is ended.",
    ),
}
"""The same, for the operator only."""
SESSION_LIMIT_LABEL: Final = "Your conversations with Python running"
SESSION_LIMIT_NOTE: Final = (
    "If you start more, the one that was idle longest is saved, and its variables come back when "
    "you use it again. If all are busy, the next one waits."
)
NO_SANDBOX_FACT: Final = ("⚠️ Sandbox", "none", "Code can do whatever the bot can.")
CONTAINER_FACT: Final = (
    "Writing to /tmp, opening ports",
    "not available",
    "Temporary files go where Python's tempfile module puts them.",
)
REBUILD_FACT: Final = ("If variables are lost", "“again” re-runs the cells that made them")
ASK_FOR_HOSTS: Final = "Ask whoever runs this bot to allow hosts."
CREDENTIALS_ADDED: Final = "The bot adds the credentials; code does not see them."
ASK_FOR_SERVERS: Final = "Ask whoever runs this bot to add tool servers."
ASK_TO_ACCEPT: Final = "Ask whoever runs this bot to accept them."


def own_account(command: str, server: str) -> str:
    return f"With your own account. To change that, use {command} {server}."
