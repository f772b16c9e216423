"""Threads as they stand in Slack: what was said before, who talks, whose kernel is theirs."""

from __future__ import annotations

import collections
import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from interpreter_bot.platforms.slack import (
    asking,
    failures,
    incoming,
    sending,
    workspaces,
)

_log = logging.getLogger(__name__)

CHANNELS_OWN: Final = "channel"
"""The fact in our first message of a thread that says: here the channel's own kernel is used."""

_PAGE: Final = 200
_MOST_PAGES: Final = 5
_CONTEXT_CHARACTERS: Final = 6_000
_CONTEXT_MESSAGES: Final = 20
_MOST_KNOWN: Final = 5_000
_WANTS_FILES: Final = re.compile(
    r"\b(?:files?|attach\w*|uploads?|uploaded|above|earlier|previous|spreadsheets?|csv|pdf"
    r"|excel|xlsx|documents?|images?|pictures?|data)\b",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Thread:
    """What was read of one.

    Attributes:
        before: people's messages since the bot last spoke, without the one that is answered.
        people: who wrote in it.
        files: that people sent into it, before the message that is answered.
        is_channels: it hangs on raw code that ran in the channel's kernel.
        asks: whom Python asked what is to be answered now; nobody if empty.
        question: its id.
    """

    before: tuple[incoming.Message, ...] = ()
    people: frozenset[str] = frozenset()
    files: tuple[Mapping[str, Any], ...] = ()
    is_channels: bool = False
    asks: str = ""
    question: str = ""


class Threads:
    """Reads threads."""

    def __init__(self, sender: sending.Sender) -> None:
        self._sender = sender
        self._known: collections.OrderedDict[tuple[str, str, str], bool] = collections.OrderedDict()

    def is_channels(self, team: str, channel: str, root: str) -> bool | None:
        """Say whether a thread uses the channel's kernel, where that is known."""
        return self._known.get((team, channel, root))

    def remember(self, team: str, channel: str, root: str, *, is_channels: bool) -> None:
        """Remember whose kernel a thread uses."""
        self._known[team, channel, root] = is_channels
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    async def read(
        self, workspace: workspaces.Workspace, channel: str, root: str, until: str
    ) -> Thread:
        """Read a thread, up to a message; one that cannot be read is empty."""
        try:
            messages = await self._messages(workspace, channel, root)
        except failures.GoneError:
            raise
        except failures.SlackError as error:
            _log.info("a thread could not be read", exc_info=error)
            return Thread(is_channels=bool(self.is_channels(workspace.team, channel, root)))
        thread = _read(workspace, channel, messages, until)
        self.remember(workspace.team, channel, root, is_channels=thread.is_channels)
        return thread

    async def _messages(
        self, workspace: workspaces.Workspace, channel: str, root: str
    ) -> list[Mapping[str, Any]]:
        """Read a thread from its beginning, which is the only way Slack gives it.

        Raises:
            SlackError: it cannot be read.
        """
        messages: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            answer = await self._sender.call(
                workspace,
                "conversations.replies",
                most_seconds=2.0,
                channel=channel,
                ts=root,
                limit=_PAGE,
                cursor=cursor,
                include_all_metadata=True,
            )
            # The root comes with every page.
            known = bool(messages)
            page = answer.get("messages", ())
            messages += [m for m in page if not known or m.get("ts") != root]
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return messages


def _read(
    workspace: workspaces.Workspace,
    channel: str,
    messages: Sequence[Mapping[str, Any]],
    until: str,
) -> Thread:
    said: list[incoming.Message] = []
    people: set[str] = set()
    files: list[Mapping[str, Any]] = []
    asked: Mapping[str, Any] = {}
    first = messages[0] if messages else {}
    for facts in messages:
        message = incoming.message(facts, channel)
        if message is not None:
            people.add(message.user)
        if str(facts.get("ts", "")) >= until:
            continue
        if facts.get("bot_id") == workspace.bot:
            said.clear()
            asked = _facts(facts)
        elif message is not None:
            said.append(message)
            files += message.files
    is_ours = first.get("bot_id") == workspace.bot
    return Thread(
        tuple(said),
        frozenset(people),
        tuple(files),
        is_channels=is_ours and _facts(first).get("kernel") == CHANNELS_OWN,
        asks=str(asked.get(asking.ASKS, "")),
        question=str(asked.get(asking.QUESTION, "")),
    )


def _facts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what we noted in a message of ours."""
    return (message.get("metadata") or {}).get("event_payload") or {}


def context(before: Sequence[incoming.Message], names: Mapping[str, str]) -> str:
    """Say what was said before, the latest words rather than the first ones."""
    lines: list[str] = []
    size = 0
    for message in reversed(before[-_CONTEXT_MESSAGES:]):
        told = [incoming.words(message.text)]
        told += [f"[file: {file.get('name', 'file')}]" for file in message.files]
        line = f"{names.get(message.user, 'Somebody')}: {' '.join(filter(None, told))}"
        size += len(line)
        if size > _CONTEXT_CHARACTERS:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def wanted(
    files: Sequence[Mapping[str, Any]], text: str, present: frozenset[str]
) -> list[Mapping[str, Any]]:
    """Choose, of files that were shared earlier, those a person now asks for."""
    missing = [file for file in files if str(file.get("name", "")) not in present]
    named = [file for file in missing if _is_named(str(file.get("name", "")), text)]
    if named:
        return named
    return missing if _WANTS_FILES.search(text) else []


def _is_named(name: str, text: str) -> bool:
    stem = name.rpartition(".")[0] or name
    return bool(stem) and (name.lower() in text.lower() or stem.lower() in text.lower().split())
