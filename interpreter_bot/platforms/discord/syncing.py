"""Telling Discord of our commands, only when they have changed: it allows few such calls a day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import discord
from discord import app_commands

from interpreter_bot.platforms.discord import faults

_log = logging.getLogger(__name__)

# What Discord adds by itself, or derives from something else.
_OTHERS: Final = frozenset(
    {
        *("id", "application_id", "version", "guild_id", "dm_permission", "handler"),
        *("name_localizations", "description_localizations", "name_localized"),
        *("description_localized", "default_permission"),
    }
)


async def sync_or_go_without(client: discord.Client, tree: app_commands.CommandTree[Any]) -> None:
    """Bring Discord's list of commands to ours; where it does not take it, go on with the old."""
    try:
        while True:
            try:
                await sync(client, tree)
            except discord.RateLimited as error:
                _log.warning("commands may not be changed for %.0f s", error.retry_after)
                await asyncio.sleep(error.retry_after)
            else:
                return
    except faults.ANY as error:
        _log.error("Discord did not take the list of commands: %s", error)
    except app_commands.AppCommandError:
        _log.exception("the list of commands could not be brought up to date")


async def sync(client: discord.Client, tree: app_commands.CommandTree[Any]) -> bool:
    """Bring Discord's list of commands to ours; says whether that took a change.

    Raises:
        HTTPException: Discord refused it.
    """
    number = client.application_id
    if number is None:
        raise app_commands.MissingApplicationID
    known = await client.http.get_global_commands(number)
    ours = [command.to_dict(tree) for command in tree.get_commands()]
    ours += (
        [menu.to_dict(tree) for menu in tree.get_commands(type=discord.AppCommandType.message)]
        if not _has_menus(ours)
        else []
    )
    if _plain(known) == _plain(ours):
        return False
    await tree.sync()
    _log.info("the list of commands was brought up to date")
    return True


def _has_menus(commands: Iterable[Mapping[str, Any]]) -> bool:
    return any(command.get("type") == discord.AppCommandType.message.value for command in commands)


def _plain(commands: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str], Any]:
    """Reduce commands to what we say about them, whichever defaults are spelt out."""
    return {(command.get("type", 1), command["name"]): _kept(command) for command in commands}


def _kept(told: Any) -> Any:  # noqa: ANN401
    if isinstance(told, Mapping):
        return {
            key: sorted(value) if key in ("contexts", "integration_types") else _kept(value)
            for key, value in told.items()
            if key not in _OTHERS and value not in (None, False, "", [], {})
        }
    if isinstance(told, list):
        return [_kept(value) for value in told]
    return told
