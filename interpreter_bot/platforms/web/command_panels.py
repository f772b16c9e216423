"""Panels of a session: what commands show, in more detail than in chats."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Mapping
from typing import Any

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.web import tab_contents
from interpreter_bot.sessions import approval_policy, session_service
from interpreter_bot.wording import page_words

_log = logging.getLogger(__name__)


def format_utc(seconds: float) -> str:
    """Write a time, in seconds since the epoch, so that the page can show it in local time."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


async def read_panel(
    place: command_types.Place,
    name: str,
    argument: str = "",
    fields: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the content of a panel, named as the command that shows it.

    `fields` has what the person entered into the panel's form; None shows the panel.

    Raises:
        BotError: there is no such panel, or its command fails.
    """
    service, key = place.service, place.key
    match name:
        case "files":
            return {
                "files": await list_files(service, key),
                "max_bytes": service.queries.limits.workspace_bytes,
            }
        case "model":
            return {
                "models": service.queries.models,
                "model": await service.queries.find_model_title(key),
            }
        case "approval":
            choices = await service.places.choices(place.scope)
            own_values = [
                choice.value
                for choice in choices.of(approval_policy.PREFERENCE_NAME)
                if not choice.is_fixed
            ]
            return {
                "chosen": approval_policy.strictest_approval(*own_values),
                "effective": approval_policy.effective_approval(choices, "never"),
            }
    command = command_table.commands_of("web").get(name)
    if command is None:
        raise errors.BotError(page_words.NO_PANEL)
    result = await command_table.run(command_types.Invocation(command, argument), place, fields)
    content: dict[str, Any]
    match result:
        case command_types.Sentence(text) | command_types.PrivateSentence(text):
            content = {"text": text}
        case command_types.FactList() | command_types.Help():
            content = {"rows": command_table.list_facts(result, "web")}
        case command_types.Form():
            content = {"form": dataclasses.asdict(result)}
        case _:
            raise errors.BotError(page_words.NO_PANEL)
    if name == "limits":
        content["sandbox_level"] = service.queries.sandbox_level
    elif name == "variables":
        content["lost_cells"] = await _count_lost_cells(service, key)
        content |= await _describe_variables(service, key)
    return content


async def _describe_variables(
    service: session_service.SessionService, key: values.SessionKey
) -> dict[str, Any]:
    """Describe the variables one by one, or say why that is not possible now."""
    try:
        variables = await service.queries.describe_variables(key)
    except errors.BotError as error:
        return {"variables": []} | tab_contents.describe_problem(error)
    uses = await service.queries.variable_uses(key, {variable.name for variable in variables})
    descriptions = [
        variable.model_dump(mode="json")
        | {"uses": [dataclasses.asdict(use) for use in uses.get(variable.name, ())]}
        for variable in variables
    ]
    return {"variables": descriptions, "problem": ""}


async def _count_lost_cells(service: session_service.SessionService, key: values.SessionKey) -> int:
    """Count the cells that defined the lost variables."""
    try:
        return len(await service.branches.find_lost_cells(key))
    except errors.BotError as error:
        _log.debug("no cells to run again: %s", error)
        return 0


async def list_files(
    service: session_service.SessionService, key: values.SessionKey
) -> list[dict[str, Any]]:
    """List the files of a session, the newest first."""
    infos = sorted(
        await service.queries.files(key), key=lambda info: info.modified_ns, reverse=True
    )
    return [
        {
            "name": info.name,
            "size_bytes": info.size_bytes,
            "modified": info.modified_ns / 1e9,
        }
        for info in infos
    ]
