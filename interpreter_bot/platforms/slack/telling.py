"""Telling a person what came of what they did, where only they see it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from slack_bolt.async_app import AsyncRespond

from interpreter_bot import errors
from interpreter_bot.platforms.slack import blocks, commands, failures, markdown

_log = logging.getLogger(__name__)


def teller(respond: AsyncRespond) -> commands.Tell:
    """Make what tells it through bolt."""

    async def tell(text: str) -> None:
        shown = markdown.defused(text)[:11_000]
        await respond(
            text=shown[:300],
            blocks=[blocks.prose(shown)],
            replace_original=False,
            unfurl_links=False,
            unfurl_media=False,
        )

    return tell


async def told(work: Awaitable[None], tell: commands.Tell | None) -> None:
    """Do something, and tell the person what went wrong with it."""
    try:
        await work
    except failures.GoneError:
        raise
    except errors.BotError as error:
        if tell is None:
            _log.info("refused: %s", error)
            return
        await tell(str(error))
