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
    questions_to_people,
    web_api,
)

_log = logging.getLogger(__name__)

CHANNELS_OWN: Final = "channel"
"""Metadata of our first message of a thread that says: the channel's own kernel is used here."""

_PAGE: Final = 200
_MOST_PAGES: Final = 5
_CONTEXT_CHARACTERS: Final = 6_000
_CONTEXT_MESSAGES: Final = 20
_MOST_KNOWN: Final = 5_000
_MOST_HEARD: Final = 2_000
_MOST_PEOPLE: Final = 100
_MOST_READ: Final = 200
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
        is_whole: it was read from its beginning to its end; else it is what was received of it.
        is_channels: it hangs on raw code that ran in the channel's kernel.
        asks: the person whom Python asked what is to be answered now; empty for none.
        question: its id.
    """

    before: tuple[message_parsing.Message, ...] = ()
    people: frozenset[str] = frozenset()
    with_files: tuple[message_parsing.Message, ...] = ()
    is_whole: bool = True
    is_channels: bool = False
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
        self._heard = cachetools.LRUCache[tuple[str, str, str], _Heard](_MOST_HEARD)
        self._read = cachetools.LRUCache[tuple[str, str, str, str], Thread](_MOST_READ)
        self._known = cachetools.LRUCache[tuple[str, str, str], bool](_MOST_KNOWN)

    def is_channels(self, team: str, channel: str, root: str) -> bool | None:
        """Return whether a thread uses the channel's kernel; None if unknown."""
        return self._known.get((team, channel, root))

    def remember(self, team: str, channel: str, root: str, *, is_channels: bool) -> None:
        """Remember whose kernel a thread uses."""
        self._known[team, channel, root] = is_channels

    def hear(self, team: str, message: message_parsing.Message) -> None:
        """Record a message in a thread, or one that begins a thread."""
        key = (team, message.channel, message.root)
        heard = self._heard.get(key)
        if heard is None:
            heard = self._heard[key] = _Heard(collections.deque(maxlen=_CONTEXT_MESSAGES), set())
        if all(other.ts != message.ts for other in heard.messages):
            heard.messages.append(message)
        if len(heard.people) < _MOST_PEOPLE:
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
        thread = _read(workspace, channel, messages, until)
        if messages:
            self.remember(workspace.team, channel, root, is_channels=thread.is_channels)
        if not is_whole:
            is_channels = thread.is_channels or bool(
                self.is_channels(workspace.team, channel, root)
            )
            thread = self._with_heard(thread, self._heard.get(key), until, is_channels=is_channels)
        self._read[(*key, until)] = thread
        return thread

    def _with_heard(
        self, thread: Thread, heard: _Heard | None, until: str, *, is_channels: bool
    ) -> Thread:
        found = heard.messages if heard is not None else ()
        answered = heard.answered if heard is not None else ""
        earlier = [message for message in found if message.ts < until]
        with_files = {message.ts: message for message in thread.with_files}
        with_files |= {message.ts: message for message in earlier if message.files}
        return dataclasses.replace(
            thread,
            before=tuple(message for message in earlier if message.ts > answered),
            people=thread.people | (heard.people if heard is not None else set()),
            with_files=tuple(with_files.values()),
            is_whole=False,
            is_channels=is_channels,
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
        for _ in range(_MOST_PAGES):
            try:
                answer = await self._api.call(
                    workspace,
                    "conversations.replies",
                    most_seconds=2.0,
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
) -> Thread:
    said: list[message_parsing.Message] = []
    people: set[str] = set()
    with_files: list[message_parsing.Message] = []
    asked: Mapping[str, Any] = {}
    first = messages[0] if messages else {}
    for facts in messages:
        is_own = workspace.has_written(facts)
        message = None if is_own else message_parsing.message(facts, channel)
        if message is not None:
            people.add(message.user)
        if str(facts.get("ts", "")) >= until:
            continue
        if is_own:
            said.clear()
            asked = _facts(facts)
        elif message is not None:
            said.append(message)
            with_files += [message] if message.files else []
    is_ours = workspace.has_written(first)
    return Thread(
        tuple(said),
        frozenset(people),
        tuple(with_files),
        is_channels=is_ours and _facts(first).get("kernel") == CHANNELS_OWN,
        asks=str(asked.get(questions_to_people.ASKS, "")),
        question=str(asked.get(questions_to_people.QUESTION, "")),
    )


def _facts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a message of the bot."""
    return (message.get("metadata") or {}).get("event_payload") or {}


def context(before: Sequence[message_parsing.Message], names: Mapping[str, str]) -> str:
    """Format the earlier messages as context, the latest words rather than the first ones."""
    lines: list[str] = []
    size = 0
    for message in reversed(before[-_CONTEXT_MESSAGES:]):
        told = [message_parsing.words(message.text)]
        told += [f"[file: {file.get('name', 'file')}]" for file in message.files]
        line = f"{names.get(message.user, 'Somebody')}: {' '.join(filter(None, told))}"
        size += len(line)
        if size > _CONTEXT_CHARACTERS:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


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
