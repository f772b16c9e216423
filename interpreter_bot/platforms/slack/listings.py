"""Files, sizes and limits in words, as Markdown. Pure."""

from __future__ import annotations

from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.platforms.slack import markdown

_MIB: Final = 1024 * 1024


def files(found: tuple[values.FileInfo, ...]) -> str:
    """List files."""
    if not found:
        return "There are no files here."
    lines = [f"- `{info.name.replace('`', '')}` ({size(info.size_bytes)})" for info in found[:100]]
    more = [f"… and {len(found) - 100:,} more"] if len(found) > 100 else []
    return markdown.defused("\n".join([*lines, *more]))


def size(size_bytes: int) -> str:
    """Say a size for people."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    kib = size_bytes / 1024
    return f"{kib:,.1f} KiB" if kib < 1024 else f"{kib / 1024:,.1f} MiB"


def limits(given: settings.Limits) -> str:
    """Say what code may use."""
    return (
        f"- {given.execution_seconds:,.0f} s for one run, {given.input_seconds:,.0f} s to answer "
        f"`input()`\n"
        f"- {given.memory_bytes / _MIB:,.0f} MiB of memory, {given.cpu_cores:g} cores, "
        f"{given.processes} processes\n"
        f"- {given.workspace_bytes / _MIB:,.0f} MiB and {given.workspace_files:,} files in "
        f"`/mnt/data`\n"
        f"- {given.upload_bytes / _MIB:,.0f} MiB for a file that you send\n"
        f"- {given.displays} images and tables, {given.output_bytes:,} bytes of print-out a run"
    )
