"""Messages that are no answers, each posted exactly once, and ephemeral ones.

All calls raise `SlackError`s.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from interpreter_bot import values
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    installations,
    markdown,
    message_parsing,
    web_api,
)

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_METADATA_TYPE: Final = "interpreter_bot"
_MAX_MESSAGES: Final = 100
_MAX_PLAIN_CHARACTERS: Final = 3_500
_MAX_ESCAPED_CHARACTERS: Final = 3_900

Notify: TypeAlias = Callable[[values.SessionKey, str], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where in a channel a person asked.

    Attributes:
        thread: timestamp of the thread's root; empty for the channel itself.
        request_ts: timestamp of the message that is answered; empty for a command.
        user: the person who asked.
    """

    workspace: installations.InstalledWorkspace
    channel: str
    thread: str
    request_ts: str
    user: str

    @property
    def is_direct(self) -> bool:
        """Whether no other person reads along."""
        return self.channel.startswith("D")

    @property
    def begins_thread(self) -> bool:
        """Whether the request begins a thread in direct messages."""
        return self.is_direct and bool(self.request_ts) and self.request_ts == self.thread


def place_of(
    workspace: installations.InstalledWorkspace, message: message_parsing.Message
) -> Place:
    """Return where the answer to a message goes: into its thread."""
    return Place(
        workspace,
        channel=message.channel,
        thread=message.root,
        request_ts=message.ts,
        user=message.user,
    )


def make_content(text: str, blocks_below: Sequence[blocks.Block] = ()) -> dict[str, Any]:
    """Make the content of a message: any Markdown, with blocks below it."""
    message_blocks = [*blocks.from_markdown(text), *blocks_below]
    # The text is for notifications, and for clients without blocks.
    return {"text": markdown.notification(text) or "…", "blocks": message_blocks}


def make_plain_content(message_blocks: Sequence[blocks.Block]) -> dict[str, Any]:
    """Make the content of a message without blocks, which has no buttons and holds less."""
    text = markdown.escape_mrkdwn(blocks.plain_text(message_blocks)[:_MAX_PLAIN_CHARACTERS])
    return {"text": text[:_MAX_ESCAPED_CHARACTERS] or "…", "blocks": []}


async def _send_or_simplify(
    content: dict[str, Any], send: Callable[[dict[str, Any]], Awaitable[_T]]
) -> _T:
    """Send a message; if Slack refuses it, in plain blocks, and at last without blocks."""
    for attempt in (content, {**content, "blocks": blocks.simplify(content["blocks"])}):
        try:
            return await send(attempt)
        except api_errors.ContentRefusedError as error:
            _log.warning("a message is shown more plainly: %s", error)
    return await send(make_plain_content(content["blocks"]))


async def post(
    api: web_api.WebApi,
    place: Place,
    content: dict[str, Any],
    thread: str,
    payload: Mapping[str, Any] | None = None,
) -> str:
    """Post a message exactly once, more plainly if Slack refuses it; return its timestamp."""
    return await _send_or_simplify(
        content, lambda attempt: _post_as_is(api, place, attempt, thread, payload)
    )


async def _post_as_is(
    api: web_api.WebApi,
    place: Place,
    content: dict[str, Any],
    thread: str,
    payload: Mapping[str, Any] | None,
) -> str:
    """Post a message exactly once despite broken connections; return its timestamp."""
    nonce = uuid.uuid4().hex

    async def find() -> web_api.Answer | None:
        for message in await read_recent(api, place, thread):
            if metadata_of(message).get("id") == nonce:
                return message
        return None

    answer = await api.call(
        place.workspace,
        "chat.postMessage",
        find=find,
        channel=place.channel,
        thread_ts=thread or None,
        unfurl_links=False,
        unfurl_media=False,
        metadata=make_metadata({"id": nonce, **(payload or {})}),
        **content,
    )
    return str(answer["ts"])


async def replace(api: web_api.WebApi, place: Place, ts: str, text: str) -> None:
    """Replace the text of a message, and remove its buttons."""
    call = functools.partial(api.call, place.workspace, "chat.update", channel=place.channel, ts=ts)
    await _send_or_simplify(make_content(text), lambda attempt: call(**attempt))


NO_ANSWER: Final = "mention_needed"
"""Metadata of a message that is no answer, such as one that asks for a mention."""


def make_metadata(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Make the metadata of a message, which any app of the workspace may read."""
    return {"event_type": _METADATA_TYPE, "event_payload": dict(payload)}


def metadata_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the payload of the metadata of a message of the bot."""
    return (message.get("metadata") or {}).get("event_payload") or {}


async def read_recent(api: web_api.WebApi, place: Place, thread: str) -> Sequence[dict[str, Any]]:
    """Read the latest messages of a thread, or of the channel."""
    if thread:
        answer = await api.call(
            place.workspace,
            "conversations.replies",
            channel=place.channel,
            ts=thread,
            oldest=place.request_ts or None,
            inclusive=True,
            limit=200,
            include_all_metadata=True,
        )
    else:
        answer = await api.call(
            place.workspace,
            "conversations.history",
            channel=place.channel,
            oldest=place.request_ts or None,
            limit=_MAX_MESSAGES,
            include_all_metadata=True,
        )
    return list(answer.get("messages", ()))


async def direct_place(api: web_api.WebApi, place: Place) -> Place:
    """Return the direct messages of a place's person, as ephemeral messages hold no files."""
    if place.is_direct:
        return place
    answer = await api.call(place.workspace, "conversations.open", users=place.user)
    channel = str(answer["channel"]["id"])
    return dataclasses.replace(place, channel=channel, thread="", request_ts="")


async def whisper(
    api: web_api.WebApi, place: Place, text: str, *blocks_below: blocks.Block
) -> None:
    """Send an ephemeral message to one person.

    Args:
        text: any Markdown.
        blocks_below: blocks that follow it, as they are.
    """
    content = make_content(text, blocks_below)
    if place.is_direct:
        await post(api, place, content, place.thread)
        return
    await _send_or_simplify(content, lambda attempt: _whisper_as_is(api, place, attempt))


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
        # It may have arrived, and nobody should read it twice.
        return


def make_notify(api: web_api.WebApi, workspaces: installations.InstalledWorkspaces) -> Notify:
    """Return the function that notifies the people of a session."""

    async def notify(key: values.SessionKey, sentence: str) -> None:
        workspace = await workspaces.get(key.workspace)
        thread = key.thread_id
        place = Place(workspace, key.channel, thread=thread, request_ts="", user="")
        content = {"text": markdown.notification(sentence), "blocks": [blocks.note(sentence)]}
        await post(api, place, content, thread)

    return notify
