"""Errors of Discord: as a whole, and of single API requests."""

from __future__ import annotations

from typing import Final

import aiohttp
import discord

from interpreter_bot import errors


class DiscordError(errors.BotError):
    """Discord cannot be used."""


class DiscordLoginError(DiscordError):
    """Discord did not let the bot in."""


class DiscordLostError(DiscordError, errors.PlatformLostError):
    """Discord cannot be reached right now."""


UNKNOWN_CHANNEL: Final = 10003
UNKNOWN_MESSAGE: Final = 10008
UNKNOWN_WEBHOOK: Final = 10015
UNKNOWN_INTERACTION: Final = 10062
TOO_MANY_EDITS: Final = 30046
TOO_LARGE: Final = 40005
ALREADY_ANSWERED: Final = 40060
NO_ACCESS: Final = 50001
CANNOT_DIRECT: Final = frozenset({50007, 50278})
"""Codes of a person who accepts no direct messages of the bot."""
NO_PERMISSION: Final = 50013
TOKEN_EXPIRED: Final = 50027
FILE_TOO_LARGE: Final = 50045
ARCHIVED: Final = 50083
NO_REPLIES: Final = 160002
THREAD_EXISTS: Final = 160004

FILES_REFUSED: Final = frozenset({TOO_LARGE, FILE_TOO_LARGE})
"""Codes of a file, or a whole message, that is too large."""

CONNECTION: Final = (OSError, aiohttp.ClientError, TimeoutError)
"""Raised if Discord could not be reached, or the connection broke before its response."""
ANY: Final = (discord.HTTPException, *CONNECTION)
"""Raised by any request to Discord."""
UNSENT: Final = aiohttp.ClientConnectorError
"""The only one of these after which the request certainly had no effect."""
_SERVER_ERROR: Final = 500
_RATE_LIMITED: Final = 429


def is_temporary(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, discord.HTTPException):
        return error.status >= _SERVER_ERROR or error.status == _RATE_LIMITED
    return isinstance(error, CONNECTION)


def code_of(error: BaseException) -> int:
    """Return Discord's number for an error; 0 if it has none."""
    return error.code if isinstance(error, discord.HTTPException) else 0
