"""Messages: which are for us, from whom, about what; they become requests.

A mention in a channel comes as two events, and any event may come again, to another replica as
well: a message is claimed before anything is done about it.
"""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.slack import (
    commands,
    file_downloads,
    installations,
    live_messages,
    message_order,
    message_parsing,
    message_requests,
    permissions,
    posted_messages,
    requests_in_flight,
    thread_history,
    web_api,
)
from interpreter_bot.sessions import requests
from interpreter_bot.text import quantities

PLATFORM: Final = "slack"
_TITLE_CHARACTERS: Final = 80
_MOST_ANSWERS: Final = 1_000
_PAST_LOOKED_AT: Final = 20
_ELSEWHERE: Final = (
    "Python waits for an answer to what it asked above, in another process of this bot. Say it "
    "again, which may reach that one; or mention me for something new."
)
_Ready: TypeAlias = Callable[[], Awaitable[None]]


class MessageEvents:
    """Hears messages and answers those that are for us."""

    def __init__(
        self,
        turns: requests_in_flight.RequestsInFlight,
        api: web_api.WebApi,
        door: permissions.Permissions,
        known: thread_history.ThreadHistory,
        fetched: file_downloads.FileDownloads,
        said: commands.Commands,
        config: settings.Slack,
    ) -> None:
        self._turns = turns
        self._conversations = turns.conversations
        self._api = api
        self._door = door
        self._threads = known
        self._downloads = fetched
        self._commands = said
        self._options = config
        self._answers: collections.deque[tuple[str, str, str]]
        self._answers = collections.deque(maxlen=_MOST_ANSWERS)
        self._orders = message_order.MessageOrder()

    async def hear(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any], event_id: str
    ) -> None:
        """Hear a `message` or an `app_mention`."""
        match event.get("subtype"):
            case "message_changed":
                await self._hear_edit(workspace, event, event_id)
                return
            case "message_deleted":
                channel, ts = str(event.get("channel", "")), str(event.get("deleted_ts", ""))
                await self._turns.withdraw_message(workspace.team, channel, ts)
                return
        message = message_parsing.message(event)
        if message is None or message.user == workspace.bot_user:
            return
        self._threads.hear(workspace.team, message)
        async with self._orders.at((workspace.team, message.channel, message.root)):
            ready = await self._heard(workspace, message, event_id)
        if ready is not None:
            await ready()

    async def _heard(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        event_id: str,
    ) -> _Ready | None:
        """Claim a message and prepare what it leads to, if anything."""
        thread = (workspace.team, message.channel, message.root)
        is_mention = message_parsing.mentions(message.text, workspace.bot_user)
        is_answer = self._turns.questions.waits(thread, message.user) and not is_mention
        if not is_answer and not await self._is_for_us(workspace, message):
            return None
        if not await self._claim(workspace, message, event_id):
            return None
        text = message_parsing.words(message.text, workspace.bot_user)
        if is_answer and self._turns.questions.tell(thread, message.user, text):
            self._answers.append((workspace.team, message.channel, message.ts))
            return None
        return await self._prepared(workspace, message)

    async def _claim(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        event_id: str,
    ) -> bool:
        """Say whether nobody has taken a message before."""
        if event_id and not await self._conversations.claim(PLATFORM, event_id):
            return False
        name = f"{workspace.team}/{message.channel}/{message.ts}/{message.edited}"
        return await self._conversations.claim(PLATFORM, name)

    async def _is_for_us(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> bool:
        if message.is_direct or message_parsing.mentions(message.text, workspace.bot_user):
            return True
        if not message.thread:
            return False
        key = self._key(workspace, message, is_channels=False)
        team, channel, root = workspace.team, message.channel, message.thread
        is_ours = bool(self._threads.is_channels(team, channel, root))
        # Asks the database, not Slack: most threads are nothing of ours.
        past = await self._conversations.history(key, most=_PAST_LOOKED_AT)
        if not is_ours and not past:
            return False
        chosen = await message_requests.chosen(self._conversations, key, self._options)
        if not chosen.follows_threads:
            return False
        thread = await self._threads.read(workspace, channel, root, message.ts)
        # Where a thread cannot be read, the store remembers who talked with the bot there.
        people = thread.people if thread.is_whole else thread.people | {t.person for t in past}
        return people == {message.user} or self._waits_elsewhere(thread, message)

    def _waits_elsewhere(
        self, thread: thread_history.Thread, message: message_parsing.Message
    ) -> bool:
        """Say whether a message answers a question that another process has asked."""
        is_answer = bool(thread.question) and thread.asks == message.user
        return is_answer and not self._turns.questions.is_ours(thread.question)

    def _key(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        *,
        is_channels: bool,
    ) -> values.SessionKey:
        root = "" if is_channels else message.root
        return values.SessionKey(PLATFORM, workspace.team, message.channel, root)

    async def _prepared(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> _Ready | None:
        """Prepare what a message for us leads to; None where nothing more is to be done."""
        place = posted_messages.place_of(workspace, message)
        try:
            profile = await self._door.require(
                workspace, message.user, message.channel, user_team=message.user_team
            )
        except permissions.NotAllowedError as error:
            await posted_messages.whisper(self._api, place, str(error))
            return None
        text = message_parsing.words(message.text, workspace.bot_user)
        command = commands.parse(text) if not message.files else None
        if command is None or command.name == "py" or not command.is_for_mentions:
            return await self._asked(workspace, message, place, profile, text)
        thread = await self._thread(workspace, message)
        key = self._key(workspace, message, is_channels=thread.is_channels)
        return functools.partial(self._commands.run, command, key, place, profile)

    async def _thread(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> thread_history.Thread:
        if not message.thread:
            return thread_history.Thread()
        return await self._threads.read(workspace, message.channel, message.thread, message.ts)

    async def _asked(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        place: posted_messages.Place,
        profile: permissions.Profile,
        text: str,
    ) -> _Ready | None:
        """Make a request of a message, having given a sign first."""
        known = self._threads.is_channels(workspace.team, message.channel, message.root)
        key = self._key(workspace, message, is_channels=bool(known))
        shown: live_messages.LiveMessage | None = None
        # Without words there may be nothing to do, which would be an odd thing to work on.
        if not message_requests.is_raw(message, text) and (text or message.files):
            title = quantities.one_line(text, _TITLE_CHARACTERS) if not message.thread else ""
            shown = await self._turns.begin(key, place, message.id, title=title)
        try:
            request = await self._request(workspace, message, profile)
        except errors.BotError as error:
            if shown is None:
                await posted_messages.whisper(self._api, place, str(error))
            else:
                self._turns.forget(shown)
                await shown.refuse(str(error))
            return None
        if shown is None:
            # Now rather than when it is taken: what is said next waits its turn behind it.
            heading = live_messages.heading(profile.name, request.text)
            shown = await self._turns.begin(request.key, place, message.id, heading=heading)
        self._threads.answer(workspace.team, message)
        shown.stop_key = requests_in_flight.stop_value(request.key, message.id)
        return functools.partial(self._take, request, place, shown)

    async def _request(
        self,
        workspace: installations.InstalledWorkspace,
        message: message_parsing.Message,
        profile: permissions.Profile,
    ) -> requests.Request:
        """Make a request of a message.

        Raises:
            BotError: there is nothing to be done, or it cannot be done here.
        """
        thread = await self._thread(workspace, message)
        is_mention = message_parsing.mentions(message.text, workspace.bot_user)
        if self._waits_elsewhere(thread, message) and not is_mention:
            raise errors.BotError(_ELSEWHERE)
        key = self._key(workspace, message, is_channels=thread.is_channels)
        person = requests.Person(profile.user, profile.name)
        return await message_requests.request(
            self._conversations,
            self._door,
            self._downloads,
            workspace,
            message_requests.ParsedRequest(message, thread, key, person),
            config=self._options,
        )

    async def _take(
        self,
        request: requests.Request,
        place: posted_messages.Place,
        shown: live_messages.LiveMessage,
    ) -> None:
        await self._turns.take(request, place, shown)
        if request.is_code:
            return
        begun = await self._conversations.history(request.key, most=2)
        if len(begun) < 2:
            await self._conversations.rename(request.key, requests_in_flight.title_of(request))

    async def _hear_edit(
        self, workspace: installations.InstalledWorkspace, event: Mapping[str, Any], event_id: str
    ) -> None:
        """Answer a message anew that its author changed, while it is fresh."""
        facts = event.get("message") or {}
        before = event.get("previous_message") or {}
        message = message_parsing.message(facts, str(event.get("channel", "")))
        if message is None or not message.edited or before.get("text") == message.text:
            # Slack says that a message changed also when it unfurls a link in it.
            return
        if (facts.get("edited") or {}).get("user") != message.user:
            return
        if (workspace.team, message.channel, message.ts) in self._answers:
            # It was an answer to Python, which has it.
            return
        if time.time() - float(message.ts) > self._options.edit_seconds:
            return
        async with self._orders.at((workspace.team, message.channel, message.root)):
            if not await self._is_for_us(workspace, message):
                return
            if not await self._claim(workspace, message, event_id):
                return
            await self._turns.withdraw_message(workspace.team, message.channel, message.ts)
            ready = await self._prepared(workspace, message)
        if ready is not None:
            await ready()
