"""The way in: Discord as a platform, for as long as a context lasts.

Opening, translating why that fails, and closing are one story, told in one module.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Final

import aiohttp
import discord
from discord import app_commands

from interpreter_bot import logs, settings, values
from interpreter_bot.platforms.discord import (
    attaching,
    attending,
    catching,
    clients,
    commands,
    editing,
    escaping,
    faults,
    interacting,
    listening,
    menus,
    places,
    pressing,
    requesting,
    stale_answers,
)
from interpreter_bot.sessions import conversations

_log = logging.getLogger(__name__)

_NO_CONTENT: Final = (
    "Discord does not grant the message-content intent. In channels only messages that mention the "
    "bot or reply to it are read; messages in its threads need a mention. Switch the intent on in "
    "the developer portal to have that too."
)
_OPEN: Final = (
    "Anyone on Discord may use this bot: name discord.guilds, channels, roles or people, and "
    "switch Public Bot off in the developer portal."
)
IDENTIFY_SECONDS: Final = 5.0
"""Between two times that a bot says who it is: Discord turns a second one within them away."""
# What discord.py calls the thread of each connection.
_HEARTBEAT: Final = "keep-alive-handler"
_HEARTBEAT_SECONDS: Final = 2.0
_CLOSES: Final = {
    4004: "Discord does not accept the token.",
    4010: "Discord does not accept the shards.",
    4011: "Discord demands sharding for this many servers: set discord.sharding.",
    4013: "Discord does not know the intents.",
    4014: "Discord does not grant the message-content intent: switch it on in the developer "
    "portal, or set discord.message_content to auto.",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """Discord, connected.

    Attributes:
        name: what the bot is called there.
        has_content: whether all messages can be read, and not only those that mention it.
    """

    name: str
    has_content: bool


@contextlib.asynccontextmanager
async def serve(
    talks: conversations.Conversations, chosen: settings.Discord, *, token: str
) -> AsyncIterator[str]:
    """Be on Discord, and say as whom; see `running`.

    Raises:
        DiscordLostError: Discord cannot be reached, or not any more.
        DiscordError: it does not let us in, or not any more.
    """
    async with running(talks, chosen, token=token) as connected:
        lost = "" if connected.has_content else f" {_NO_CONTENT}"
        open_ = f" {_OPEN}" if chosen.is_open else ""
        yield f"connected as {connected.name}.{lost}{open_}"


@contextlib.asynccontextmanager
async def running(
    talks: conversations.Conversations, chosen: settings.Discord, *, token: str
) -> AsyncIterator[Running]:
    """Be on Discord inside the context. At its end, answers that are being given are finished.

    A connection that ends for good, such as when the token is taken back, cancels what is done
    inside the context, which then raises the reason, once answers have been finished.

    Args:
        talks: where requests go.
        chosen: what the operator set.
        token: of the bot; it appears in no log.

    Raises:
        DiscordLostError: Discord cannot be reached, or not any more; it may be tried again.
        DiscordError: it does not let us in, or not any more; the sentence says why.
    """
    logs.redact((token,))
    if chosen.is_open:
        _log.warning(_OPEN)
    with_content = chosen.message_content != "off"
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_heartbeats_over)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        tasks = await stack.enter_async_context(_tasks())
        requester = requesting.Requester(talks, chosen, tasks)
        try:
            client, connection = await _connect(
                talks, chosen, requester, session, token=token, with_content=with_content
            )
        except discord.PrivilegedIntentsRequired:
            if chosen.message_content == "required":
                raise faults.DiscordLoginError(_CLOSES[4014]) from None
            _log.warning(_NO_CONTENT)
            await asyncio.sleep(IDENTIFY_SECONDS)
            client, connection = await _connect(
                talks, chosen, requester, session, token=token, with_content=False
            )
        talks.notify_through(places.PLATFORM, _notifying(client, requester))
        try:
            # A group of its own: answers that are being given do not end with the connection.
            async with _tasks() as watching:
                watch = watching.create_task(_watch(connection, chosen), name="discord watch")
                yield Running(str(client.user), client.intents.message_content)
                watch.cancel()
        finally:
            await _close(client, connection, requester, chosen)


async def _heartbeats_over() -> None:
    """Wait for the library's threads, which would go on speaking to an event loop that is gone."""
    beating = [one for one in threading.enumerate() if one.name.startswith(_HEARTBEAT)]

    def join() -> None:
        for thread in beating:
            thread.join(_HEARTBEAT_SECONDS)

    await asyncio.to_thread(join)


@contextlib.asynccontextmanager
async def _tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Give a group whose errors come out as they are."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def _connect(
    talks: conversations.Conversations,
    chosen: settings.Discord,
    requester: requesting.Requester,
    session: aiohttp.ClientSession,
    *,
    token: str,
    with_content: bool,
) -> tuple[clients.Client, asyncio.Task[None]]:
    """Log in and connect; returns when Discord has accepted us.

    Raises:
        DiscordError: it did not.
        PrivilegedIntentsRequired: not with these intents.
    """
    client = _furnished(talks, chosen, requester, session, with_content=with_content)
    connection: asyncio.Task[None] | None = None
    try:
        with _translated():
            async with asyncio.timeout(chosen.login_seconds):
                await client.login(token)
                connection = asyncio.create_task(client.connect(), name="discord gateway")
                waiting = asyncio.create_task(client.accepted.wait(), name="discord greeting")
                try:
                    await asyncio.wait((connection, waiting), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
                if connection.done():
                    _raise_first(connection)
                    raise faults.DiscordLostError("Discord ended the connection at once.")
    except BaseException:
        await client.close()
        if connection is not None:
            connection.cancel()
            await asyncio.wait((connection,))
        raise
    return client, connection


def _furnished(
    talks: conversations.Conversations,
    chosen: settings.Discord,
    requester: requesting.Requester,
    session: aiohttp.ClientSession,
    *,
    with_content: bool,
) -> clients.Client:
    """Make a client with everything that takes what it hears."""
    client = clients.make(chosen, with_content=with_content)
    client.accepted = asyncio.Event()
    files = attaching.Files(session)
    client.listener = listening.Listener(client, talks, chosen, requester, files)
    client.editor = editing.Editor(client, talks, chosen, requester, client.listener)
    client.requester = requester
    client.catcher = catching.Catcher(client, talks, chosen, client.listener)
    client.interactor = interacting.Interactor(client, talks, chosen, requester, files)
    client.presser = pressing.Presser(client.interactor)
    client.tree = app_commands.CommandTree(
        client,
        allowed_contexts=app_commands.AppCommandContext(
            guild=True, dm_channel=True, private_channel=chosen.user_install
        ),
        allowed_installs=app_commands.AppInstallationType(guild=True, user=chosen.user_install),
    )
    client.tree.error(client.interactor.failed)
    attendant = attending.Attendant(client, client.interactor)
    commands.add_to(client.tree, client.interactor, attendant)
    menus.add_to(client.tree, client, client.interactor)
    return client


def _raise_first(connection: asyncio.Task[None]) -> None:
    """Raise what ended a connection that had hardly begun, if anything did."""
    try:
        connection.result()
    except AttributeError as error:
        # How the library (2.7) ends when the very first connection is closed before its greeting.
        raise faults.DiscordLostError("Discord closed the connection at once.") from error


async def _watch(connection: asyncio.Task[None], chosen: settings.Discord) -> None:
    """Wait until the connection ends.

    Raises:
        DiscordError: always; it says why.
    """
    try:
        with _translated():
            await asyncio.shield(connection)
    except discord.PrivilegedIntentsRequired as error:
        if chosen.message_content == "required":
            raise faults.DiscordError(_CLOSES[4014]) from error
        raise faults.DiscordLostError(_NO_CONTENT) from error
    raise faults.DiscordLostError("The connection to Discord has ended.")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Say what Discord, or the way to it, does not allow."""
    try:
        yield
    except discord.LoginFailure as error:
        raise faults.DiscordLoginError(_CLOSES[4004]) from error
    except discord.PrivilegedIntentsRequired:
        raise
    except discord.ConnectionClosed as error:
        if error.code in _CLOSES:
            raise faults.DiscordError(_CLOSES[error.code]) from error
        told = f"Discord closed the connection ({error.code})."
        raise faults.DiscordLostError(told) from error
    except TimeoutError as error:
        raise faults.DiscordLostError("Discord did not answer in time.") from error
    except discord.HTTPException as error:
        told = f"Discord refuses to be used (status {error.status}, code {error.code})."
        raise faults.DiscordLostError(told) from error
    except (*faults.CONNECTION, discord.GatewayNotFound, discord.RateLimited) as error:
        raise faults.DiscordLostError("Discord cannot be reached.") from error


async def _close(
    client: clients.Client,
    connection: asyncio.Task[None],
    requester: requesting.Requester,
    chosen: settings.Discord,
) -> None:
    """Stop hearing, let answers be finished and shown, then let go."""
    client.is_leaving = client.interactor.is_leaving = True
    try:
        async with asyncio.timeout(chosen.closing_seconds):
            await requester.drained()
    except TimeoutError:
        _log.warning("some answers could not be finished")
        requester.cancel()
        await requester.drained()
    await client.close()
    connection.cancel()
    await asyncio.wait((connection,))
    if not connection.cancelled() and (error := connection.exception()) is not None:
        _log.info("the connection to Discord had ended", exc_info=error)


def _notifying(client: clients.Client, requester: requesting.Requester) -> conversations.Notify:
    """Return what says a sentence in a conversation."""

    async def notify(key: values.SessionKey, sentence: str) -> None:
        number = places.channel_of(key)
        if number is None:
            return
        guild_id = int(key.workspace) if key.workspace else None
        channel = client.get_partial_messageable(number, guild_id=guild_id)
        try:
            await channel.send(escaping.small(f"🔹 {escaping.plain(sentence)}"))
        except faults.ANY as error:
            raise faults.DiscordError("Discord did not take the message.") from error
        if client.user is not None:
            # What there is to tell may be that the bot was killed in the midst of an answer.
            await stale_answers.mend_all(channel, client.user.id, requester.is_running)

    return notify
