"""Commands on Discord: the place of one, what is permitted there, and how its result is shown."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import discord

from interpreter_bot import errors
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.chat import buttons, claims, commands, in_flight, transport
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    interactions,
    markdown,
    modals,
    persistent_buttons,
)
from interpreter_bot.platforms.discord import transport as discord_transport
from interpreter_bot.sessions import session_service
from interpreter_bot.wording import (
    access_words,
    command_words,
    discord_words,
    place_words,
    session_words,
)

# What `_timestamp` returns, after `escape`.
_ESCAPED_TIMESTAMP: Final = re.compile(r"\\<t:(\d{1,12}):f\\>")
_MAX_LABEL_CHARACTERS: Final = 80
_MAX_THREADS: Final = 5
_Interaction = discord.Interaction[Any]

CONFIRMED_COMMANDS: Final = {
    "undo": ("undo", ""),
    "reset": ("reset", ""),
    "resetfiles": ("reset", "files"),
    "dismiss": None,
}
"""Name and argument of the command that a button confirms, by its action; None drops it."""


def command_place(
    service: session_service.SessionService,
    requests_in_flight: in_flight.RequestsInFlight,
    network: discord_transport.DiscordTransport,
    place: channels_and_threads.Place,
    user: channels_and_threads.Author,
    channel: object,
    permissions: discord.Permissions,
) -> command_types.Place:
    """Return the place of a command.

    Args:
        permissions: of the person there.
    """
    person = channels_and_threads.person_of(user)
    person_to_stop = "" if permissions.manage_messages else person.id
    return command_types.Place(
        service,
        place.key,
        person,
        place.key.scope(person.id),
        requests_in_flight.settings,
        _refusals(place, permissions),
        is_own=place.guild_id is None,
        format_time=_timestamp,
        file_bytes=place.file_bytes,
        open_copy=functools.partial(
            channels_and_threads.thread_for_copy, channel, network.limits, session_words.COPY_NOTICE
        ),
        stop_running=functools.partial(_stop, service, requests_in_flight, place, person_to_stop),
    )


def command_place_at_interaction(
    handler: interactions.InteractionHandler, interaction: _Interaction
) -> command_types.Place:
    """Return the place of a slash command, or of a button that does the same."""
    return command_place(
        handler.service,
        handler.in_flight,
        handler.network,
        channels_and_threads.place_at_interaction(interaction),
        interaction.user,
        interaction.channel,
        interaction.permissions,
    )


def _refusals(
    place: channels_and_threads.Place, permissions: discord.Permissions
) -> dict[str, str]:
    """Return why a person may not change settings of the channel or the server."""
    if place.guild_id is None:
        return dict.fromkeys(("channel", "server"), access_words.ONLY_FOR_YOURSELF)
    refusals = {}
    if not (permissions.manage_channels or permissions.manage_guild):
        refusals["channel"] = access_words.CHANNEL_MANAGERS_ONLY
    if not permissions.manage_guild:
        refusals["server"] = access_words.SERVER_MANAGERS_ONLY
    return refusals


async def _stop(
    service: session_service.SessionService,
    requests_in_flight: in_flight.RequestsInFlight,
    place: channels_and_threads.Place,
    person: str,
) -> bool:
    """Stop the requests of a person in a channel; all requests there if `person` is empty.

    Raises:
        BotError: all requests are other people's, or run in threads of the channel.
    """
    channel = str(place.channel_id)
    if await requests_in_flight.stop(lambda entry: entry.location.channel == channel, person):
        return True
    if not person and await service.stop(place.key):
        # The request came from elsewhere, such as the page.
        return True
    entries = requests_in_flight.find_running(
        lambda entry: entry.location.session.channel == channel and person in ("", entry.person)
    )
    if threads := sorted({int(entry.location.channel) for entry in entries} - {place.channel_id}):
        links = ", ".join(f"<#{thread}>" for thread in threads[:_MAX_THREADS])
        more_count = max(0, len(threads) - _MAX_THREADS)
        raise errors.BotError(command_words.running_elsewhere(links, more_count))
    return False


async def run_command(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    invocation: command_types.Invocation,
) -> None:
    """Run a command, and show its result as the response to an interaction.

    Raises:
        BotError: it failed, or its result cannot be shown.
    """
    place = command_place_at_interaction(handler, interaction)
    await commands.run_and_show(invocation, place, InteractionView(handler, interaction))


async def submit_form(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    invocation: command_types.Invocation,
    entered_values: Mapping[str, str],
) -> None:
    """Carry out what was entered into the form of a command."""
    try:
        if await handler.acknowledge_and_claim(interaction):
            place = command_place_at_interaction(handler, interaction)
            view = InteractionView(handler, interaction)
            await commands.carry_out(invocation, place, view, entered_values)
    except Exception as error:
        # The library would only log it, and leave the person without an answer.
        await handler.report_error(interaction, error)


async def open_code(
    handler: interactions.InteractionHandler,
    interaction: _Interaction,
    invocation: command_types.Invocation,
) -> claims.StartRequest:
    """Make the request of a command that runs code; return the function that starts it.

    Raises:
        BotError: there is no code to run.
    """
    place = command_place_at_interaction(handler, interaction)
    code = await command_table.find_code(invocation, place)
    return await handler.open_request(interaction, code, is_code=True)


class _View:
    """Base of the views, which writes Discord's Markdown; see `chat.commands.View`."""

    max_characters = discord_transport.MAX_CHARACTERS
    small_print = staticmethod(markdown.small_print)

    def __init__(self, client: discord.Client) -> None:
        self._client = client

    def escape(self, text: str) -> str:
        return _ESCAPED_TIMESTAMP.sub(r"<t:\1:f>", markdown.escape(text))

    def inline_code(self, text: str) -> str:
        return markdown.inline_code(text, _MAX_LABEL_CHARACTERS)

    def help(self, offered_commands: Sequence[command_types.Command]) -> str:
        names = ", ".join(command.name for command in offered_commands if command.name != "py")
        note = "" if self._client.intents.message_content else discord_words.NO_CONTENT
        return "\n".join(
            filter(None, (command_words.discord_help(names), markdown.small_print(note)))
        )


class InteractionView(_View):
    """Shows results as the answer to an interaction."""

    is_private = True

    def __init__(self, handler: interactions.InteractionHandler, interaction: _Interaction) -> None:
        super().__init__(interaction.client)
        self._handler = handler
        self._interaction = interaction

    async def send(self, text: str) -> None:
        await self._handler.reply(self._interaction, text)

    async def whisper(self, text: str, url: str, label: str) -> None:
        await self.send(_private_text(text, url, label))

    async def send_file(self, upload: transport.Upload, about: str) -> None:
        await self._handler.reply(self._interaction, about, uploads=(_with_safe_name(upload),))

    async def ask(self, question: str, label: str, invocation: command_types.Invocation) -> None:
        raise errors.BotError(command_words.not_offered(invocation.command.name))

    async def open_form(
        self, form: command_types.Form, invocation: command_types.Invocation
    ) -> None:
        await self._interaction.response.send_modal(modals.command_form(form, invocation))


class QuestionView(InteractionView):
    """Shows results in place of the question whose button was pressed."""

    async def send(self, text: str) -> None:
        no_mentions = discord.AllowedMentions.none()
        await self._interaction.edit_original_response(
            content=text, view=None, allowed_mentions=no_mentions
        )


class ChannelView(_View):
    """Shows results as messages in a channel."""

    def __init__(
        self,
        network: discord_transport.DiscordTransport,
        place: channels_and_threads.Place,
        channel: discord.abc.Messageable,
        person: int,
    ) -> None:
        super().__init__(network.client)
        self._network = network
        self.is_private = place.guild_id is None
        self._place = place
        self._channel = channel
        self._person = person

    async def send(self, text: str) -> None:
        await self._send(text)

    async def whisper(self, text: str, url: str, label: str) -> None:
        location, person = channels_and_threads.location(self._place), str(self._person)
        if not await self._network.whisper(location, person, _private_text(text, url, label)):
            raise errors.BotError(command_words.NO_DIRECT_MESSAGE)

    async def send_file(self, upload: transport.Upload, about: str) -> None:
        await self._send(about, files=discord_transport.open_files((_with_safe_name(upload),)))

    async def ask(self, question: str, label: str, invocation: command_types.Invocation) -> None:
        is_undo = invocation.command.name == "undo"
        action = invocation.command.name + ("" if is_undo else invocation.argument)
        turn_id = invocation.argument if is_undo else "0"
        confirm_button = buttons.make(action, turn_id, str(self._person), label)
        cancel_button = buttons.make("dismiss", "0", str(self._person))
        view = persistent_buttons.view((confirm_button, cancel_button))
        await self._send(question, view=view)

    async def open_form(
        self, form: command_types.Form, invocation: command_types.Invocation
    ) -> None:
        raise errors.BotError(place_words.FORM_BY_COMMAND)

    async def _send(self, text: str, **fields: Any) -> None:
        no_mentions = discord.AllowedMentions.none()
        try:
            await self._channel.send(
                text or None, allowed_mentions=no_mentions, suppress_embeds=True, **fields
            )
        except api_errors.ANY as error:
            raise errors.BotError(discord_words.MESSAGE_REFUSED) from error


def _private_text(text: str, url: str, label: str) -> str:
    return f"[{label}](<{url}>)\n{markdown.small_print(text)}" if url else text


def _with_safe_name(upload: transport.Upload) -> transport.Upload:
    """Return a file with a name that Discord leaves unchanged."""
    name = markdown.file_name(upload.name.rsplit("/", 1)[-1])
    return dataclasses.replace(upload, name=name)


def _timestamp(moment: float) -> str:
    return f"<t:{int(moment)}:f>"
