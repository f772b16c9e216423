"""The messages of one answer in Slack: posted, edited, streamed, with pictures.

There is one way: messages are compared with those that are wanted, and posted or edited. A stream
is how a message is edited that only grows; whatever else is to be done with it ends the stream. If
Slack refuses a message, the answer is shown in a plainer style; pictures that it does not show in
blocks are sent as files in their place.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot.platforms.slack import (
    answer_contents,
    api_errors,
    blocks,
    drafts,
    file_uploads,
    handler_dependencies,
    markdown,
    message_posting,
    streams,
    unfinished_answers,
)
from interpreter_bot.wording import slack_words

_log = logging.getLogger(__name__)

_FEATURE: Final = "pictures in messages"
_LACKING_SECONDS: Final = 600.0
# Errors of a message that can no longer be edited: its content is posted instead.
_LOST_MESSAGES: Final = frozenset(
    {"cant_update_message", "edit_window_closed", "message_not_found", "streaming_state_conflict"}
)
_STYLES: Final[tuple[message_posting.Style, ...]] = ("blocks", "plain blocks", "text")

Draw: TypeAlias = Callable[[int], Sequence[drafts.Draft]]
"""Draws what follows so many pictures."""


@dataclasses.dataclass(slots=True)
class _Message:
    """A message that stands, and what it shows; None if another part of the bot wrote it."""

    ts: str
    draft: drafts.Draft | None = None


class AnswerMessages:
    """The messages of one answer, in order. No other code edits them.

    Messages above a picture stay as they are.

    Attributes:
        stream: the stream of its first message, while there is one.
        is_stopped: a person stopped it with Slack's own button.
        complaints: sentences about pictures that could not be shown.
    """

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        place: message_posting.Place,
        *,
        request_id: str,
        payload: dict[str, str] | None = None,
    ) -> None:
        """Show nothing yet.

        Args:
            request_id: by which the next bot finds the messages.
            payload: facts about the first message, where it is not streamed.
        """
        self.stream: streams.Stream | None = None
        self.is_stopped = False
        self.complaints: list[str] = []
        self._api = shared.api
        self._uploads = shared.uploads
        self._place = place
        self._request_id = request_id
        self._payload = payload
        self._style = 0
        self._root = ""
        self._pictures = 0
        self._messages: list[_Message] = []

    @property
    def thread(self) -> str:
        """Where all but the first message goes."""
        first = self._messages[0].ts if self._messages else ""
        return self._place.thread or self._root or first

    def resume(self, unfinished: unfinished_answers.Unfinished) -> None:
        """Go on in the messages of a bot that is gone."""
        self._root = unfinished.root
        self._pictures = unfinished.pictures
        self._messages = [_Message(ts) for ts in unfinished.texts]

    # Streams ------------------------------------------------------------------------------

    def begin_stream(self) -> None:
        """Stream from now on."""
        self.stream = streams.Stream(self._api, self._place)

    async def grow(self, pieces: Sequence[answer_contents.Piece], status: str) -> bool:
        """Show pieces in the stream; False if there is none that can go on.

        Raises:
            SlackError: Slack refuses it.
        """
        if self.stream is None:
            return False
        try:
            await self.stream.show(pieces, status)
        except streams.BrokenStreamError as error:
            await self.end_stream(error)
            return False
        return True

    async def finish_stream(self, below: Sequence[blocks.Block]) -> bool:
        """End the stream, and leave its message as it is; False if it has to be edited.

        Raises:
            SlackError: Slack refuses it.
        """
        if (stream := self.stream) is None:
            return False
        try:
            await stream.stop(below, self._facts)
        except streams.BrokenStreamError as error:
            await self.end_stream(error)
            return False
        self.stream = None
        self._messages = [_Message(stream.ts)]
        if not stream.is_tainted:
            self._leave_messages()
        return not stream.is_tainted

    async def end_stream(self, reason: Exception | None = None) -> None:
        """Go on by editing: what was streamed stays where it is, as the first message."""
        stream, self.stream = self.stream, None
        if stream is not None:
            self.is_stopped |= isinstance(reason, streams.StoppedStreamError)
            _log.info("an answer is not streamed any further: %s", reason)
            await stream.abandon(self._facts)
            self._messages = [_Message(stream.ts)] if stream.ts else []

    # Messages -----------------------------------------------------------------------------

    async def show(self, draw: Draw) -> None:
        """Post and edit until the messages are those that are wanted.

        Raises:
            SlackError: Slack does not take them.
        """
        while True:
            is_text = _STYLES[self._style] == "text"
            wanted = draw(self._pictures)
            try:
                await self._show(_plain(wanted) if is_text else wanted)
            except api_errors.ContentRefusedError as error:
                if is_text:
                    raise
                self._style += 1
                _log.warning("an answer is shown as %s: %s", _STYLES[self._style], error)
            else:
                return

    async def _show(self, wanted: Sequence[drafts.Draft]) -> None:
        count = 0
        for draft in wanted:
            if draft.pictures:
                await self._show_pictures(draft, count)
                count = 0
                continue
            if count == len(self._messages):
                self._messages.append(_Message(await self._post(draft), draft))
            elif self._messages[count].draft != draft:
                await self._edit(self._messages[count], draft)
            count += 1
        await self._delete_after(count)

    def _leave_messages(self) -> None:
        """Let the messages stand for good; what comes next is below them."""
        self._root = self.thread
        self._messages = []

    @property
    def _facts(self) -> dict[str, Any]:
        """Metadata of the next message, with which the next bot finds it."""
        shown = {unfinished_answers.SHOWN: self._pictures} if self._pictures else {}
        return {unfinished_answers.REQUEST: self._request_id, **shown}

    def _content(self, draft: drafts.Draft) -> dict[str, Any]:
        style = _STYLES[self._style]
        if style == "text":
            return {"text": markdown.escaped(draft.text)}
        return message_posting.content(draft.text, draft.below, style)

    async def _post(self, draft: drafts.Draft) -> str:
        is_first = not (self._messages or self._root)
        return await message_posting.post_as_is(
            self._api,
            self._place,
            self._content(draft),
            self.thread,
            {**self._facts, **((self._payload or {}) if is_first else {})},
            is_first_sign=draft.text == drafts.WORKING,
        )

    async def _edit(self, message: _Message, draft: drafts.Draft) -> None:
        place, content = self._place, self._content(draft)
        try:
            await self._api.call(
                place.workspace, "chat.update", channel=place.channel, ts=message.ts, **content
            )
        except api_errors.RefusedError as error:
            is_refused = isinstance(error, api_errors.ContentRefusedError)
            is_last_style = is_refused and self._style == len(_STYLES) - 1
            if error.code not in _LOST_MESSAGES and not is_last_style:
                raise
            # For instance a person deleted it. An answer is not lost with its message.
            before = message.ts
            is_root = self.thread == before
            thread = "" if is_root else self.thread
            message.ts = await message_posting.post_as_is(
                self._api, place, content, thread, self._facts
            )
            if is_last_style:
                await self._delete(before)
        message.draft = draft

    async def _delete_after(self, count: int) -> None:
        while len(self._messages) > count:
            await self._delete(self._messages[-1].ts)
            self._messages.pop()

    async def _delete(self, ts: str) -> None:
        try:
            await self._api.call(
                self._place.workspace, "chat.delete", channel=self._place.channel, ts=ts
            )
        except api_errors.RefusedError as error:
            if error.code != "message_not_found":
                raise

    # Pictures -----------------------------------------------------------------------------

    async def _show_pictures(self, draft: drafts.Draft, count: int) -> None:
        """Post pictures below the first `count` messages, in place of those that follow."""
        made = await self._stage(draft.pictures)
        await self._delete_after(count)
        below = list(draft.below)
        if made is not None:
            try:
                await self._post_blocks([*made, *below], len(made))
            except api_errors.GoneError:
                raise
            except api_errors.RefusedError as error:
                self._note_refusal(error)
                made = None
        if made is None:
            files = [_outgoing(picture) for picture in draft.pictures]
            self.complaints += await self._uploads.send(self._place, self.thread, files)
        self._leave_messages()
        self._pictures += len(draft.pictures)
        if made is None and below:
            await self._post_blocks(below, 0)

    async def _stage(
        self, pictures: Sequence[answer_contents.Picture]
    ) -> list[blocks.Block] | None:
        """Upload pictures for blocks; None if this workspace cannot have those."""
        if self._api.lacks(self._place.workspace.team, _FEATURE):
            return None
        try:
            files = await self._uploads.keep(self._place, [_outgoing(one) for one in pictures])
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            self._note_refusal(error)
            return None
        return [
            blocks.picture(file, picture.name, markdown.plain_name(picture.about or picture.name))
            for picture, file in zip(pictures, files, strict=True)
        ]

    def _note_refusal(self, error: api_errors.SlackError) -> None:
        _log.info("pictures are sent as files for a while: %s", error)
        self._api.note_lacking(self._place.workspace.team, _FEATURE, _LACKING_SECONDS)

    async def _post_blocks(self, shown: Sequence[blocks.Block], pictures: int) -> None:
        place = dataclasses.replace(self._place, thread=self.thread)
        content = {"text": slack_words.PICTURE if pictures else "…", "blocks": list(shown)}
        payload = {**self._facts, unfinished_answers.PICTURES: pictures}
        ts = await message_posting.post(self._api, place, content, self.thread, payload)
        self._root = self.thread or ts


def _plain(wanted: Sequence[drafts.Draft]) -> list[drafts.Draft]:
    """Write messages as text alone."""
    plain: list[drafts.Draft] = []
    for draft in wanted:
        words = "\n\n".join(filter(None, (draft.text, blocks.words(draft.below))))
        texts = message_posting.plain_texts(words) or ["…"]
        plain += [draft] if draft.pictures else [drafts.Draft(text=text) for text in texts]
    return plain


def _outgoing(picture: answer_contents.Picture) -> file_uploads.Outgoing:
    return file_uploads.of_bytes(picture.name, picture.data, picture.about, is_image=True)
