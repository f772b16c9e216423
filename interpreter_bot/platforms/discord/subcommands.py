"""Results of commands, as Discord shows them; settings."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Sequence
from typing import Any, Final

import discord

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    file_transfers,
    interactions,
    markdown,
    message_layout,
    preferences,
)
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
        when=_moment,
        file_bytes=place.file_bytes,
        open_copy=functools.partial(
            channels_and_threads.thread_for_copy, interaction, limits, session_words.COPY
        ),
        settings={
            name: preferences.suggestions(name, service.queries.models)
            for name in preferences.NAMES
        },
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
    with tempfile.TemporaryFile() as spool:
        async with handler.service.queries.reading(place.key, file.name) as (info, chunks):
            if info.size_bytes > place.file_bytes:
                raise errors.BotError(file_words.not_sent_whole(place.file_bytes))
            async for chunk in chunks:
                spool.write(chunk)
        size = spool.tell()
        spool.seek(0)
        short = file_transfers.discord_file_name(file.name.rsplit("/", 1)[-1])
        upload = message_layout.Upload(file.name, 0, short, size, _Opened(spool))
        await handler.tell(interaction, file.about, uploads=(upload,))


def in_memory(name: str, data: bytes) -> message_layout.Upload:
    """Return bytes as an upload."""
    return message_layout.Upload(name, 0, name, len(data), file_transfers.InMemorySource(data))


class _Opened:
    """An open file, to be sent once."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file

    def content(self) -> Any:  # noqa: ANN401
        return self._file


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


async def settings(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    name: str = "",
    value: str = "",
    scope: str = "me",
) -> None:
    """Show the settings in effect; with a value, change one.

    Raises:
        BotError: there is no such setting or value, or the person may not choose it there.
    """
    service, place = handler.service, channels_and_threads.of_interaction(interaction)
    name, value, scope = name.strip().lower(), value.strip(), scope or "me"
    if name:
        preferences.check(name)
    if not (name and value):
        names = (name,) if name else preferences.NAMES
        await _show_settings(handler, interaction, place, names)
        return
    chosen = preferences.parse(name, value, service.queries.models)
    await service.choose(_scope(interaction, place, scope), name, chosen)
    shown = None if chosen is None else markdown.line(value)
    sentence = discord_words.setting_changed(markdown.line(name), shown, scope)
    if name == preferences.APPROVAL:
        holds = await service.queries.approval(place.scope(str(interaction.user.id)))
        if chosen not in (None, holds):
            sentence += f" {access_words.WEAKER}"
        sentence += f" {discord_words.in_effect(markdown.line(holds))}"
    await handler.tell(interaction, sentence)


async def _show_settings(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
    names: tuple[str, ...],
) -> None:
    queries, person = handler.service.queries, channels_and_threads.person(interaction.user)
    holds = await handler.in_flight.chosen_by(place, person)
    lines = [f"**{discord_words.SETTINGS_TITLE}**"]
    for name in names:
        value: object = getattr(holds, name, "")
        if name == preferences.APPROVAL:
            value = await queries.approval(place.scope(person.id))
        shown = {True: "on", False: "off", "": "default"}.get(value, value)
        lines.append(f"• {markdown.line(name)}: {shown} ({discord_words.SETTINGS[name]})")
    if len(names) == 1:
        choices = ", ".join(preferences.suggestions(names[0], queries.models))
        lines.append(markdown.small(discord_words.how_to_change(choices)))
    await handler.tell(interaction, _cut(lines))


def _scope(
    interaction: _Interaction, place: channels_and_threads.Place, scope: str
) -> values.Scope:
    """Return the scope of a choice, if the person may decide there.

    Raises:
        BotError: they may not, or there is no such place.
    """
    if scope == "me":
        return values.Scope(channels_and_threads.PLATFORM, person=str(interaction.user.id))
    if place.guild_id is None:
        raise errors.BotError(access_words.ONLY_FOR_YOURSELF)
    held = interaction.permissions
    if scope == "channel":
        if not (held.manage_channels or held.manage_guild):
            raise errors.BotError(access_words.CHANNEL_MANAGERS_ONLY)
        return values.Scope(channels_and_threads.PLATFORM, place.key.workspace, place.key.channel)
    if not held.manage_guild:
        raise errors.BotError(access_words.SERVER_MANAGERS_ONLY)
    return values.Scope(channels_and_threads.PLATFORM, place.key.workspace)


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
    """Join the lines that a message has room for."""
    text = "\n".join(lines)
    if len(text) <= message_layout.MOST_CHARACTERS:
        return text
    whole_lines, _, _ = text[: message_layout.MOST_CHARACTERS].rpartition("\n")
    return f"{whole_lines}\n…"
