"""What is shown beside a conversation when somebody asks: files, limits, models, usage, help."""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.web import commands, events, measuring
from interpreter_bot.sessions import approvals, conversations, requests
from interpreter_bot.text import formatting

NAMES: Final = frozenset({"files", "limits", "model", "approval", "usage", "help"})

_LIMITS: Final = (
    ("execution_seconds", "Time for one piece of code", "It is stopped; variables are kept."),
    ("input_seconds", "Waiting for your answer", "The code is stopped."),
    (
        "memory_bytes",
        "Memory",
        "MemoryError; variables are kept. Where that does not stop it, Python is restarted.",
    ),
    ("cpu_cores", "Processor cores", "Code runs slower."),
    ("processes", "Processes and threads", "No further one starts."),
    ("upload_bytes", "A file you upload", "It is refused."),
    ("file_bytes", "A file that code writes", "Writing fails."),
    ("workspace_bytes", "All files together", "The code is stopped."),
    ("workspace_files", "Number of files", "The code is stopped."),
    ("output_bytes", "Printed text of one piece of code", "The rest is left out."),
    ("displays", "Pictures and tables of one piece of code", "Further ones are left out."),
)


async def panel(
    bot: conversations.Conversations,
    name: str,
    key: values.SessionKey,
    *,
    approval: requests.Approval = "never",
) -> events.Event:
    """Gather what a panel shows.

    Args:
        bot: who knows.
        name: of the panel.
        key: the conversation that it is beside.
        approval: what the page's own settings demand.

    Raises:
        BotError: it cannot be had, or there is no such panel.
    """
    match name:
        case "files":
            return {"files": await files(bot, key), "most_bytes": bot.limits.workspace_bytes}
        case "limits":
            return {"rows": limits(bot.limits), "is_sandboxed": bot.is_sandboxed}
        case "model":
            return {"models": bot.models, "model": await bot.model(key)}
        case "approval":
            chosen = (await bot.choices(measuring.HERE)).get(approvals.NAME)
            holds = await bot.approval(measuring.HERE, approval)
            return {"chosen": approvals.strictest(chosen), "holds": holds}
        case "usage":
            return await _usage(bot, key, measuring.PERSON)
        case "help":
            return {"rows": commands.HELP}
    raise errors.BotError("There is nothing of that name to show.")


async def files(bot: conversations.Conversations, key: values.SessionKey) -> list[events.Event]:
    """List the files of a conversation, the newest first."""
    found = sorted(await bot.files(key), key=lambda info: info.modified_ns, reverse=True)
    return [
        {"name": i.name, "size_bytes": i.size_bytes, "modified": i.modified_ns / 1e9} for i in found
    ]


def limits(in_force: settings.Limits) -> list[tuple[str, str, str]]:
    """Say each limit: its name, its value, what happens at it."""
    return [(words, _said(name, in_force), then) for name, words, then in _LIMITS]


def _said(name: str, in_force: settings.Limits) -> str:
    value = getattr(in_force, name)
    if name.endswith("_bytes"):
        return formatting.size(value)
    return formatting.duration(value) if name.endswith("_seconds") else f"{value:,g}"


async def _usage(
    bot: conversations.Conversations, key: values.SessionKey, person: requests.Person
) -> events.Event:
    used = await bot.usage(key, person)
    return {
        "conversation": events.spending(used.session),
        "today": events.spending(used.today),
        "allowed_money": str(used.allowed_money) if used.allowed_money is not None else None,
        "allowed_tokens": used.allowed_tokens,
        "cpu_seconds": used.cpu_seconds,
    }
