"""History of threads: earlier messages, participants, and which session's kernel they use."""

from __future__ import annotations

import collections
import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cachetools

from interpreter_bot.platforms.slack import (
    api_errors,
    installations,
    message_parsing,
    message_posting,
    web_api,
)
from interpreter_bot.sessions import requests

_log = logging.getLogger(__name__)

CHANNEL_KERNEL: Final = "channel"
"""Metadata of the first message of a thread that uses the channel's own kernel."""

_MESSAGES_PER_PAGE: Final = 200
_MAX_PAGES: Final = 5
_MAX_CONTEXT_AGE_SECONDS: Final = 3600.0
_MAX_MESSAGES_PER_THREAD: Final = 20
_MAX_REMEMBERED_THREADS: Final = 5_000
_MAX_RECEIVED_THREADS: Final = 2_000
_MAX_PEOPLE: Final = 100
_MAX_CACHED_THREADS: Final = 200
_WORD_ABOUT_FILES: Final = re.compile(
    r"\b(?:files?|attach\w*|uploads?|uploaded|above|earlier|previous|spreadsheets?|csv|pdf"
    r"|excel|xlsx|documents?|images?|pictures?|data)\b",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Thread:
    """The history of one thread.

    Attributes:
        before: people's messages since the bot's last one, without the request itself.
        people: everybody who wrote in it.
        messages_with_files: people's messages with files, before the request.
        joined_at: timestamp of the first message that mentions the bot, or is its own; empty if
            there is none, or it is unknown.
        is_whole: all of it was read; otherwise it holds what this process received.
        uses_channel_kernel: it began with code that ran in the channel's kernel.
    """

    before: tuple[message_parsing.Message, ...] = ()
    people: frozenset[str] = frozenset()
    messages_with_files: tuple[message_parsing.Message, ...] = ()
    joined_at: str = ""
    is_whole: bool = True
    uses_channel_kernel: bool = False


@dataclasses.dataclass(slots=True)
class _Received:
    """What this process received of a thread.

    Attributes:
        messages: the latest ones.
        people: everybody who wrote in it.
        answered_until: timestamp of the latest message that became a request.
    """

    messages: collections.deque[message_parsing.Message]
    people: set[str]
    answered_until: str = ""


class ThreadHistory:
    """Reads threads from Slack, and records what the process receives.

    Apps that are not in Slack's Marketplace may read 15 messages once a minute, so received
    messages replace those that cannot be read. None of it is stored.
    """

    def __init__(self, api: web_api.WebApi) -> None:
        self._api = api
        self._bots = frozenset(api.config.heard_bots)
        self._received_threads = cachetools.LRUCache[tuple[str, str, str], _Received](
            _MAX_RECEIVED_THREADS
        )
        self._cache = cachetools.LRUCache[tuple[str, str, str, str], Thread](_MAX_CACHED_THREADS)
        self._kernel_uses = cachetools.LRUCache[tuple[str, str, str], bool](_MAX_REMEMBERED_THREADS)
        self._threads_by_question = cachetools.LRUCache[str, str](_MAX_REMEMBERED_THREADS)

    def uses_channel_kernel(self, team: str, channel: str, root: str) -> bool | None:
        """Return whether a thread uses the channel's kernel; None if unknown."""
        return self._kernel_uses.get((team, channel, root))

    def note_kernel_use(
        self, team: str, channel: str, root: str, *, uses_channel_kernel: bool
    ) -> None:
        """Remember whether a thread uses the channel's kernel."""
        self._kernel_uses[team, channel, root] = uses_channel_kernel

    def thread_of_question(self, question_id: str) -> str:
        """Return the thread of a question of a channel's session; empty if unknown."""
        return self._threads_by_question.get(question_id, "")

    def note_question(self, question_id: str, root: str) -> None:
        """Remember the thread of a question of a channel's session."""
        self._threads_by_question[question_id] = root

    def record_message(self, team: str, message: message_parsing.Message) -> None:
        """Record a message in a thread, or one that begins a thread."""
        key = (team, message.channel, message.root)
        received = self._received_threads.get(key)
        if received is None:
            received = self._received_threads[key] = _Received(
                collections.deque(maxlen=_MAX_MESSAGES_PER_THREAD), set()
            )
        if all(earlier.ts != message.ts for earlier in received.messages):
            received.messages.append(message)
        if len(received.people) < _MAX_PEOPLE:
            received.people.add(message.user)

    def mark_answered(self, team: str, message: message_parsing.Message) -> None:
        """Record that a message is being answered, so that earlier ones are not context again."""
        received = self._received_threads.get((team, message.channel, message.root))
        if received is not None:
            received.answered_until = max(received.answered_until, message.ts)

    async def read(
        self, workspace: installations.InstalledWorkspace, channel: str, root: str, until_ts: str
    ) -> Thread:
        """Read a thread up to a message; received messages replace those that cannot be read."""
        key = (workspace.team, channel, root)
        # A message is read once to see whether it is for the bot, and again for its request.
        thread = self._cache.get((*key, until_ts))
        if thread is not None:
            return thread
        messages, is_whole = await self._fetch_messages(workspace, channel, root)
        thread = _parse_thread(workspace, channel, messages, until_ts, self._bots)
        if messages:
            self.note_kernel_use(
                workspace.team, channel, root, uses_channel_kernel=thread.uses_channel_kernel
            )
        if not is_whole:
            uses_channel_kernel = thread.uses_channel_kernel or bool(
                self.uses_channel_kernel(workspace.team, channel, root)
            )
            thread = self._add_received(
                thread,
                self._received_threads.get(key),
                until_ts,
                uses_channel_kernel=uses_channel_kernel,
            )
        # The model knows the messages up to the latest request already.
        received_thread = self._received_threads.get(key)
        answered_until = received_thread.answered_until if received_thread is not None else ""
        before = tuple(message for message in thread.before if message.ts > answered_until)
        thread = dataclasses.replace(thread, before=before)
        self._cache[(*key, until_ts)] = thread
        return thread

    async def read_channel(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> tuple[message_parsing.Message, ...]:
        """Read the latest messages of the channel in which a message begins a thread."""
        try:
            answer = await self._api.call(
                workspace,
                "conversations.history",
                max_seconds=1.0,
                channel=message.channel,
                latest=message.ts,
                limit=self._api.config.context_messages,
            )
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            _log.info("a channel could not be read: %s", error)
            return ()
        oldest = f"{float(message.ts) - _MAX_CONTEXT_AGE_SECONDS:.6f}"
        earlier_messages = [
            _parse_message(content, message.channel, self._bots)
            for content in reversed(answer.get("messages", ()))
            if oldest < str(content.get("ts", "")) < message.ts
            and not workspace.is_author_of(content)
        ]
        # A message that mentions the bot began a conversation of its own.
        return tuple(
            earlier_message
            for earlier_message in earlier_messages
            if earlier_message
            and not message_parsing.mentions(earlier_message.text, workspace.bot_user)
        )

    def _add_received(
        self,
        thread: Thread,
        received: _Received | None,
        until_ts: str,
        *,
        uses_channel_kernel: bool,
    ) -> Thread:
        messages = received.messages if received is not None else ()
        earlier = [message for message in messages if message.ts < until_ts]
        messages_with_files = {message.ts: message for message in thread.messages_with_files}
        messages_with_files |= {message.ts: message for message in earlier if message.files}
        return dataclasses.replace(
            thread,
            before=tuple(earlier),
            people=thread.people | (received.people if received is not None else set()),
            messages_with_files=tuple(messages_with_files.values()),
            is_whole=False,
            uses_channel_kernel=uses_channel_kernel,
        )

    async def _fetch_messages(
        self, workspace: installations.InstalledWorkspace, channel: str, root: str
    ) -> tuple[list[Mapping[str, Any]], bool]:
        """Read a thread from its beginning, as Slack offers no other order.

        Returns:
            The messages that could be read, and whether these are all.
        """
        messages: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            try:
                answer = await self._api.call(
                    workspace,
                    "conversations.replies",
                    max_seconds=2.0,
                    channel=channel,
                    ts=root,
                    limit=_MESSAGES_PER_PAGE,
                    cursor=cursor,
                    include_all_metadata=True,
                )
            except api_errors.GoneError:
                raise
            except api_errors.SlackError as error:
                _log.info("a thread could not be read: %s", error)
                return messages, False
            # The root comes with every page.
            has_root = bool(messages)
            page = answer.get("messages", ())
            messages += [message for message in page if not has_root or message.get("ts") != root]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                return messages, True
        return messages, False


def _parse_thread(
    workspace: installations.InstalledWorkspace,
    channel: str,
    messages: Sequence[Mapping[str, Any]],
    until_ts: str,
    bots: frozenset[str],
) -> Thread:
    before: list[message_parsing.Message] = []
    people: set[str] = set()
    messages_with_files: list[message_parsing.Message] = []
    first = messages[0] if messages else {}
    for content in messages:
        is_own = workspace.is_author_of(content)
        message = None if is_own else _parse_message(content, channel, bots)
        if message is not None and not message.bot:
            people.add(message.user)
        if str(content.get("ts", "")) >= until_ts:
            continue
        if is_own and not message_posting.metadata_of(content).get(message_posting.NO_ANSWER):
            before.clear()
        elif message is not None:
            before.append(message)
            messages_with_files += [message] if message.files else []
    is_started_by_bot = workspace.is_author_of(first)
    bot_timestamps = [
        str(content.get("ts", ""))
        for content in messages
        if workspace.is_author_of(content)
        or message_parsing.mentions(str(content.get("text", "")), workspace.bot_user)
    ]
    return Thread(
        tuple(before),
        frozenset(people),
        tuple(messages_with_files),
        min(bot_timestamps, default=""),
        uses_channel_kernel=is_started_by_bot
        and message_posting.metadata_of(first).get("kernel") == CHANNEL_KERNEL,
    )


def _parse_message(
    content: Mapping[str, Any], channel: str, bots: frozenset[str]
) -> message_parsing.Message | None:
    """Parse a message of a person, or of an app that the settings list."""
    if content.get("bot_id") in bots:
        return message_parsing.parse_bot_message(content, channel)
    return message_parsing.parse_message(content, channel)


def recent_messages(
    before: Sequence[message_parsing.Message], names: Mapping[str, str], *, limit: int
) -> tuple[requests.RecentMessage, ...]:
    """Return the latest of earlier messages for the model, each with its author."""
    return tuple(
        requests.RecentMessage(
            speaker=message.bot_name or names.get(message.user, ""),
            text=message_parsing.readable_text(message.text),
            files=tuple(str(file.get("name", "file")) for file in message.files),
            is_bot=bool(message.bot),
        )
        for message in before[max(len(before) - limit, 0) :]
    )


def requested_files(
    files: Sequence[Mapping[str, Any]], text: str, present_names: frozenset[str]
) -> list[Mapping[str, Any]]:
    """Return those of the earlier files that a request refers to."""
    missing_files = [file for file in files if str(file.get("name", "")) not in present_names]
    named_files = [file for file in missing_files if _is_named(str(file.get("name", "")), text)]
    if named_files:
        return named_files
    return missing_files if _WORD_ABOUT_FILES.search(text) else []


def _is_named(name: str, text: str) -> bool:
    stem = name.rpartition(".")[0] or name
    return bool(stem) and (name.lower() in text.lower() or stem.lower() in text.lower().split())
