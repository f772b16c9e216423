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

CHANNELS_OWN: Final = "channel"
"""Metadata of our first message of a thread that says: the channel's own kernel is used here."""
ASKS: Final = "asks"
QUESTION: Final = "question"
"""Metadata of a message that says: Python waits for this person's next message."""

_PAGE: Final = 200
_MAX_PAGES: Final = 5
_AROUND_MESSAGES: Final = 12
_AROUND_SECONDS: Final = 3600.0
_CONTEXT_MESSAGES: Final = 20
_MAX_KNOWN: Final = 5_000
_MAX_HEARD: Final = 2_000
_MAX_PEOPLE: Final = 100
_MAX_READ: Final = 200
_WANTS_FILES: Final = re.compile(
    r"\b(?:files?|attach\w*|uploads?|uploaded|above|earlier|previous|spreadsheets?|csv|pdf"
    r"|excel|xlsx|documents?|images?|pictures?|data)\b",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Thread:
    """The history of one thread.

    Attributes:
        before: people's messages since the bot last spoke, without the one that is answered.
        people: who wrote in it.
        with_files: people's messages with files, before the one that is answered.
        joined: timestamp of the first message that mentions the bot, or is its own; empty if there
            is none, or it is unknown.
        is_whole: it was read from its beginning to its end; else it is what was received of it.
        uses_channel_kernel: it hangs on raw code that ran in the channel's kernel.
        asks: the person whom Python asked what is to be answered now; empty for none.
        question: its id.
    """

    before: tuple[message_parsing.Message, ...] = ()
    people: frozenset[str] = frozenset()
    with_files: tuple[message_parsing.Message, ...] = ()
    joined: str = ""
    is_whole: bool = True
    uses_channel_kernel: bool = False
    asks: str = ""
    question: str = ""


@dataclasses.dataclass(slots=True)
class _Heard:
    """What this process received in a thread: the latest messages, and who wrote any."""

    messages: collections.deque[message_parsing.Message]
    people: set[str]
    answered: str = ""


class ThreadHistory:
    """Reads threads from Slack, and records what the process receives.

    Apps that are distributed outside of Slack's Marketplace may read once a minute, and 15
    messages then: received messages stand in for what cannot be read. None of it is stored.
    """

    def __init__(self, api: web_api.WebApi) -> None:
        self._api = api
        self._bots = frozenset(api.config.heard_bots)
        self._heard = cachetools.LRUCache[tuple[str, str, str], _Heard](_MAX_HEARD)
        self._read = cachetools.LRUCache[tuple[str, str, str, str], Thread](_MAX_READ)
        self._known = cachetools.LRUCache[tuple[str, str, str], bool](_MAX_KNOWN)
        self._questions = cachetools.LRUCache[str, str](_MAX_KNOWN)

    def uses_channel_kernel(self, team: str, channel: str, root: str) -> bool | None:
        """Return whether a thread uses the channel's kernel; None if unknown."""
        return self._known.get((team, channel, root))

    def remember(self, team: str, channel: str, root: str, *, uses_channel_kernel: bool) -> None:
        """Remember whose kernel a thread uses."""
        self._known[team, channel, root] = uses_channel_kernel

    def thread_of_question(self, question_id: str) -> str:
        """Return the thread in which a channel's session asks; empty if unknown."""
        return self._questions.get(question_id, "")

    def remember_question(self, question_id: str, root: str) -> None:
        """Remember in which thread a channel's session asks."""
        self._questions[question_id] = root

    def record_message(self, team: str, message: message_parsing.Message) -> None:
        """Record a message in a thread, or one that begins a thread."""
        key = (team, message.channel, message.root)
        heard = self._heard.get(key)
        if heard is None:
            heard = self._heard[key] = _Heard(collections.deque(maxlen=_CONTEXT_MESSAGES), set())
        if all(other.ts != message.ts for other in heard.messages):
            heard.messages.append(message)
        if len(heard.people) < _MAX_PEOPLE:
            heard.people.add(message.user)

    def answer(self, team: str, message: message_parsing.Message) -> None:
        """Record that a message is being answered: what was said before is known from now on."""
        heard = self._heard.get((team, message.channel, message.root))
        if heard is not None:
            heard.answered = max(heard.answered, message.ts)

    async def read(
        self, workspace: installations.InstalledWorkspace, channel: str, root: str, until: str
    ) -> Thread:
        """Read a thread, up to a message; what cannot be read is replaced by what was received."""
        key = (workspace.team, channel, root)
        # Whether a message is for us and what it is about is asked one after the other.
        thread = self._read.get((*key, until))
        if thread is not None:
            return thread
        messages, is_whole = await self._messages(workspace, channel, root)
        thread = _read(workspace, channel, messages, until, self._bots)
        if messages:
            self.remember(
                workspace.team, channel, root, uses_channel_kernel=thread.uses_channel_kernel
            )
        if not is_whole:
            uses_channel_kernel = thread.uses_channel_kernel or bool(
                self.uses_channel_kernel(workspace.team, channel, root)
            )
            thread = self._with_heard(
                thread, self._heard.get(key), until, uses_channel_kernel=uses_channel_kernel
            )
        # Messages that were requests, or came with one, are not told again.
        heard = self._heard.get(key)
        answered = heard.answered if heard is not None else ""
        before = tuple(message for message in thread.before if message.ts > answered)
        thread = dataclasses.replace(thread, before=before)
        self._read[(*key, until)] = thread
        return thread

    async def around(
        self, workspace: installations.InstalledWorkspace, message: message_parsing.Message
    ) -> tuple[message_parsing.Message, ...]:
        """Read what was said last in the channel of a message that begins a thread, for others."""
        try:
            answer = await self._api.call(
                workspace,
                "conversations.history",
                max_seconds=1.0,
                channel=message.channel,
                latest=message.ts,
                limit=_AROUND_MESSAGES,
            )
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            _log.info("a channel could not be read: %s", error)
            return ()
        oldest = f"{float(message.ts) - _AROUND_SECONDS:.6f}"
        earlier = [
            _message(facts, message.channel, self._bots)
            for facts in reversed(answer.get("messages", ()))
            if oldest < str(facts.get("ts", "")) < message.ts and not workspace.has_written(facts)
        ]
        # A mention is a request of a conversation of its own.
        return tuple(
            entry
            for entry in earlier
            if entry and not message_parsing.mentions(entry.text, workspace.bot_user)
        )

    def _with_heard(
        self, thread: Thread, heard: _Heard | None, until: str, *, uses_channel_kernel: bool
    ) -> Thread:
        found = heard.messages if heard is not None else ()
        earlier = [message for message in found if message.ts < until]
        with_files = {message.ts: message for message in thread.with_files}
        with_files |= {message.ts: message for message in earlier if message.files}
        return dataclasses.replace(
            thread,
            before=tuple(earlier),
            people=thread.people | (heard.people if heard is not None else set()),
            with_files=tuple(with_files.values()),
            is_whole=False,
            uses_channel_kernel=uses_channel_kernel,
        )

    async def _messages(
        self, workspace: installations.InstalledWorkspace, channel: str, root: str
    ) -> tuple[list[Mapping[str, Any]], bool]:
        """Read a thread from its beginning, which is the only way Slack gives it.

        Returns:
            What could be read, and whether that is all of it.
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
                    limit=_PAGE,
                    cursor=cursor,
                    include_all_metadata=True,
                )
            except api_errors.GoneError:
                raise
            except api_errors.SlackError as error:
                _log.info("a thread could not be read: %s", error)
                return messages, False
            # The root comes with every page.
            known = bool(messages)
            page = answer.get("messages", ())
            messages += [m for m in page if not known or m.get("ts") != root]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                return messages, True
        return messages, False


def _read(
    workspace: installations.InstalledWorkspace,
    channel: str,
    messages: Sequence[Mapping[str, Any]],
    until: str,
    bots: frozenset[str],
) -> Thread:
    said: list[message_parsing.Message] = []
    people: set[str] = set()
    with_files: list[message_parsing.Message] = []
    asked: Mapping[str, Any] = {}
    first = messages[0] if messages else {}
    for facts in messages:
        is_own = workspace.has_written(facts)
        message = None if is_own else _message(facts, channel, bots)
        if message is not None and not message.bot:
            people.add(message.user)
        if str(facts.get("ts", "")) >= until:
            continue
        if is_own and not _facts(facts).get(message_posting.NO_ANSWER):
            said.clear()
            asked = _facts(facts)
        elif message is not None:
            said.append(message)
            with_files += [message] if message.files else []
    is_ours = workspace.has_written(first)
    with_bot = [
        str(facts.get("ts", ""))
        for facts in messages
        if workspace.has_written(facts)
        or message_parsing.mentions(str(facts.get("text", "")), workspace.bot_user)
    ]
    return Thread(
        tuple(said),
        frozenset(people),
        tuple(with_files),
        min(with_bot, default=""),
        uses_channel_kernel=is_ours and _facts(first).get("kernel") == CHANNELS_OWN,
        asks=str(asked.get(ASKS, "")),
        question=str(asked.get(QUESTION, "")),
    )


def _message(
    facts: Mapping[str, Any], channel: str, bots: frozenset[str]
) -> message_parsing.Message | None:
    """Parse a message of a person, or of an app whose messages are told."""
    if facts.get("bot_id") in bots:
        return message_parsing.message_of_bot(facts, channel)
    return message_parsing.message(facts, channel)


def _facts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a message of the bot."""
    return (message.get("metadata") or {}).get("event_payload") or {}


def recent(
    before: Sequence[message_parsing.Message], names: Mapping[str, str]
) -> tuple[requests.RecentMessage, ...]:
    """Return earlier messages as the model is told them, with who wrote each."""
    return tuple(
        requests.RecentMessage(
            speaker=message.bot_name or names.get(message.user, ""),
            text=message_parsing.words(message.text),
            files=tuple(str(file.get("name", "file")) for file in message.files),
            is_bot=bool(message.bot),
        )
        for message in before[-_CONTEXT_MESSAGES:]
    )


def files_asked_for(
    files: Sequence[Mapping[str, Any]], text: str, present: frozenset[str]
) -> list[Mapping[str, Any]]:
    """Return those of the files shared earlier that a person now asks for."""
    missing = [file for file in files if str(file.get("name", "")) not in present]
    named = [file for file in missing if _is_named(str(file.get("name", "")), text)]
    if named:
        return named
    return missing if _WANTS_FILES.search(text) else []


def _is_named(name: str, text: str) -> bool:
    stem = name.rpartition(".")[0] or name
    return bool(stem) and (name.lower() in text.lower() or stem.lower() in text.lower().split())
