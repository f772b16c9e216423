"""Messages: which are for us, from whom, about what; they become requests.

A mention in a channel comes as two events, and any event may come again, to another replica as
well: a message is claimed before anything is done about it.
"""

from __future__ import annotations

import asyncio
import functools
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import (
    admitting,
    answering,
    commands,
    downloads,
    incoming,
    places,
    posts,
    sending,
    showing,
    threads,
    turning,
    workspaces,
)
from interpreter_bot.sessions import requests

PLATFORM: Final = "slack"
_TITLE_CHARACTERS: Final = 80
_Ready: TypeAlias = Callable[[], Awaitable[None]]


class Listener:
    """Hears messages and answers those that are for us."""

    def __init__(
        self,
        turns: turning.Turns,
        sender: sending.Sender,
        door: admitting.Doorkeeper,
        known: threads.Threads,
        fetched: downloads.Downloads,
        said: commands.Commands,
        slack: settings.Slack,
    ) -> None:
        self._turns = turns
        self._conversations = turns.conversations
        self._sender = sender
        self._door = door
        self._threads = known
        self._downloads = fetched
        self._commands = said
        self._options = slack
        self._orders: weakref.WeakValueDictionary[tuple[str, str, str], asyncio.Lock]
        self._orders = weakref.WeakValueDictionary()

    async def hear(
        self, workspace: workspaces.Workspace, event: Mapping[str, Any], event_id: str
    ) -> None:
        """Hear a `message` or an `app_mention`."""
        if event.get("subtype") == "message_changed":
            await self._hear_edit(workspace, event, event_id)
            return
        message = incoming.message(event)
        if message is None or message.user == workspace.bot_user:
            return
        # What people say in one thread is taken in the order in which it came.
        async with self._order(workspace, message):
            ready = await self._heard(workspace, message, event_id)
        if ready is not None:
            await ready()

    def _order(self, workspace: workspaces.Workspace, message: incoming.Message) -> asyncio.Lock:
        thread = (workspace.team, message.channel, message.root)
        lock = self._orders.get(thread) or asyncio.Lock()
        self._orders[thread] = lock
        return lock

    async def _heard(
        self, workspace: workspaces.Workspace, message: incoming.Message, event_id: str
    ) -> _Ready | None:
        """Claim a message and prepare what it leads to, if anything."""
        thread = (workspace.team, message.channel, message.root)
        is_mention = incoming.mentions(message.text, workspace.bot_user)
        is_answer = self._turns.questions.waits(thread, message.user) and not is_mention
        if not is_answer and not await self._is_for_us(workspace, message):
            return None
        if not await self._claim(workspace, message, event_id):
            return None
        text = incoming.words(message.text, workspace.bot_user)
        if is_answer and self._turns.questions.tell(thread, message.user, text):
            return None
        return await self._prepared(workspace, message)

    async def _claim(
        self, workspace: workspaces.Workspace, message: incoming.Message, event_id: str
    ) -> bool:
        """Say whether nobody has taken a message before."""
        if event_id and not await self._conversations.claim(PLATFORM, event_id):
            return False
        name = f"{workspace.team}/{message.channel}/{message.ts}/{message.edited}"
        return await self._conversations.claim(PLATFORM, name)

    async def _is_for_us(self, workspace: workspaces.Workspace, message: incoming.Message) -> bool:
        if message.is_direct or incoming.mentions(message.text, workspace.bot_user):
            return True
        if not message.thread or not self._options.follows_threads:
            return False
        key = self._key(workspace, message, is_channels=False)
        team, channel, root = workspace.team, message.channel, message.thread
        is_ours = bool(self._threads.is_channels(team, channel, root))
        # Asks the database, not Slack: most threads are nothing of ours.
        if not is_ours and not await self._conversations.history(key, most=1):
            return False
        thread = await self._threads.read(workspace, channel, root, message.ts)
        return thread.people == {message.user}

    def _key(
        self, workspace: workspaces.Workspace, message: incoming.Message, *, is_channels: bool
    ) -> values.SessionKey:
        root = "" if is_channels else message.root
        return values.SessionKey(PLATFORM, workspace.team, message.channel, root)

    async def _prepared(
        self, workspace: workspaces.Workspace, message: incoming.Message
    ) -> _Ready | None:
        """Prepare what a message for us leads to; None where nothing more is to be done."""
        place = place_of(workspace, message)
        try:
            profile = await self._door.admit(
                workspace, message.user, message.channel, user_team=message.user_team
            )
        except admitting.NotAllowedError as error:
            await posts.whisper(self._sender, place, str(error))
            return None
        text = incoming.words(message.text, workspace.bot_user)
        command = commands.parse(text) if not message.files else None
        if command is None or command.name == "py" or not command.is_for_mentions:
            return await self._asked(workspace, message, place, profile, text)
        thread = await self._thread(workspace, message)
        key = self._key(workspace, message, is_channels=thread.is_channels)
        return functools.partial(self._commands.run, command, key, place, profile)

    async def _thread(
        self, workspace: workspaces.Workspace, message: incoming.Message
    ) -> threads.Thread:
        if not message.thread:
            return threads.Thread()
        return await self._threads.read(workspace, message.channel, message.thread, message.ts)

    async def _asked(
        self,
        workspace: workspaces.Workspace,
        message: incoming.Message,
        place: places.Place,
        profile: admitting.Profile,
        text: str,
    ) -> _Ready | None:
        """Make a request of a message, having given a sign first."""
        known = self._threads.is_channels(workspace.team, message.channel, message.root)
        key = self._key(workspace, message, is_channels=bool(known))
        shown: showing.Showing | None = None
        # Without words there may be nothing to do, which would be an odd thing to work on.
        if not answering.is_raw(message, text) and (text or message.files):
            shown = self._turns.show(key, place, message.id)
            await shown.begin(text[:_TITLE_CHARACTERS] if not message.thread else "")
        thread = await self._thread(workspace, message)
        key = self._key(workspace, message, is_channels=thread.is_channels)
        if shown is not None:
            shown.stop_key = turning.stop_value(key, message.id)
        person = requests.Person(profile.user, profile.name)
        try:
            request = await answering.request(
                self._conversations,
                self._door,
                self._downloads,
                workspace,
                answering.Asked(message, thread, key, person),
                default=self._options.approval,
            )
        except errors.BotError as error:
            await posts.whisper(self._sender, place, str(error))
            return None
        return functools.partial(self._take, request, place, shown, profile.name, message)

    async def _take(
        self,
        request: requests.Request,
        place: places.Place,
        shown: showing.Showing | None,
        name: str,
        message: incoming.Message,
    ) -> None:
        heading = showing.heading(name, request.text) if request.is_code else ""
        await self._turns.take(request, place, shown=shown, heading=heading)
        if not message.thread and not request.is_code:
            await self._conversations.rename(request.key, turning.title_of(request))

    async def _hear_edit(
        self, workspace: workspaces.Workspace, event: Mapping[str, Any], event_id: str
    ) -> None:
        """Answer a message anew that its author changed, while it is fresh."""
        facts = event.get("message") or {}
        before = event.get("previous_message") or {}
        message = incoming.message(facts, str(event.get("channel", "")))
        if message is None or not message.edited or before.get("text") == message.text:
            # Slack says that a message changed also when it unfurls a link in it.
            return
        if (facts.get("edited") or {}).get("user") != message.user:
            return
        if time.time() - float(message.ts) > self._options.edit_seconds:
            return
        if not await self._is_for_us(workspace, message):
            return
        if not await self._claim(workspace, message, event_id):
            return
        await self._turns.withdraw_message(workspace.team, message.channel, message.ts)
        async with self._order(workspace, message):
            ready = await self._prepared(workspace, message)
        if ready is not None:
            await ready()


def place_of(workspace: workspaces.Workspace, message: incoming.Message) -> places.Place:
    """Say where the answer to a message goes: into its thread."""
    return places.Place(
        workspace,
        channel=message.channel,
        thread=message.root,
        asked=message.ts,
        user=message.user,
        user_team=message.user_team,
    )
