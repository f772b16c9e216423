"""Data connections on trial: whether each is reached, and whether its login could change data."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.data_connections import connection_service
from interpreter_bot.doctor import diagnosis

_UNREACHED: Final = "Code cannot query it."
_CHECK: Final = "Look at its `address` and `options`, and whether the bot's machine may connect."
_COULD_WRITE: Final = "Only the bot's own care keeps code from changing what is in it."
_READ_ONLY: Final = "Use a login that can read only: CREATE ROLE … LOGIN; GRANT SELECT ON … TO …"


def check(config: settings.Settings, environment: Mapping[str, str]) -> list[diagnosis.Finding]:
    """Try all data connections; runs an event loop of its own.

    Args:
        config: the settings in effect.
        environment: holds the secrets that they name.

    Raises:
        SettingsError: one cannot be used.
    """
    return asyncio.run(_check(config, environment))


async def _check(
    config: settings.Settings, environment: Mapping[str, str]
) -> list[diagnosis.Finding]:
    async with connection_service.opened(config, environment) as service:
        found = await asyncio.gather(*(_tried(service, one.name) for one in config.connections))
    return [finding for pair in found for finding in pair]


async def _tried(
    service: connection_service.ConnectionService, name: str
) -> list[diagnosis.Finding]:
    """Ask one connection what there is, and try to write with it."""
    title = f"connection {name}"
    try:
        seen, writable = await service.sources.probe(name)
    except errors.BotError as error:
        return [diagnosis.Finding(title, False, _UNREACHED, _CHECK, str(error))]
    reached = diagnosis.Finding(title, True, _UNREACHED, _CHECK, seen)
    if writable is None:
        return [reached]
    detail = f"its login could {writable}" if writable else "its login can change nothing"
    name = f"{title}, read only"
    return [reached, diagnosis.Finding(name, not writable, _COULD_WRITE, _READ_ONLY, detail)]
