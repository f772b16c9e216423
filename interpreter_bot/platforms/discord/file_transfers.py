"""Attachments from Discord, read in pieces and never beyond the size that Discord announced."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeAlias

import aiohttp
import discord

from interpreter_bot import errors
from interpreter_bot.platforms.discord import api_errors
from interpreter_bot.sessions import requests
from interpreter_bot.wording import file_words

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 * 1024
_MAX_SILENCE_SECONDS: Final = 30.0
_OK: Final = 200


@dataclasses.dataclass(frozen=True, slots=True)
class AttachedFile:
    """An attachment of a modal that an earlier run of the bot opened: Discord sends only this."""

    filename: str
    size: int
    url: str


Attached: TypeAlias = discord.Attachment | AttachedFile


class Attachments:
    """Reads attachments through an HTTP session of its own, which carries no token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def make_attachments(self, attachments: Iterable[Attached]) -> tuple[requests.Attachment, ...]:
        """Return attachments for a request, which are read when they are opened."""
        return tuple(self._attachment(attachment) for attachment in attachments)

    def _attachment(self, attachment: Attached) -> requests.Attachment:
        def read() -> AsyncIterator[bytes]:
            return self._read(attachment)

        return requests.Attachment(name=attachment.filename, open=read, size_bytes=attachment.size)

    async def _read(self, attachment: Attached) -> AsyncIterator[bytes]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=_MAX_SILENCE_SECONDS)
        bytes_left = attachment.size
        try:
            async with self._session.get(
                attachment.url, allow_redirects=False, timeout=timeout
            ) as response:
                if response.status != _OK:
                    _log.info("Discord answered %d for a file", response.status)
                    raise errors.BotError(file_words.NOT_ON_DISCORD)
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    bytes_left -= len(chunk)
                    if bytes_left < 0:
                        raise errors.BotError(file_words.LARGER_THAN_ANNOUNCED)
                    yield chunk
        except api_errors.CONNECTION as error:
            _log.info("a file could not be read", exc_info=error)
            raise errors.BotError(file_words.NOT_READ_FROM_DISCORD) from error
        if bytes_left:
            raise errors.BotError(file_words.DOWNLOAD_BROKE_OFF)
