"""The gateway client: which events it subscribes to, who handles them, and the commands it
registers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

import discord
from discord import app_commands

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.chat import in_flight
from interpreter_bot.platforms.discord import (
    api_errors,
    button_actions,
    channels_and_threads,
    command_views,
    interactions,
    message_events,
    missed_messages,
    modals,
    persistent_buttons,
    rate_limits,
)
from interpreter_bot.sessions import event_claims
from interpreter_bot.wording import command_words

_log = logging.getLogger(__name__)

_SYNC_SECONDS: Final = 20.0


async def _register_commands(tree: app_commands.CommandTree[Any]) -> None:
    """Replace Discord's list of commands by ours; the old one stays if Discord refuses."""
    try:
        await tree.sync()
    except api_errors.ANY as error:
        _log.error("Discord refused the list of commands: %s", error)
    except app_commands.AppCommandError:
        _log.exception("the list of commands could not be brought up to date")


class _Client(discord.Client):
    """The event handlers of both kinds of client."""

    message_events: message_events.MessageEvents
    in_flight: in_flight.RequestsInFlight
    missed_messages: missed_messages.MissedMessages
    handler: interactions.InteractionHandler
    buttons: button_actions.ButtonActions
    tree: app_commands.CommandTree[Any]
    accepted: asyncio.Event
    is_leaving = False
    """True once new events are ignored, as the bot ends."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._connected_shards: set[int] = set()
        parsers = self._connection.parsers
        parse_interaction = parsers["INTERACTION_CREATE"]

        def receive(payload: Any) -> None:  # noqa: ANN401
            self.handler.receive(payload)
            parse_interaction(payload)

        self._parse_interaction = _log_errors("INTERACTION_CREATE", parse_interaction)
        parsers["INTERACTION_CREATE"] = receive
        parsers |= {event: _log_errors(event, parse) for event, parse in parsers.items()}

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Dispatch an event, unless the client has closed: the library (2.7) would fail then."""
        if not self.is_closed():
            super().dispatch(event, *args, **kwargs)

    async def setup_hook(self) -> None:
        """Register buttons and commands, before any event is handled."""
        self.add_dynamic_items(persistent_buttons.Action)
        registration = self.in_flight.spawn(_register_commands(self.tree), "list of commands")
        # Once the daily limit of changes is used up, Discord may ask to wait for hours.
        await asyncio.wait((registration,), timeout=_SYNC_SECONDS)
        self.missed_messages.note_start()

    def handle_again(self, event: event_claims.LostEvent) -> None:
        """Handle a message or an interaction that a dead bot had claimed."""
        if (payload := event.content.get("payload")) is not None:
            self.handler.receive(payload, is_again=True)
            self._parse_interaction(payload)
        else:
            work = self.message_events.inbox.receive_again(event)
            self.in_flight.spawn(work, f"{event.event_id} again")

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        """Handle modals and unknown buttons; the library handles all other interactions."""
        data: Mapping[str, Any] = dict(interaction.data or {})
        custom_id = str(data.get("custom_id", ""))
        if interaction.type is discord.InteractionType.modal_submit:
            if (submitted := modals.parse_form(interaction)) is not None:
                await command_views.submit_form(self.handler, interaction, *submitted)
            else:
                await modals.handle_submission(self.handler, interaction)
        elif interaction.type is discord.InteractionType.component and not (
            persistent_buttons.is_known(custom_id)
        ):
            await self.handler.report_error(
                interaction, errors.BotError(command_words.OUTDATED_BUTTON)
            )

    async def on_message(self, message: discord.Message) -> None:
        """Handle a message."""
        if not self.is_leaving:
            self.missed_messages.note_message(message)
            # In a task that the bot waits for when it leaves.
            work = self.message_events.on_message(message)
            self.in_flight.spawn(work, f"handling of message {message.id}")

    async def _run_catching_up(self, catch_up_work: Coroutine[Any, Any, None]) -> None:
        """Catch up in a task that the bot waits for when it leaves."""
        if self.is_leaving:
            catch_up_work.close()
        else:
            await self.in_flight.spawn(catch_up_work, "catching up")

    async def on_raw_message_edit(self, event: discord.RawMessageUpdateEvent) -> None:
        """Handle an edit of a message, by a person or by Discord itself."""
        if not self.is_leaving:
            await self.message_events.on_edit(event.message)

    async def on_raw_message_delete(self, event: discord.RawMessageDeleteEvent) -> None:
        """Handle the deletion of a message."""
        await self.message_events.on_delete(event.message_id)

    async def on_raw_bulk_message_delete(self, event: discord.RawBulkMessageDeleteEvent) -> None:
        """Handle the deletion of many messages at once."""
        for message_id in event.message_ids:
            await self.message_events.on_delete(message_id)

    async def on_connect(self) -> None:
        """Handle that Discord has accepted the connection."""
        self.accepted.set()

    def _begin_session(self, shard_id: int) -> None:
        """Record a new session: a shard's first, or after one that could not be resumed."""
        if shard_id in self._connected_shards:
            self.missed_messages.note_new_session()
        self._connected_shards.add(shard_id)

    async def on_ready(self) -> None:
        """Handle that the state of the servers is complete again."""
        await self.missed_messages.include_downtime()
        await self._run_catching_up(self.missed_messages.catch_up())

    async def on_guild_remove(self, guild: discord.Guild) -> None:
        """Erase what was remembered on a server that is gone, or that the bot was removed from."""
        await self._erase(guild.id)

    async def on_guild_channel_delete(self, channel: discord.abc.GuildChannel) -> None:
        """Erase what was remembered in a channel that is gone."""
        await self._erase(channel.guild.id, str(channel.id))

    async def on_raw_thread_delete(self, event: discord.RawThreadDeleteEvent) -> None:
        """Erase what was remembered in a private thread that is gone."""
        if event.thread_type is discord.ChannelType.private_thread:
            thread = values.private_thread(str(event.thread_id))
            await self._erase(event.guild_id, str(event.parent_id), thread)

    async def _erase(self, guild_id: int, channel: str = "", thread: str = "") -> None:
        scope = values.Scope(channels_and_threads.PLATFORM, str(guild_id), channel, thread=thread)
        await self.handler.service.places.erase(scope)

    async def on_guild_available(self, guild: discord.Guild) -> None:
        """Handle a server that becomes available, perhaps long after the others."""
        await self._run_catching_up(self.missed_messages.catch_up_in(guild))

    async def on_error(self, event_method: str, /, *args: Any, **kwargs: Any) -> None:
        """Log an error of an event handler; other events go on."""
        if self.is_leaving:
            _log.info("an event was being handled when the bot left: %s", event_method)
        else:
            _log.exception("an event could not be handled: %s", event_method)


def _log_errors(event: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap a parser of the library: an event that cannot be parsed must not end the connection."""

    def parse_or_log(data: Any) -> None:  # noqa: ANN401
        try:
            parse(data)
        except Exception:
            # Discord may change its events before the library does.
            _log.exception("an event could not be parsed: %s", event)

    return parse_or_log


class Single(_Client):
    """A client with one connection."""

    async def on_connect(self) -> None:
        """Handle the beginning of a session."""
        self._begin_session(0)
        await super().on_connect()


class Sharded(_Client, discord.AutoShardedClient):
    """A client with a connection for each shard."""

    async def on_shard_connect(self, shard_id: int) -> None:
        """Handle the beginning of a shard's session."""
        self._begin_session(shard_id)

    async def on_shard_ready(self, shard_id: int) -> None:
        """Handle that the state of a shard's servers is complete again."""
        await self._run_catching_up(self.missed_messages.catch_up())


Client: TypeAlias = Single | Sharded


def make_intents(*, with_content: bool) -> discord.Intents:
    """Return the gateway intents: as few as will do."""
    gateway_intents = discord.Intents.none()
    gateway_intents.guilds = True
    gateway_intents.messages = True
    gateway_intents.message_content = with_content
    return gateway_intents


def make_client(
    config: settings.Discord,
    limits: rate_limits.RateLimits,
    *,
    with_content: bool,
    server_seconds: float,
) -> Client:
    """Create a client that is not connected yet.

    It is ready once no more servers have become available for `server_seconds`.
    """
    fields: dict[str, Any] = {
        "intents": make_intents(with_content=with_content),
        "allowed_mentions": discord.AllowedMentions.none(),
        "member_cache_flags": discord.MemberCacheFlags.none(),
        "chunk_guilds_at_startup": False,
        "max_messages": None,
        "guild_ready_timeout": server_seconds,
        "http_trace": limits.trace,
    }
    if not config.sharding:
        return Single(**fields)
    return Sharded(**fields)
