"""Messages that are posted exactly once; ephemeral messages and notifications."""

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


def content(
    text: str, below: Sequence[blocks.Block] = (), style: Style = "blocks"
) -> dict[str, Any]:
    """Make the content of a message of any Markdown, with blocks below it."""
    shown = [*blocks.written(text), *below]
    if style == "plain blocks":
        shown = blocks.plainer(shown)
    # The text of notifications, and of clients without blocks.
    return {"text": markdown.notification(text) or "…", "blocks": shown}


def plain_texts(text: str) -> list[str]:
    """Split text into messages of text alone, which Slack reads as its own markup."""
    texts: list[str] = []
    for piece in message_splitting.split(text, _PLAIN_CHARACTERS):
        # One with many characters that are escaped grows.
        is_long = len(markdown.escaped(piece)) > _PLAIN_CHARACTERS
        texts += message_splitting.split(piece, _PLAIN_CHARACTERS // 5) if is_long else (piece,)
    return texts


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
            return await post_as_is(api, place, content, thread, payload)
        except api_errors.ContentRefusedError as error:
            if is_picture:
                # It can be sent as a file.
                raise
            _log.warning("a message is shown more plainly: %s", error)
    first = ""
    for text in plain_texts(blocks.words(shown)):
        plain = {"text": markdown.escaped(text)}
        ts = await post_as_is(api, place, plain, thread, None if first else payload)
        first = first or ts
    return first


async def post_as_is(
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


NO_ANSWER: Final = "mention_needed"
"""Metadata of a message that is no answer, such as that a mention is needed in a thread."""


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
        for plain in plain_texts(blocks.words(shown["blocks"])):
            await _whisper_as_is(api, place, {"text": markdown.escaped(plain)})


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
