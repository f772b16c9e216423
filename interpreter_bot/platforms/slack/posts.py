"""An answer as messages that are posted and edited."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from interpreter_bot.platforms.rendering import splitting
from interpreter_bot.platforms.slack import blocks, failures, markdown, places, sending

METADATA: Final = "interpreter_bot"
_NOTIFIED_CHARACTERS: Final = 300
_MOST_FOUND: Final = 30
# A message that can no longer be what it is to be: what was to be in it is posted instead.
_LOST_MESSAGES: Final = frozenset(
    {"cant_update_message", "edit_window_closed", "message_not_found", "streaming_state_conflict"}
)


class Posts:
    """The messages of one answer, in order. Nobody else edits them."""

    def __init__(
        self, sender: sending.Sender, place: places.Place, *, most_characters: int
    ) -> None:
        self._sender = sender
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
        """Go on with messages that were streamed."""
        self._ts = list(timestamps)
        self._shown = [("", ())] * len(self._ts)

    async def show(
        self,
        text: str,
        *,
        below: Sequence[blocks.Block] = (),
        payload: dict[str, str] | None = None,
    ) -> None:
        """Let the messages be exactly this.

        Args:
            text: Markdown, harmless.
            below: blocks under the last message.
            payload: facts about the first message, for later; ids only.

        Raises:
            SlackError: Slack does not take it.
        """
        wanted = list(splitting.split(text, self._most)) or [""]
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
        """Take them all back."""
        for ts in self._ts:
            await self._delete(ts)
        self.adopt(())

    def _content(self, text: str, below: Sequence[blocks.Block]) -> dict[str, Any]:
        shown = [*([blocks.prose(text)] if text else []), *below]
        # What a notification says, and what clients show that know no blocks.
        return {"text": text[:_NOTIFIED_CHARACTERS] or "…", "blocks": shown}

    async def _post(
        self, text: str, below: Sequence[blocks.Block], payload: dict[str, str] | None
    ) -> None:
        content = self._content(text, below)
        self._ts.append(await post(self._sender, self.place, content, self.thread, payload))
        self._shown.append((text, below))
        self.thread = self.thread or self._ts[0]

    async def _edit(self, number: int, text: str, below: Sequence[blocks.Block]) -> None:
        content = self._content(text, below)
        try:
            await self._sender.call(
                self.place.workspace,
                "chat.update",
                channel=self.place.channel,
                ts=self._ts[number],
                **content,
            )
        except failures.RefusedError as error:
            if error.code not in _LOST_MESSAGES:
                raise
            # Somebody deleted it, say. An answer is not lost with the message it stood in.
            is_root = not self.place.thread and number == 0
            thread = "" if is_root else self.thread
            self._ts[number] = await post(self._sender, self.place, content, thread)
            self.thread = self._ts[0] if is_root else self.thread
        self._shown[number] = (text, below)

    async def _delete(self, ts: str) -> None:
        try:
            await self._sender.call(
                self.place.workspace, "chat.delete", channel=self.place.channel, ts=ts
            )
        except failures.RefusedError as error:
            if error.code != "message_not_found":
                raise


async def post(
    sender: sending.Sender,
    place: places.Place,
    content: dict[str, Any],
    thread: str,
    payload: dict[str, str] | None = None,
) -> str:
    """Post a message, once whatever breaks; returns its timestamp.

    Raises:
        SlackError: Slack does not take it.
    """
    nonce = uuid.uuid4().hex
    facts = {"event_type": METADATA, "event_payload": {"id": nonce, **(payload or {})}}

    async def find() -> sending.Answer | None:
        for message in await recent(sender, place, thread):
            if ((message.get("metadata") or {}).get("event_payload") or {}).get("id") == nonce:
                return message
        return None

    answer = await sender.call(
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


async def recent(
    sender: sending.Sender, place: places.Place, thread: str
) -> Sequence[dict[str, Any]]:
    """Read the latest messages of a thread, or of the channel.

    Raises:
        SlackError: they cannot be read.
    """
    if thread:
        answer = await sender.call(
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
        answer = await sender.call(
            place.workspace,
            "conversations.history",
            channel=place.channel,
            limit=_MOST_FOUND,
            include_all_metadata=True,
        )
    return list(answer.get("messages", ()))


async def whisper(sender: sending.Sender, place: places.Place, text: str) -> None:
    """Tell one person something that nobody else needs to read.

    Args:
        text: Markdown, which is made harmless here.

    Raises:
        SlackError: Slack does not take it.
    """
    text = markdown.defused(text)
    content: dict[str, Any] = {"text": text[:_NOTIFIED_CHARACTERS], "blocks": [blocks.prose(text)]}
    if place.is_direct:
        await post(sender, place, content, place.thread)
        return
    try:
        await sender.call(
            place.workspace,
            "chat.postEphemeral",
            channel=place.channel,
            user=place.user,
            thread_ts=place.thread or None,
            **content,
        )
    except failures.LostError:
        # Whether it arrived is not known, and once more would do harm to nobody but be odd.
        return
