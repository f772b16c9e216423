"""Texts about the bot: limits, files, usage, help. Pure."""

from __future__ import annotations

import datetime
from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.platforms.discord import markdown
from interpreter_bot.sessions import histories
from interpreter_bot.text import quantities

_MOST_FILES: Final = 40

HELP: Final = """\
**I run Python** in a sandbox with the usual data libraries, and keep its variables and files for \
as long as a conversation lasts.
• Mention me in a channel: I open a thread, and the thread is the conversation.
• Write to me directly, with files if you like.
• `/py code:` runs code as it is; `/py` alone opens an editor and takes files.
• On any message: Apps → *Run this message* or *Ask about this message*.
• Edit your message, and it is run again.
• `/interpreter` has: reset, files, limits, model, notebook, usage, settings."""


def limits(of: settings.Limits, *, is_sandboxed: bool, file_bytes: int) -> str:
    """Format the limits of code."""
    size = quantities.size
    lines = [
        "**What your code may use**",
        f"• time: {quantities.duration(of.execution_seconds)} for each run, printing does not "
        "extend it",
        f"• memory: {size(of.memory_bytes)}, processor cores: {of.cpu_cores:g}, "
        f"processes: {of.processes}",
        f"• files: {size(of.workspace_bytes)} and {of.workspace_files:,} files in /mnt/data",
        f"• a file you send: {size(of.upload_bytes)}; a file I send here: {size(file_bytes)}",
        f"• printed text: {size(of.output_bytes)}, displays: {of.displays} for each run",
        "• network: none" if is_sandboxed else "• ⚠️ **there is no sandbox**",
    ]
    return "\n".join(lines)


def files(of: tuple[values.FileInfo, ...]) -> str:
    """Format the list of a session's files."""
    if not of:
        return "There are no files in /mnt/data."
    lines = ["**Files in /mnt/data**"]
    for info in of[:_MOST_FILES]:
        when = datetime.datetime.fromtimestamp(info.modified_ns // 10**9, tz=datetime.UTC)
        lines.append(
            f"• {markdown.line(info.name, 80)} {quantities.size(info.size_bytes)}, "
            f"<t:{int(when.timestamp())}:R>"
        )
    if len(of) > _MOST_FILES:
        lines.append(f"… and {len(of) - _MOST_FILES:,} more.")
    return "\n".join(lines)


def usage(of: histories.UsageSummary) -> str:
    """Format the usage."""
    took = quantities.duration(of.session.cpu_seconds)
    lines = [
        f"**This conversation**: {_spent(of.session)}, {took} of processor time",
        f"**You, today**: {_spent(of.today)}",
    ]
    if of.allowed_tokens is not None:
        lines.append(f"Allowed a day: {of.allowed_tokens:,} tokens")
    if of.allowed_money is not None:
        lines.append(f"Allowed a day: {of.allowed_money:,.2f}")
    return "\n".join(lines)


def _spent(spent: values.Usage) -> str:
    about = "about " if spent.is_estimated else ""
    tokens = spent.input_tokens + spent.output_tokens
    money = f", {spent.money:,.4f}" if spent.money else ""
    return f"{about}{tokens:,} tokens{money}"
