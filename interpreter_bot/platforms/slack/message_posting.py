"""An answer as messages that are posted and edited; ephemeral messages and notifications."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

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

METADATA: Final = "interpreter_bot"
_NOTIFIED_CHARACTERS: Final = 300
_MOST_FOUND: Final = 30
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


class PostedMessages:
    """The messages of one answer, in order. No other code edits them."""

    def __init__(self, api: web_api.WebApi, place: Place, *, most_characters: int) -> None:
        self._api = api
        self.place = place
        self._most = most_characters
        self._ts: list[str] = []
        self._shown: list[tuple[str, Sequence[blocks.Block]]] = []
        self.thread = place.thread

    @property
    def first(self) -> str:
        """Timestamp of the first message; empty where there is none yet."""
        return self._ts[0] if self._ts else ""

    def adopt(self, timestamps: Sequence[str]) -> None:
        """Take over messages that were streamed."""
        self._ts = list(timestamps)
        self._shown = [("", ())] * len(self._ts)

    async def show(
        self,
        text: str,
        *,
        below: Sequence[blocks.Block] = (),
        payload: dict[str, str] | None = None,
    ) -> None:
        """Post and edit until the messages have exactly this content.

        Args:
            text: Markdown, harmless.
            below: blocks under the last message.
            payload: facts about the first message, for later; ids only.

        Raises:
            SlackError: Slack does not take it.
        """
        wanted = list(message_splitting.split(text, self._most)) or [""]
        if len(wanted[-1]) + blocks.size(below) > blocks.MOST_CHARACTERS:
            wanted.append("")
        for number, piece in enumerate(wanted):
            under = below if number == len(wanted) - 1 else ()
            if number >= len(self._ts):
                await self._post(piece, under, payload if number == 0 else None)
            elif self._shown[number] != (piece, under):
                await self._edit(number, piece, under)
        for ts in self._ts[len(wanted) :]:
            await self._delete(ts)
        del self._ts[len(wanted) :], self._shown[len(wanted) :]

    async def clear(self) -> None:
        """Delete all messages."""
        for ts in self._ts:
            await self._delete(ts)
        self.adopt(())

    def _content(self, text: str, below: Sequence[blocks.Block]) -> dict[str, Any]:
        shown = [*([blocks.prose(text)] if text else []), *below]
        # The text of notifications, and of clients without blocks.
        return {"text": text[:_NOTIFIED_CHARACTERS] or "…", "blocks": shown}

    async def _post(
        self, text: str, below: Sequence[blocks.Block], payload: dict[str, str] | None
    ) -> None:
        content = self._content(text, below)
        self._ts.append(await post(self._api, self.place, content, self.thread, payload))
        self._shown.append((text, below))
        self.thread = self.thread or self._ts[0]

    async def _edit(self, number: int, text: str, below: Sequence[blocks.Block]) -> None:
        content = self._content(text, below)
        try:
            await self._api.call(
                self.place.workspace,
                "chat.update",
                channel=self.place.channel,
                ts=self._ts[number],
                **content,
            )
        except api_errors.RefusedError as error:
            if error.code not in _LOST_MESSAGES:
                raise
            # For instance a person deleted it. An answer is not lost with its message.
            is_root = not self.place.thread and number == 0
            thread = "" if is_root else self.thread
            self._ts[number] = await post(self._api, self.place, content, thread)
            self.thread = self._ts[0] if is_root else self.thread
        self._shown[number] = (text, below)

    async def _delete(self, ts: str) -> None:
        try:
            await self._api.call(
                self.place.workspace, "chat.delete", channel=self.place.channel, ts=ts
            )
        except api_errors.RefusedError as error:
            if error.code != "message_not_found":
                raise


async def post(
    api: web_api.WebApi,
    place: Place,
    content: dict[str, Any],
    thread: str,
    payload: dict[str, str] | None = None,
) -> str:
    """Post a message exactly once despite broken connections; return its timestamp.

    Raises:
        SlackError: Slack refuses it.
    """
    nonce = uuid.uuid4().hex
    facts = {"event_type": METADATA, "event_payload": {"id": nonce, **(payload or {})}}

    async def find() -> web_api.Answer | None:
        for message in await recent(api, place, thread):
            if ((message.get("metadata") or {}).get("event_payload") or {}).get("id") == nonce:
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
        metadata=facts,
        **content,
    )
    return str(answer["ts"])


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
            limit=_MOST_FOUND,
            include_all_metadata=True,
        )
    return list(answer.get("messages", ()))


async def whisper(api: web_api.WebApi, place: Place, text: str, *below: blocks.Block) -> None:
    """Send an ephemeral message to one person.

    Args:
        text: Markdown, which is made harmless here.
        below: follow it, as they are.

    Raises:
        SlackError: Slack refuses it.
    """
    text = markdown.defused(text)
    content: dict[str, Any] = {
        "text": text[:_NOTIFIED_CHARACTERS],
        "blocks": [blocks.prose(text), *below],
    }
    if place.is_direct:
        await post(api, place, content, place.thread)
        return
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
            "text": markdown.escaped(sentence)[:300],
            "blocks": [blocks.note(sentence)],
        }
        await post(self._api, place, content, key.thread)
