"""Files, sizes and limits in words, as Markdown. Pure."""

from __future__ import annotations

from interpreter_bot import settings, values
from interpreter_bot.platforms.slack import markdown
from interpreter_bot.text import formatting


def files(found: tuple[values.FileInfo, ...]) -> str:
    """List files."""
    if not found:
        return "There are no files here."
    lines = [
        f"- `{info.name.replace('`', '')}` ({formatting.size(info.size_bytes)})"
        for info in found[:100]
    ]
    more = [f"… and {len(found) - 100:,} more"] if len(found) > 100 else []
    return markdown.defused("\n".join([*lines, *more]))


def limits(given: settings.Limits) -> str:
    """Say what code may use."""
    size, duration = formatting.size, formatting.duration
    return (
        f"- {duration(given.execution_seconds)} for one run, {duration(given.input_seconds)} to "
        f"answer `input()`\n"
        f"- {size(given.memory_bytes)} of memory, {given.cpu_cores:g} cores, "
        f"{given.processes} processes\n"
        f"- {size(given.workspace_bytes)} and {given.workspace_files:,} files in `/mnt/data`\n"
        f"- {size(given.upload_bytes)} for a file that you send\n"
        f"- {given.displays} images and tables, {size(given.output_bytes)} of print-out a run"
    )
