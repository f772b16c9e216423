"""Slash commands and panels beside a session: files, variables, limits, models, usage, help."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Sequence
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.platforms.web import event_json, validation
from interpreter_bot.sessions import approval_policy, requests, session_service

_log = logging.getLogger(__name__)

_COMMAND: Final = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?\Z", re.DOTALL)

HELP: Final = (
    ("/py CODE", "Run Python as it is, without a model; lines may follow. Or use the Python mode."),
    ("/files", "Show the files of this conversation."),
    ("/variables", "Show what Python has, and what is saved of it for the next one."),
    ("/limits", "Show what one conversation may use."),
    ("/network", "Show what code may reach outside."),
    ("/tools", "Show what code may call of other systems."),
    ("/connect NAME", "Log in at a server of tools, so that they are called as you."),
    ("/disconnect NAME", "Log out there: what the bot has of your account is deleted."),
    ("/model [NAME]", "Show the models, or choose one for this conversation."),
    ("/approval [never|plan|every]", "Show or choose whether you are asked before code runs."),
    ("/usage", "Show what was spent."),
    ("/stop", "Stop what runs; variables are kept."),
    ("/reset", "Start anew with a fresh Python; files are kept."),
    ("/fork", "Go on in a copy of this conversation: variables, files and history."),
    ("/undo", "Go back to before the last answer: variables, files and history."),
    ("/again", "Run the cells again that made variables which could not be kept."),
    ("/notebook", "Download the conversation as a notebook."),
    ("/help", "Show this."),
)
"""Every command, with what it does."""

_NAMES: Final = frozenset(command.split()[0].removeprefix("/") for command, _ in HELP)
NAMES: Final = frozenset(
    {"files", "variables", "limits", "network", "tools", "model", "approval", "usage", "help"}
    | {"connect", "disconnect"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command and its arguments, without the space around them."""

    name: str
    rest: str


def read(text: str, *, is_code: bool = False) -> SlashCommand | None:
    """Parse a command in letters of any case; None if the text is none.

    An unknown one is returned as it is, but words that merely begin with a capital are no typo, nor
    is code, in which IPython calls what stands behind a slash.
    """
    match = _COMMAND.match(text.strip("\n").rstrip())
    if match is None:
        return None
    name, rest = match[1].lower(), match[2] or ""
    if name not in _NAMES and (is_code or not match[1].islower()):
        return None
    return SlashCommand(name, rest if name == "py" else rest.strip())


def is_known(command: SlashCommand) -> bool:
    """Say whether a command exists, or is just a word after a slash."""
    return command.name in _NAMES


def model_title(words: str, titles: Sequence[str]) -> str:
    """Return the title that a person typed, or of which they typed a part that only it has.

    Raises:
        BotError: none is meant, or several; the sentence says which there are.
    """
    wanted = words.casefold()
    exact = [title for title in titles if title.casefold() == wanted]
    found = exact or [title for title in titles if wanted in title.casefold()]
    if len(found) == 1:
        return found[0]
    said = "; ".join(found or titles)
    if found:
        raise errors.BotError(f"Several models are called {words}: {said}.")
    raise errors.BotError(f"There is no model {words}. There are: {said or 'none'}.")


async def panel(
    service: session_service.SessionService,
    name: str,
    key: values.SessionKey,
    *,
    approval: requests.Approval = "never",
    argument: str = "",
) -> event_json.Event:
    """Return the content of a panel.

    Args:
        service: the conversations.
        name: of the panel.
        key: the session that it is beside.
        approval: what the page's own settings demand.
        argument: of its command.

    Raises:
        BotError: it cannot be had, or there is no such panel.
    """
    match name:
        case "files":
            return {
                "files": await files(service, key),
                "most_bytes": service.queries.limits.workspace_bytes,
                "thread": key.thread,
            }
        case "limits":
            return {
                "rows": session_facts.limits(service.queries.limits, service.queries.kernels),
                "is_sandboxed": service.queries.is_sandboxed,
            }
        case "network":
            return {"rows": session_facts.network(service.queries.reach(key))}
        case "tools":
            return {
                "rows": session_facts.tools(await service.queries.tools(key, validation.PERSON))
            }
        case "connect":
            return {"text": await service.logins.link(key, validation.PERSON, argument)}
        case "disconnect":
            return {"text": await service.logins.forget(key, validation.PERSON.id, argument)}
        case "variables":
            rows = session_facts.variables(await service.queries.variables(key))
            told = {"rows": rows, "lost_cells": await _lost_cells(service, key)}
            return told | await _described(service, key)
        case "model":
            return {"models": service.queries.models, "model": await service.queries.model(key)}
        case "approval":
            chosen = (await service.queries.choices(validation.HERE)).get(approval_policy.NAME)
            holds = await service.queries.approval(validation.HERE, approval)
            return {"chosen": approval_policy.strictest(chosen), "holds": holds}
        case "usage":
            return {
                "rows": session_facts.usage(await service.queries.usage(key, validation.PERSON))
            }
        case "help":
            return {"rows": HELP}
    raise errors.BotError("There is nothing of that name to show.")


async def _described(
    service: session_service.SessionService, key: values.SessionKey
) -> event_json.Event:
    """Describe the variables one by one, or say why that is not possible now."""
    try:
        found = await service.queries.described_variables(key)
    except errors.BotError as error:
        return {"variables": [], "problem": str(error)}
    uses = await service.queries.variable_uses(key, {one.name for one in found})
    described = [
        one.model_dump(mode="json")
        | {"uses": [dataclasses.asdict(use) for use in uses.get(one.name, ())]}
        for one in found
    ]
    return {"variables": described, "problem": ""}


async def _lost_cells(service: session_service.SessionService, key: values.SessionKey) -> int:
    """Count the cells that made what was not kept."""
    try:
        return len(await service.branches.lost_cells(key))
    except errors.BotError as error:
        _log.debug("no cells to run again: %s", error)
        return 0


async def files(
    service: session_service.SessionService, key: values.SessionKey
) -> list[event_json.Event]:
    """List the files of a session, the newest first."""
    found = sorted(
        await service.queries.files(key), key=lambda info: info.modified_ns, reverse=True
    )
    return [
        {
            "name": info.name,
            "size_bytes": info.size_bytes,
            "modified": info.modified_ns / 1e9,
        }
        for info in found
    ]
