"""Start, watch and close the Discord platform inside a context."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, TypeVar

import aiohttp
import discord
from discord import app_commands

from interpreter_bot import logs, settings, values
from interpreter_bot.platforms.chat import in_flight
from interpreter_bot.platforms.discord import (
    api_errors,
    button_actions,
    channels_and_threads,
    file_transfers,
    gateway_client,
    interactions,
    markdown,
    message_events,
    missed_messages,
    permissions,
    rate_limits,
    slash_commands,
    transport,
)
from interpreter_bot.sessions import schedules, session_service
from interpreter_bot.wording import discord_words

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

IDENTIFY_SECONDS: Final = 5.0
"""Pause between two IDENTIFY calls, which Discord demands."""
_NOTIFY_SECONDS: Final = 60.0
_PERMISSIONS: Final = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    create_public_threads=True,
    attach_files=True,
    read_message_history=True,
)
_CHECK_SECONDS: Final = 10.0
# What discord.py calls the thread of each connection.
_HEARTBEAT_THREAD_NAME: Final = "keep-alive-handler"
_HEARTBEAT_JOIN_SECONDS: Final = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Pauses and time limits of the platform.

    Attributes:
        edit_seconds: between two edits of an answer.
        login_seconds: to log in and connect at start.
        server_seconds: without another server that becomes available, before the bot reads what it
            missed; later servers are read as they come.
        closing_seconds: to show the last answers when the bot stops.
        look_back_seconds: messages that were missed in this time before a start are answered.
    """

    edit_seconds: float = 1.5
    login_seconds: float = 60.0
    server_seconds: float = 2.0
    closing_seconds: float = 30.0
    look_back_seconds: float = 600.0


_TIMING: Final = Timing()


@dataclasses.dataclass(frozen=True, slots=True)
class DiscordPlatform:
    """Discord, connected.

    Attributes:
        name: what the bot is called there.
        has_content: whether the bot can read all messages, not only those that mention it.
    """

    name: str
    has_content: bool


@contextlib.asynccontextmanager
async def serve(
    service: session_service.SessionService, config: settings.Discord, *, token: str
) -> AsyncIterator[str]:
    """Run Discord, and yield the bot's name there; see `connected_platform`.

    Raises:
        DiscordLostError: Discord cannot be reached, or the connection is lost.
        DiscordError: Discord refuses the bot.
    """
    async with connected_platform(service, config, token=token) as connected:
        notes = [] if connected.has_content else [discord_words.NO_CONTENT_INTENT]
        notes += [discord_words.OPEN_TO_ALL] if config.is_open else []
        yield discord_words.connected(connected.name, *notes)


@contextlib.asynccontextmanager
async def connected_platform(
    service: session_service.SessionService,
    config: settings.Discord,
    *,
    token: str,
    timing: Timing = _TIMING,
) -> AsyncIterator[DiscordPlatform]:
    """Run Discord inside the context, which finishes running answers at its end.

    If the connection ends for good, such as when the token is revoked, the context's body is
    cancelled; after running answers have finished, the context raises the reason.

    Args:
        service: the conversations.
        config: the operator's settings.
        token: of the bot; it appears in no log.
        timing: pauses and time limits.

    Raises:
        DiscordLostError: Discord cannot be reached, or the connection is lost; it may be retried.
        DiscordError: Discord refuses the bot; the sentence says why.
    """
    logs.add_secrets((token,))
    if config.is_open:
        _log.warning(discord_words.OPEN_TO_ALL)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_join_heartbeat_threads)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        limits = rate_limits.RateLimits()
        connect = functools.partial(
            _connect, service, config, limits, session, token=token, timing=timing
        )
        try:
            client, connection = await connect(with_content=True)
        except discord.PrivilegedIntentsRequired:
            _log.warning(discord_words.NO_CONTENT_INTENT)
            await asyncio.sleep(IDENTIFY_SECONDS)
            client, connection = await connect(with_content=False)
        service.notify_through(
            channels_and_threads.PLATFORM,
            _make_notify(client, limits),
            go_on=client.in_flight.go_on,
        )
        service.schedules.open_platform(
            channels_and_threads.PLATFORM,
            schedules.Platform(
                client.in_flight.go_on,
                permissions.Memberships(client, config, limits).find_owner_refusal,
            ),
        )
        service.events.open_platform(channels_and_threads.PLATFORM, client.handle_again)
        try:
            # Only the watch is in this group: running answers do not end with the connection.
            async with _task_group() as tasks:
                watch_task = tasks.create_task(_watch(connection), name="discord watch")
                yield DiscordPlatform(str(client.user), client.intents.message_content)
                watch_task.cancel()
        finally:
            await _close(client, connection, limits, timing)


@dataclasses.dataclass(frozen=True, slots=True)
class Application:
    """The application of a token.

    Attributes:
        name: the bot's name.
        has_content: whether it is granted the message content.
        owner: the name of its owner, or of the owner of its team.
        invitation: the address that adds it to a server with the permissions it needs.
    """

    name: str
    owner: str
    has_content: bool
    invitation: str


async def check_token(token: str) -> Application:
    """Log in with a token, and return its application.

    Raises:
        DiscordError: Discord refuses the token, or cannot be reached.
    """
    return await _run_logged_in(token, _describe)


async def send_hello(token: str) -> None:
    """Send the owner of a bot a message, so that they see it in their Discord.

    Raises:
        DiscordError: Discord refuses it, or cannot be reached.
    """
    await _run_logged_in(token, _greet_owner)


async def _run_logged_in(
    token: str, work: Callable[[discord.Client, discord.AppInfo], Awaitable[_T]]
) -> _T:
    logs.add_secrets((token,))
    client = discord.Client(intents=discord.Intents.none())
    try:
        with _translate_errors():
            async with asyncio.timeout(_CHECK_SECONDS):
                await client.login(token)
                return await work(client, await client.application_info())
    finally:
        await client.close()


async def _describe(client: discord.Client, application: discord.AppInfo) -> Application:
    flags = application.flags
    has_content = flags.gateway_message_content or flags.gateway_message_content_limited
    invitation = discord.utils.oauth_url(
        application.id, permissions=_PERMISSIONS, scopes=("bot", "applications.commands")
    )
    return Application(str(client.user), str(_owner_of(application)), has_content, invitation)


async def _greet_owner(client: discord.Client, application: discord.AppInfo) -> None:
    owner = _owner_of(application)
    try:
        channel = await client.create_dm(owner)
        await channel.send(
            discord_words.TEST_MESSAGE, allowed_mentions=discord.AllowedMentions.none()
        )
    except discord.Forbidden as error:
        raise api_errors.DiscordError(discord_words.cannot_write_to(str(owner))) from error


def _owner_of(application: discord.AppInfo) -> discord.User | discord.TeamMember:
    return (application.team and application.team.owner) or application.owner


async def _join_heartbeat_threads() -> None:
    """Wait for the library's threads, which would use the event loop after it is closed."""
    threads = [
        thread for thread in threading.enumerate() if thread.name.startswith(_HEARTBEAT_THREAD_NAME)
    ]

    def join() -> None:
        for thread in threads:
            thread.join(_HEARTBEAT_JOIN_SECONDS)

    await asyncio.to_thread(join)


@contextlib.asynccontextmanager
async def _task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Yield a task group that raises a single error unwrapped."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def _connect(
    service: session_service.SessionService,
    config: settings.Discord,
    limits: rate_limits.RateLimits,
    session: aiohttp.ClientSession,
    *,
    token: str,
    timing: Timing,
    with_content: bool,
) -> tuple[gateway_client.Client, asyncio.Task[None]]:
    """Log in and connect; return when Discord has accepted the bot.

    Raises:
        DiscordError: Discord refused the bot.
        PrivilegedIntentsRequired: Discord refused these intents.
    """
    client = _create_client(
        service, config, limits, session, timing=timing, with_content=with_content
    )
    connection: asyncio.Task[None] | None = None
    try:
        with _translate_errors():
            async with asyncio.timeout(timing.login_seconds):
                await client.login(token)
                connection = asyncio.create_task(client.connect(), name="discord gateway")
                acceptance = asyncio.create_task(client.accepted.wait(), name="discord greeting")
                try:
                    await asyncio.wait(
                        (connection, acceptance), return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    acceptance.cancel()
                if connection.done():
                    _raise_early_end(connection)
                    raise api_errors.DiscordLostError(discord_words.CLOSED_AT_ONCE)
    except BaseException:
        await client.close()
        await client.in_flight.drain(0)
        if connection is not None:
            connection.cancel()
            await asyncio.wait((connection,))
        raise
    return client, connection


def _create_client(
    service: session_service.SessionService,
    config: settings.Discord,
    limits: rate_limits.RateLimits,
    session: aiohttp.ClientSession,
    *,
    timing: Timing,
    with_content: bool,
) -> gateway_client.Client:
    """Create a client with all its event handlers."""
    client = gateway_client.make_client(
        config, limits, with_content=with_content, server_seconds=timing.server_seconds
    )
    client.accepted = asyncio.Event()
    network = transport.DiscordTransport(client, limits, timing.edit_seconds)
    files = file_transfers.Attachments(session)
    client.in_flight = in_flight.RequestsInFlight(
        service, network, markdown, permissions.DEFAULT_PREFERENCES
    )
    client.message_events = message_events.MessageEvents(
        network, service, config, client.in_flight, files
    )
    inbox = client.message_events.inbox
    client.missed_messages = missed_messages.MissedMessages(
        client, service, inbox, guilds=config.guilds, look_back_seconds=timing.look_back_seconds
    )
    client.handler = interactions.InteractionHandler(
        network, service, config, client.in_flight, inbox, files
    )
    client.buttons = button_actions.ButtonActions(client.handler)
    client.tree = app_commands.CommandTree(
        client,
        allowed_contexts=app_commands.AppCommandContext(
            guild=True, dm_channel=True, private_channel=False
        ),
        allowed_installs=app_commands.AppInstallationType(guild=True, user=False),
    )
    client.tree.error(client.handler.report_error)
    slash_commands.add_commands(client.tree, client.handler)
    slash_commands.add_menus(client.tree, client.handler)
    return client


def _raise_early_end(connection: asyncio.Task[None]) -> None:
    """Raise the error that ended a connection before Discord accepted it, if there is one."""
    try:
        connection.result()
    except AttributeError as error:
        # How the library (2.7) ends when the very first connection is closed before its greeting.
        raise api_errors.DiscordLostError(discord_words.CLOSED_AT_ONCE) from error


async def _watch(connection: asyncio.Task[None]) -> None:
    """Wait until the connection ends.

    Raises:
        DiscordError: always; the sentence says why.
    """
    try:
        with _translate_errors():
            await asyncio.shield(connection)
    except discord.PrivilegedIntentsRequired as error:
        raise api_errors.DiscordLostError(discord_words.NO_CONTENT_INTENT) from error
    raise api_errors.DiscordLostError(discord_words.CONNECTION_ENDED)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate errors of Discord and of the connection to it."""
    try:
        yield
    except discord.LoginFailure as error:
        raise api_errors.DiscordLoginError(discord_words.CLOSE_REASONS[4004]) from error
    except discord.PrivilegedIntentsRequired:
        raise
    except discord.ConnectionClosed as error:
        if error.code in discord_words.CLOSE_REASONS:
            raise api_errors.DiscordError(discord_words.CLOSE_REASONS[error.code]) from error
        sentence = discord_words.closed_with_code(error.code)
        raise api_errors.DiscordLostError(sentence) from error
    except TimeoutError as error:
        raise api_errors.DiscordLostError(discord_words.NO_ANSWER) from error
    except discord.HTTPException as error:
        sentence = discord_words.rejected(error.status, error.code)
        raise api_errors.DiscordLostError(sentence) from error
    except (*api_errors.CONNECTION, discord.GatewayNotFound) as error:
        raise api_errors.DiscordLostError(discord_words.UNREACHABLE) from error


async def _close(
    client: gateway_client.Client,
    connection: asyncio.Task[None],
    limits: rate_limits.RateLimits,
    timing: Timing,
) -> None:
    """Stop handling events, wait for answers to be finished and shown, then close."""
    client.is_leaving = client.handler.is_leaving = True
    await client.in_flight.drain(timing.closing_seconds)
    await limits.close()
    await client.close()
    connection.cancel()
    await asyncio.wait((connection,))
    if not connection.cancelled() and (error := connection.exception()) is not None:
        _log.info("the connection to Discord had ended", exc_info=error)


def _make_notify(
    client: gateway_client.Client, limits: rate_limits.RateLimits
) -> session_service.Notify:
    """Return the function that notifies the people of a session."""

    async def notify(key: values.SessionKey, sentence: str) -> None:
        guild_id = int(key.workspace) if key.workspace else None
        channel_id = channels_and_threads.channel_id_of(key)
        channel = client.get_partial_messageable(channel_id, guild_id=guild_id)
        try:
            sending = channel.send(markdown.small_print(f"🔹 {markdown.escape(sentence)}"))
            await limits.within(_NOTIFY_SECONDS, sending)
        except api_errors.ANY as error:
            raise api_errors.DiscordError(discord_words.MESSAGE_REFUSED) from error

    return notify
