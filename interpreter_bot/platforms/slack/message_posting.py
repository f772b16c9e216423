"""An answer as messages that are posted and edited; ephemeral messages and notifications."""

from __future__ import annotations

import dataclasses
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.rendering import message_splitting
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    installations,
    markdown,
    message_parsing,
    web_api,
)

_log = logging.getLogger(__name__)

METADATA: Final = "interpreter_bot"
_PLAIN_CHARACTERS: Final = 3_500
_MAX_MESSAGES: Final = 100
# Errors of a message that can no longer be edited: its content is posted instead.
_LOST_MESSAGES: Final = frozenset(
    {"cant_update_message", "edit_window_closed", "message_not_found", "streaming_state_conflict"}
)

Notify: TypeAlias = Callable[[values.SessionKey, str], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A spot in a channel.

    Attributes:
        thread: timestamp of the thread's root; empty for the channel itself.
        asked: timestamp of the message that is answered; empty for a command.
        user: who asked.
    """

    workspace: installations.InstalledWorkspace
    channel: str
    thread: str
    asked: str
    user: str

    @property
    def is_direct(self) -> bool:
        """Whether no other person reads along."""
        return self.channel.startswith("D")

    @property
    def begins_thread(self) -> bool:
        """Whether what is answered begins a thread in a direct message."""
        return self.is_direct and bool(self.asked) and self.asked == self.thread


def place_of(
    workspace: installations.InstalledWorkspace, message: message_parsing.Message
) -> Place:
    """Return where the answer to a message goes: into its thread."""
    return Place(
        workspace,
        channel=message.channel,
        thread=message.root,
        asked=message.ts,
        user=message.user,
    )


Style: TypeAlias = Literal["blocks", "plain blocks", "text"]
"""How a message is written: each is taken after Slack refused the one before."""
_PLAINER: Final[dict[Style, Style]] = {"blocks": "plain blocks", "plain blocks": "text"}


class PostedMessages:
    """The messages of one answer, in order. No other code edits them."""

    def __init__(
        self,
        api: web_api.WebApi,
        place: Place,
        *,
        max_characters: int,
        payload: Mapping[str, Any],
    ) -> None:
        self._api = api
        self.place = place
        self._payload = payload
        self._most = max_characters
        self._style: Style = "blocks"
        self._ts: list[str] = []
        self._shown: list[dict[str, Any]] = []
        self.thread = place.thread

    @property
    def first(self) -> str:
        """Timestamp of the first message; empty where there is none yet."""
        return self._ts[0] if self._ts else ""

    def adopt(self, timestamps: Sequence[str]) -> None:
        """Take over messages that were streamed."""
        self._ts = list(timestamps)
        self.thread = self.thread or self.first
        self._shown = [_NOTHING] * len(self._ts)

    async def show(
        self,
        text: str,
        *,
        below: Sequence[blocks.Block] = (),
        payload: dict[str, str] | None = None,
        is_first_sign: bool = False,
    ) -> None:
        """Post and edit until the messages have exactly this content, in the richest style that
        Slack takes.

        Args:
            text: Markdown, harmless.
            below: blocks under the last message.
            payload: facts about the first message, for later; ids only.
            is_first_sign: it is posted before what else waits to be posted in the channel.

        Raises:
            SlackError: Slack does not take it.
        """
        while True:
            try:
                contents = self._contents(text, below)
                await self._show(contents, payload, is_first_sign=is_first_sign)
            except api_errors.ContentRefusedError as error:
                if self._style not in _PLAINER:
                    raise
                self._style = _PLAINER[self._style]
                _log.warning("an answer is shown as %s: %s", self._style, error)
            else:
                return

    def _contents(self, text: str, below: Sequence[blocks.Block]) -> list[dict[str, Any]]:
        if self._style == "text":
            plain = "\n\n".join(filter(None, (text, blocks.words(below))))
            return _plain_contents(plain) or [_NOTHING]
        pieces = list(message_splitting.split(text, self._most)) or [""]
        if len(pieces[-1]) + blocks.size(below) > blocks.MAX_CHARACTERS:
            pieces.append("")
        return [
            content(piece, below if number == len(pieces) else (), self._style)
            for number, piece in enumerate(pieces, 1)
        ]

    async def _show(
        self,
        contents: Sequence[dict[str, Any]],
        payload: dict[str, str] | None,
        *,
        is_first_sign: bool,
    ) -> None:
        for number, content in enumerate(contents):
            if number >= len(self._ts):
                more = payload or {}
                await self._post(
                    content,
                    {**self._payload, **(more if number == 0 else {})},
                    is_first_sign=is_first_sign,
                )
            elif self._shown[number] != content:
                await self._edit(number, content)
        for ts in self._ts[len(contents) :]:
            await self._delete(ts)
        del self._ts[len(contents) :], self._shown[len(contents) :]

    async def clear(self) -> None:
        """Delete all messages."""
        for ts in self._ts:
            await self._delete(ts)
        self.adopt(())

    async def _post(
        self, content: dict[str, Any], payload: dict[str, Any], *, is_first_sign: bool
    ) -> None:
        ts = await _post_as_is(
            self._api, self.place, content, self.thread, payload, is_first_sign=is_first_sign
        )
        self._ts.append(ts)
        self._shown.append(content)
        self.thread = self.thread or self._ts[0]

    async def _edit(self, number: int, content: dict[str, Any]) -> None:
        try:
            await self._api.call(
                self.place.workspace,
                "chat.update",
                channel=self.place.channel,
                ts=self._ts[number],
                **content,
            )
        except api_errors.RefusedError as error:
            is_last = isinstance(error, api_errors.ContentRefusedError) and self._style == "text"
            if error.code not in _LOST_MESSAGES and not is_last:
                raise
            # For instance a person deleted it. An answer is not lost with its message.
            before = self._ts[number]
            is_root = not self.place.thread and number == 0
            thread = "" if is_root else self.thread
            self._ts[number] = await _post_as_is(
                self._api, self.place, content, thread, self._payload
            )
            self.thread = self._ts[0] if is_root else self.thread
            if is_last:
                await self._delete(before)
        self._shown[number] = content

    async def _delete(self, ts: str) -> None:
        try:
            await self._api.call(
                self.place.workspace, "chat.delete", channel=self.place.channel, ts=ts
            )
        except api_errors.RefusedError as error:
            if error.code != "message_not_found":
                raise


# What is shown of a message that another part of the bot wrote.
_NOTHING: Final[dict[str, Any]] = {"text": "…"}


def content(
    text: str, below: Sequence[blocks.Block] = (), style: Style = "blocks"
) -> dict[str, Any]:
    """Make the content of a message of any Markdown, with blocks below it."""
    shown = [*blocks.written(text), *below]
    if style == "plain blocks":
        shown = blocks.plainer(shown)
    # The text of notifications, and of clients without blocks.
    return {"text": markdown.notification(text) or "…", "blocks": shown}


def _plain_contents(text: str) -> list[dict[str, Any]]:
    """Make messages of text alone, which Slack reads as its own markup."""
    contents: list[dict[str, Any]] = []
    for piece in message_splitting.split(text, _PLAIN_CHARACTERS):
        # One with many characters that are escaped grows.
        is_long = len(markdown.escaped(piece)) > _PLAIN_CHARACTERS
        pieces = message_splitting.split(piece, _PLAIN_CHARACTERS // 5) if is_long else (piece,)
        contents += [{"text": markdown.escaped(one)} for one in pieces]
    return contents


async def post(
    api: web_api.WebApi,
    place: Place,
    content: dict[str, Any],
    thread: str,
    payload: Mapping[str, Any] | None = None,
) -> str:
    """Post a message exactly once, as plainly as Slack wants it; return its timestamp.

    Raises:
        SlackError: Slack refuses it.
    """
    shown = content["blocks"]
    is_picture = any(block["type"] == "image" for block in shown)
    for blocks_tried in (shown, blocks.plainer(shown)):
        try:
            content = {**content, "blocks": blocks_tried}
            return await _post_as_is(api, place, content, thread, payload)
        except api_errors.ContentRefusedError as error:
            if is_picture:
                # It can be sent as a file.
                raise
            _log.warning("a message is shown more plainly: %s", error)
    first = ""
    for plain in _plain_contents(blocks.words(shown)):
        ts = await _post_as_is(api, place, plain, thread, None if first else payload)
        first = first or ts
    return first


async def _post_as_is(
    api: web_api.WebApi,
    place: Place,
    content: dict[str, Any],
    thread: str,
    payload: Mapping[str, Any] | None = None,
    *,
    is_first_sign: bool = False,
) -> str:
    """Post a message exactly once despite broken connections; return its timestamp.

    Raises:
        SlackError: Slack refuses it.
    """
    nonce = uuid.uuid4().hex

    async def find() -> web_api.Answer | None:
        for message in await recent(api, place, thread):
            if facts(message).get("id") == nonce:
                return message
        return None

    answer = await api.call(
        place.workspace,
        "chat.postMessage",
        find=find,
        is_first_sign=is_first_sign,
        channel=place.channel,
        thread_ts=thread or None,
        unfurl_links=False,
        unfurl_media=False,
        metadata=metadata({"id": nonce, **(payload or {})}),
        **content,
    )
    return str(answer["ts"])


async def replace(api: web_api.WebApi, place: Place, ts: str, text: str) -> None:
    """Give a message other words, and no buttons.

    Raises:
        SlackError: Slack refuses it.
    """
    call = functools.partial(api.call, place.workspace, "chat.update")
    try:
        await call(channel=place.channel, ts=ts, **content(text))
    except api_errors.ContentRefusedError as error:
        _log.warning("a message is shown as text: %s", error)
        plain = markdown.escaped(text[:_PLAIN_CHARACTERS])
        await call(channel=place.channel, ts=ts, text=plain)


MENTION_NEEDED: Final = "mention_needed"
"""Metadata of the message that says in a thread that a mention is needed."""


def metadata(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Make the metadata of a message; any app of the workspace may read it."""
    return {"event_type": METADATA, "event_payload": dict(payload)}


def facts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts in the metadata of a message of the bot."""
    return (message.get("metadata") or {}).get("event_payload") or {}


async def recent(api: web_api.WebApi, place: Place, thread: str) -> Sequence[dict[str, Any]]:
    """Read the latest messages of a thread, or of the channel.

    Raises:
        SlackError: they cannot be read.
    """
    if thread:
        answer = await api.call(
            place.workspace,
            "conversations.replies",
            channel=place.channel,
            ts=thread,
            oldest=place.asked or None,
            inclusive=True,
            limit=200,
            include_all_metadata=True,
        )
    else:
        answer = await api.call(
            place.workspace,
            "conversations.history",
            channel=place.channel,
            oldest=place.asked or None,
            limit=_MAX_MESSAGES,
            include_all_metadata=True,
        )
    return list(answer.get("messages", ()))


async def direct_place(api: web_api.WebApi, place: Place) -> Place:
    """Return where only the person of a place reads what is sent: ephemeral messages hold no files.

    Raises:
        SlackError: Slack refuses it.
    """
    if place.is_direct:
        return place
    answer = await api.call(place.workspace, "conversations.open", users=place.user)
    channel = str(answer["channel"]["id"])
    return dataclasses.replace(place, channel=channel, thread="", asked="")


async def whisper(api: web_api.WebApi, place: Place, text: str, *below: blocks.Block) -> None:
    """Send an ephemeral message to one person.

    Args:
        text: Markdown from anywhere.
        below: follow it, as they are.

    Raises:
        SlackError: Slack refuses it.
    """
    shown = content(text, below)
    if place.is_direct:
        await post(api, place, shown, place.thread)
        return
    try:
        await _whisper_as_is(api, place, shown)
    except api_errors.ContentRefusedError as error:
        _log.warning("a message is shown as text: %s", error)
        for plain in _plain_contents(blocks.words(shown["blocks"])):
            await _whisper_as_is(api, place, plain)


async def _whisper_as_is(api: web_api.WebApi, place: Place, content: dict[str, Any]) -> None:
    try:
        await api.call(
            place.workspace,
            "chat.postEphemeral",
            channel=place.channel,
            user=place.user,
            thread_ts=place.thread or None,
            **content,
        )
    except api_errors.LostError:
        # It is not known whether it arrived; a second one would be harmless but odd.
        return


class Notifier:
    """Posts sentences into threads, or into channels for their own sessions."""

    def __init__(self, api: web_api.WebApi, known: installations.InstalledWorkspaces) -> None:
        self._api = api
        self._workspaces = known

    async def notify(self, key: values.SessionKey, sentence: str) -> None:
        """Post the sentence.

        Raises:
            SlackError: Slack refuses it.
        """
        workspace = await self._workspaces.get(key.workspace)
        place = Place(workspace, key.channel, thread=key.thread, asked="", user="")
        content = {
            "text": markdown.notification(sentence),
            "blocks": [blocks.note(sentence)],
        }
        await post(self._api, place, content, key.thread)
