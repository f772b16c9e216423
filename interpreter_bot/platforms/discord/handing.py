"""Handing files out to somebody who asked for them with a command or a button."""

from __future__ import annotations

import tempfile
from typing import Any

import discord

from interpreter_bot import errors
from interpreter_bot.platforms.discord import (
    interacting,
    places,
    sheets,
    uploads,
)
from interpreter_bot.text import formatting

_Interaction = discord.Interaction[Any]


async def hand_out(
    interactor: interacting.Interactor, interaction: _Interaction, place: places.Place, name: str
) -> None:
    """Give somebody a file of the workspace.

    Raises:
        BotError: there is none, or Discord would not take it.
    """
    with tempfile.TemporaryFile() as spool:
        async with interactor.talks.reading(place.key, name) as (info, chunks):
            if info.size_bytes > place.file_bytes:
                most = formatting.size(place.file_bytes)
                raise errors.BotError(
                    f"The file is larger than the {most} allowed here. It stays in /mnt/data."
                )
            async for chunk in chunks:
                spool.write(chunk)
        size = spool.tell()
        spool.seek(0)
        short = uploads.liked(name.rsplit("/", 1)[-1])
        upload = sheets.Upload(name, 0, short, size, _Opened(spool))
        await interactor.tell(interaction, "", uploads=(upload,))


async def notebook(
    interactor: interacting.Interactor, interaction: _Interaction, place: places.Place
) -> None:
    """Give somebody the conversation as a notebook.

    Raises:
        BotError: Discord would not take it.
    """
    data = await interactor.talks.notebook(place.key)
    if len(data) > place.file_bytes:
        raise errors.BotError("The notebook is larger than Discord lets me send.")
    told = "This conversation as a Jupyter notebook:"
    await interactor.tell(interaction, told, uploads=(in_memory("conversation.ipynb", data),))


def in_memory(name: str, data: bytes) -> sheets.Upload:
    """Return bytes as a file to be sent."""
    return sheets.Upload(name, 0, name, len(data), uploads.Memory(data))


class _Opened:
    """A file that is open already, and is sent once."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file

    def content(self) -> Any:  # noqa: ANN401
        return self._file
