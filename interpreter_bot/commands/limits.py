"""`interpreter-bot limits`: print what one session may use."""

from __future__ import annotations

import argparse
import json
import sys

import rich.box
import rich.console
import rich.table

from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import kernel_parameters
from interpreter_bot.text import quantities

_AT_THE_LIMIT = {
    "execution_seconds": "the code is interrupted; variables are kept where it reacts",
    "input_seconds": "code that waits for an answer is stopped",
    "memory_bytes": "MemoryError in the code; killed where that is not possible",
    "processes": "no further process or thread starts",
    "cpu_cores": "the code runs slower",
    "workspace_bytes": "the code is stopped",
    "workspace_files": "the code is stopped",
    "disk_reserve_bytes": "free space of the host's disk; below it the code is stopped",
    "bot_memory_bytes": "memory of the bot itself; above it the session that sends most is ended",
    "file_bytes": "OSError: file too large",
    "upload_bytes": "the file is refused",
    "temporary_bytes": "OSError: no space left, in /tmp",
    "output_bytes": "cut, and said so",
    "displays": "further ones are left out, and said so",
    "display_bytes": "left out, and said so",
    "open_files": "OSError: too many open files",
    "address_space_bytes": "MemoryError in the code",
}


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Print the limits in effect."""
    limits: dict[str, float] = config.limits.model_dump()
    limits["address_space_bytes"] = kernel_parameters.address_space_bytes(config.limits)
    if options.json:
        sys.stdout.write(json.dumps(limits) + "\n")
        return 0
    table = rich.table.Table("limit", "value", "what happens at it", box=rich.box.SIMPLE_HEAD)
    for name, value in limits.items():
        words = name.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")
        table.add_row(words, _said(name, value), _AT_THE_LIMIT[name])
    rich.console.Console(soft_wrap=True).print(table)
    return 0


def _said(name: str, value: float) -> str:
    if name.endswith("_seconds"):
        return quantities.duration(value)
    if not name.endswith("_bytes"):
        return f"{value:,g}"
    return quantities.size(value)
