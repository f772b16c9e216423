"""Actions of `/interpreter`: everything but running code."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from typing import Any, Final

import discord

from interpreter_bot import errors, values
from interpreter_bot.platforms.discord import (
    channels_and_threads,
    file_transfers,
    interactions,
    markdown,
    message_layout,
    preferences,
)
from interpreter_bot.platforms.rendering import offered_commands, session_facts
from interpreter_bot.text import quantities
from interpreter_bot.wording import (
    access_words,
    command_words,
    discord_words,
    file_words,
    model_words,
    session_words,
)

# What `_moment` writes, once it was escaped as all foreign text is.
_ESCAPED_MOMENT: Final = re.compile(r"\\<t:(\d{1,12}):f\\>")
_Interaction = discord.Interaction[Any]
_MOST_FILES: Final = 40


async def hand_out(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
    name: str,
) -> None:
    """Send a person a file of the workspace.

    Raises:
        BotError: there is none, or Discord would not take it.
    """
    with tempfile.TemporaryFile() as spool:
        async with handler.service.queries.reading(place.key, name) as (info, chunks):
            if info.size_bytes > place.file_bytes:
                raise errors.BotError(file_words.not_sent_whole(place.file_bytes))
            async for chunk in chunks:
                spool.write(chunk)
        size = spool.tell()
        spool.seek(0)
        short = file_transfers.discord_file_name(name.rsplit("/", 1)[-1])
        upload = message_layout.Upload(name, 0, short, size, _Opened(spool))
        await handler.tell(interaction, "", uploads=(upload,))


async def notebook(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
) -> None:
    """Send a person the session as a notebook.

    Raises:
        BotError: Discord would not take it.
    """
    data = await handler.service.queries.notebook(place.key)
    if len(data) > place.file_bytes:
        raise errors.BotError(file_words.NOTEBOOK_TOO_LARGE)
    told = file_words.NOTEBOOK
    await handler.tell(interaction, told, uploads=(in_memory("conversation.ipynb", data),))


async def page(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    place: channels_and_threads.Place,
) -> None:
    """Give a person a link to the session on the page, for them alone.

    Raises:
        BotError: there is none.
    """
    link = await handler.service.visits.link(place.key)
    told = f"[{session_words.PAGE_LINK}](<{link}>)\n{markdown.small(session_words.ABOUT_PAGE_LINK)}"
    await handler.tell(interaction, told)


def in_memory(name: str, data: bytes) -> message_layout.Upload:
    """Return bytes as an upload."""
    return message_layout.Upload(name, 0, name, len(data), file_transfers.InMemorySource(data))


class _Opened:
    """An open file, to be sent once."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401
        self._file = file

    def content(self) -> Any:  # noqa: ANN401
        return self._file


class CommandEffects:
    """Actions of the subcommands."""

    def __init__(
        self,
        client: discord.Client,
        handler: interactions.InteractionHandler,
    ) -> None:
        self._client = client
        self._handler = handler
        self._service = handler.service

    async def reset(self, interaction: _Interaction, *, files: bool) -> None:
        """Reset a session. Everybody in the channel sees it."""
        place = channels_and_threads.of_interaction(interaction)
        await self._service.reset(place.key, files=files)
        await self._handler.tell(interaction, f"🧹 {session_words.reset(files_deleted=files)}")

    async def files(self, interaction: _Interaction, name: str) -> None:
        """List files, or send one."""
        place = channels_and_threads.of_interaction(interaction)
        if not name:
            found = await self._service.queries.files(place.key)
            await self._handler.tell(
                interaction, _cut(session_facts.files(found, _MOST_FILES, _file))
            )
            return
        await hand_out(self._handler, interaction, place, name)

    async def file_names(self, interaction: _Interaction) -> tuple[str, ...]:
        """Return the names of all files."""
        place = channels_and_threads.of_interaction(interaction)
        return tuple(info.name for info in await self._service.queries.files(place.key))

    async def limits(self, interaction: _Interaction) -> None:
        """Show the limits of code."""
        queries, place = self._service.queries, channels_and_threads.of_interaction(interaction)
        sent = session_facts.Fact(discord_words.FILE_I_SEND, quantities.size(place.file_bytes))
        facts = session_facts.limits(queries.limits, queries.kernels, queries.sandbox_level)
        text = _listed(discord_words.CODE_LIMITS, [*facts, sent])
        is_open = queries.sandbox_level is values.SandboxLevel.NONE
        walls = f"\n• ⚠️ **{discord_words.NO_SANDBOX}**" if is_open else ""
        await self._handler.tell(interaction, f"{text}{walls}")

    async def network(self, interaction: _Interaction) -> None:
        """Show what code may reach outside."""
        place = channels_and_threads.of_interaction(interaction)
        found = session_facts.network(self._service.queries.reach(place.key))
        await self._handler.tell(interaction, _cut(_listed("Network", found)))

    async def tools(self, interaction: _Interaction) -> None:
        """Show what code may call of other systems."""
        place = channels_and_threads.of_interaction(interaction)
        person = channels_and_threads.person(interaction.user)
        found = session_facts.tools(await self._service.queries.tools(place.key, person))
        await self._handler.tell(interaction, _cut(_listed("Tools", found)))

    async def connect(self, interaction: _Interaction, name: str) -> None:
        """Give a person a link to log in at a server of tools."""
        place = channels_and_threads.of_interaction(interaction)
        person = channels_and_threads.person(interaction.user)
        link = await self._service.logins.link(place.key, person, name)
        await self._handler.tell(interaction, link)

    async def disconnect(self, interaction: _Interaction, name: str) -> None:
        """Forget a person's account at a server of tools."""
        place = channels_and_threads.of_interaction(interaction)
        person = channels_and_threads.person(interaction.user)
        told = await self._service.logins.forget(place.key, person.id, name)
        await self._handler.tell(interaction, markdown.plain(told))

    async def variables(self, interaction: _Interaction) -> None:
        """Show what the session has of variables."""
        place = channels_and_threads.of_interaction(interaction)
        variables = await self._service.queries.variables(place.key)
        text = _listed("Variables", session_facts.variables(variables, when=_moment))
        await self._handler.tell(interaction, _cut(text))

    async def lost_cells(self, interaction: _Interaction) -> str:
        """Return the code that made what was not kept."""
        place = channels_and_threads.of_interaction(interaction)
        return "\n\n".join(await self._service.branches.lost_cells(place.key))

    async def undo(self, interaction: _Interaction) -> None:
        """Take the last answer back. Everybody in the channel sees it."""
        place = channels_and_threads.of_interaction(interaction)
        undone = await self._service.branches.undo(place.key)
        told = session_words.undone(undone.request, undone.missed_runs, undone.files_flaw)
        await self._handler.tell(interaction, markdown.plain(told))

    async def fork(self, interaction: _Interaction) -> None:
        """Copy a session into a new thread of the same channel, whose people see both."""
        place = channels_and_threads.of_interaction(interaction)
        person = channels_and_threads.person(interaction.user)
        limits = self._handler.in_flight.limits
        opened = channels_and_threads.thread_for_copy(interaction, limits, session_words.COPY)
        async with opened as thread_id:
            copy = channels_and_threads.of_thread(place, thread_id)
            await self._service.branches.fork(place.key, copy.key, person.id)
        await self._handler.tell(interaction, f"{session_words.COPIED} <#{thread_id}>")

    async def notebook(self, interaction: _Interaction) -> None:
        """Send the session as a notebook."""
        await notebook(self._handler, interaction, channels_and_threads.of_interaction(interaction))

    async def page(self, interaction: _Interaction) -> None:
        """Give the person a link to the session on the page."""
        await page(self._handler, interaction, channels_and_threads.of_interaction(interaction))

    async def usage(self, interaction: _Interaction) -> None:
        """Show the usage."""
        place, person = (
            channels_and_threads.of_interaction(interaction),
            channels_and_threads.person(interaction.user),
        )
        used = session_facts.usage(await self._service.queries.usage(place.key, person))
        await self._handler.tell(interaction, _listed("Used", used))

    async def help(self, interaction: _Interaction) -> None:
        """Show what the bot can do, and what not."""
        place = channels_and_threads.of_interaction(interaction)
        person = channels_and_threads.person(interaction.user)
        names = [
            command_words.DISCORD_COMMANDS,
            *await offered_commands.offered(self._service, place.key, person),
        ]
        lines = [command_words.discord_help(commands=", ".join(names))]
        if not self._client.intents.message_content:
            lines.append(markdown.small(discord_words.NO_CONTENT))
        if self._service.model_notice:
            lines.append(markdown.small(f"🔹 {markdown.plain(self._service.model_notice)}"))
        await self._handler.tell(interaction, "\n".join(lines))

    async def model(self, interaction: _Interaction, name: str) -> None:
        """Show or choose the model."""
        place = channels_and_threads.of_interaction(interaction)
        if not name:
            current = await self._service.queries.model(place.key)
            told = _listed("Models", session_facts.models(self._service.queries.models, current))
            if not self._service.queries.models:
                told = markdown.plain(self._service.model_notice or model_words.NONE)
            await self._handler.tell(interaction, _cut(told))
            return
        await self._service.choose_model(place.key, None if name == "default" else name)
        told = model_words.now_used(markdown.line(name))
        await self._handler.tell(interaction, told)

    async def settings(self, interaction: _Interaction, name: str, value: str, scope: str) -> None:
        """Show the settings in effect; with a value, change one."""
        place = channels_and_threads.of_interaction(interaction)
        name, value = name.strip().lower(), value.strip()
        if name:
            preferences.check(name)
        if not (name and value):
            await self._show_settings(interaction, place, (name,) if name else preferences.NAMES)
            return
        chosen = preferences.parse(name, value, self._service.queries.models)
        await self._service.choose(_scope(interaction, place, scope), name, chosen)
        shown = None if chosen is None else markdown.line(value)
        sentence = discord_words.setting_changed(markdown.line(name), shown, scope)
        if name == preferences.APPROVAL:
            holds = await self._service.queries.approval(place.scope(str(interaction.user.id)))
            if chosen not in (None, holds):
                sentence += f" {access_words.WEAKER}"
            sentence += f" {discord_words.in_effect(markdown.line(holds))}"
        await self._handler.tell(interaction, sentence)

    async def _show_settings(
        self, interaction: _Interaction, place: channels_and_threads.Place, names: tuple[str, ...]
    ) -> None:
        person = channels_and_threads.person(interaction.user)
        holds = await self._handler.in_flight.chosen_by(place, person)
        lines = [f"**{discord_words.SETTINGS_TITLE}**"]
        for name in names:
            value: object = getattr(holds, name, "")
            if name == preferences.APPROVAL:
                value = await self._service.queries.approval(place.scope(person.id))
            shown = {True: "on", False: "off", "": "default"}.get(value, value)
            lines.append(f"• {markdown.line(name)}: {shown} ({discord_words.SETTINGS[name]})")
        if len(names) == 1:
            choices = ", ".join(preferences.suggestions(names[0], self._service.queries.models))
            lines.append(markdown.small(discord_words.how_to_change(choices)))
        await self._handler.tell(interaction, _cut("\n".join(lines)))


def _scope(
    interaction: _Interaction, place: channels_and_threads.Place, scope: str
) -> values.Scope:
    """Return the scope of a choice, if the person may decide there.

    Raises:
        BotError: they may not, or there is no such place.
    """
    if scope == "me":
        return values.Scope(channels_and_threads.PLATFORM, person=str(interaction.user.id))
    if place.guild_id is None or not place.is_member:
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


def _listed(title: str, found: Iterable[session_facts.Fact]) -> str:
    lines = [": ".join(filter(None, map(markdown.plain, fact[:2]))) for fact in found]
    return "\n• ".join(
        [f"**{title}**", *(_ESCAPED_MOMENT.sub(r"<t:\1:f>", line) for line in lines)]
    )


def _file(info: values.FileInfo) -> str:
    size, seconds = quantities.size(info.size_bytes), info.modified_ns // 10**9
    return f"• {markdown.line(info.name, 80)} {size}, <t:{seconds}:R>"


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= message_layout.MOST_CHARACTERS
        else f"{text[: message_layout.MOST_CHARACTERS]}…"
    )
