"""Results of commands, as Discord shows them; settings."""

from __future__ import annotations

import functools
import pathlib
import re
import tempfile
from collections.abc import Sequence
from typing import Any, Final

import discord

from interpreter_bot import errors
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    interactions,
    markdown,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.wording import (
    access_words,
    command_words,
    discord_words,
    file_words,
    session_words,
)

# What `_moment` writes, once it was escaped as all foreign text is.
_ESCAPED_MOMENT: Final = re.compile(r"\\<t:(\d{1,12}):f\\>")
_MAX_LABEL_CHARACTERS: Final = 80
_Interaction = discord.Interaction[Any]


def place_of_command(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
) -> command_table.Place:
    """Return the place of a command, or of a button that does the same."""
    person = channels_and_threads.person(interaction.user)
    service, limits = handler.service, handler.in_flight.limits
    return command_table.Place(
        service,
        place.key,
        person,
        place.scope(person.id),
        handler.in_flight.settings,
        _refusals(interaction, place),
        when=_moment,
        file_bytes=place.file_bytes,
        open_copy=functools.partial(
            channels_and_threads.thread_for_copy, interaction, limits, session_words.COPY
        ),
    )


async def give(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
    name: str,
    argument: str = "",
) -> None:
    """Do what a command does, and show its result.

    Raises:
        BotError: it cannot be done, or shown.
    """
    invocation = command_table.Invocation(command_table.offered("discord")[name], argument)
    there = place_of_command(handler, interaction, place)
    result = await command_table.run(invocation, there)
    await show(handler, interaction, place, result)


async def show(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
    result: command_table.Result,
) -> None:
    """Show the result of a command.

    Raises:
        BotError: it is a file that is not there, or that Discord would not take.
    """
    match result:
        case command_table.Run(code):
            await handler.carry_out(interaction, code, is_code=True)
        case command_table.FileSent():
            await _send_file(handler, interaction, place, result)
        case command_table.Said(text, link):
            await handler.tell(interaction, f"{markdown.plain(text)} {link}".rstrip())
        case command_table.Private(text, url, label):
            shown = f"[{label}](<{url}>)\n{markdown.small(text)}" if url else text
            await handler.tell(interaction, shown)
        case command_table.Listed():
            await handler.tell(interaction, _listed(result))
        case command_table.Help(commands):
            await handler.tell(interaction, _help(handler, interaction, commands))


async def _send_file(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
    file: command_table.FileSent,
) -> None:
    if file.data is not None:
        if len(file.data) > place.file_bytes:
            raise errors.BotError(file_words.too_large(file.name, place.file_bytes))
        uploads = (in_memory(file.name, file.data),)
        await handler.tell(interaction, file.about, uploads=uploads)
        return
    with tempfile.NamedTemporaryFile() as spool:
        async with handler.service.queries.reading(place.key, file.name) as (info, chunks):
            if info.size_bytes > place.file_bytes:
                raise errors.BotError(file_words.not_sent_whole(place.file_bytes))
            async for chunk in chunks:
                spool.write(chunk)
        spool.flush()
        upload = transport.Upload(
            id=file.name,
            version=0,
            name=markdown.file_name(file.name.rsplit("/", 1)[-1]),
            size_bytes=spool.tell(),
            content=pathlib.Path(spool.name),
        )
        await handler.tell(interaction, file.about, uploads=(upload,))


def in_memory(name: str, data: bytes) -> transport.Upload:
    """Return bytes as an upload."""
    return transport.Upload(id=name, version=0, name=name, size_bytes=len(data), content=data)


def _help(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    commands: Sequence[command_table.Command],
) -> str:
    names = ", ".join(command.name for command in commands if command.name != "py")
    lines = [command_words.discord_help(names)]
    if not interaction.client.intents.message_content:
        lines.append(markdown.small(discord_words.NO_CONTENT))
    if handler.service.model_notice:
        lines.append(markdown.small(f"🔹 {markdown.plain(handler.service.model_notice)}"))
    return "\n".join(lines)


def _refusals(interaction: _Interaction, place: channels_and_threads.Place) -> dict[str, str]:
    """Return why a person may not choose for the channel or the server."""
    if place.guild_id is None:
        return dict.fromkeys(("channel", "server"), access_words.ONLY_FOR_YOURSELF)
    granted = interaction.permissions
    refusals = {}
    if not (granted.manage_channels or granted.manage_guild):
        refusals["channel"] = access_words.CHANNEL_MANAGERS_ONLY
    if not granted.manage_guild:
        refusals["server"] = access_words.SERVER_MANAGERS_ONLY
    return refusals


def _moment(moment: float) -> str:
    return f"<t:{int(moment)}:f>"


def _listed(result: command_table.Listed) -> str:
    lines = [f"**{result.title}**"]
    for fact in result.facts:
        value = _ESCAPED_MOMENT.sub(r"<t:\1:f>", markdown.plain(fact.value))
        label = _label(fact, has_names=result.has_names)
        lines.append(f"• {': '.join(filter(None, (label, value)))}")
    return _cut(lines)


def _label(fact: session_facts.Fact, *, has_names: bool) -> str:
    return (
        markdown.line(fact.label, _MAX_LABEL_CHARACTERS)
        if has_names
        else markdown.plain(fact.label)
    )


def _cut(lines: Sequence[str]) -> str:
    """Join the lines that a message has room for, and count the others."""
    shown, text = len(lines), "\n".join(lines)
    while len(text) > discord_transport.MAX_CHARACTERS:
        shown -= 1
        text = "\n".join([*lines[:shown], command_words.more_lines(len(lines) - shown)])
    return text
