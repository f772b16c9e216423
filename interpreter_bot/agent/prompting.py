"""The texts in `prompts/`, filled in."""

from __future__ import annotations

import datetime
import functools
from importlib import resources

from interpreter_bot import settings

NO_NETWORK = "There is no network: nothing can be downloaded or installed."


@functools.cache
def read(name: str) -> str:
    """Return one of the texts as it stands."""
    file = resources.files("interpreter_bot.agent").joinpath("prompts", f"{name}.txt")
    return file.read_text("utf-8").strip()


def system(
    limits: settings.Limits, *, today: datetime.date, network: str = NO_NETWORK, note: str = ""
) -> str:
    """Write the system prompt.

    Args:
        limits: what code may use.
        today: the date; last, because what changes last costs a server's prompt cache least.
        network: a sentence about what can be reached.
        note: what the operator wants to add.
    """
    text = read("system").format(
        seconds=f"{limits.execution_seconds:,.0f}",
        memory=sized(limits.memory_bytes),
        workspace=sized(limits.workspace_bytes),
        output=sized(limits.output_bytes),
        network=network,
    )
    return "\n\n".join(filter(None, (text, note, f"Today is {today:%A, %d %B %Y}.")))


def sized(count: int) -> str:
    """Say a number of bytes in the unit people use for it."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
