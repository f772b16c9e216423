"""An answer as posted messages: texts that are edited as they grow, and pictures where they belong.

A section is the text up to a picture, and that picture. What stands above a picture that is shown
is not touched any more; the text below it is in messages of its own. Slack shows a picture to
everybody only where the message is *posted* with it: one that an edit adds, or that is streamed,
is an empty frame to other readers (slackapi/java-slack-sdk#1441,
slackapi/python-slack-sdk#1961). So a picture's message is posted when its file is ready.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from typing import Any, Final

from interpreter_bot.platforms.rendering import message_splitting
from interpreter_bot.platforms.slack import (
    answer_contents,
    api_errors,
    blocks,
    file_uploads,
    handler_dependencies,
    markdown,
    message_posting,
    unfinished_answers,
    web_api,
)
from interpreter_bot.wording import slack_words

_log = logging.getLogger(__name__)

_FEATURE: Final = "pictures in messages"
_LACKING_SECONDS: Final = 600.0


class PictureBlocks:
    """Uploads pictures to Slack for blocks."""

    def __init__(self, api: web_api.WebApi, sends: file_uploads.FileUploads) -> None:
        self._api = api
        self._uploads = sends

    async def blocks(
        self, place: message_posting.Place, shown: Sequence[answer_contents.Picture]
    ) -> list[blocks.Block] | None:
        """Make blocks that show pictures; None if this workspace cannot have that.

        Raises:
            GoneError: the bot is no longer installed there.
        """
        if self._api.lacks(place.workspace.team, _FEATURE):
            return None
        try:
            files = await self._uploads.keep(place, [outgoing(picture) for picture in shown])
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            self.refused(place, error)
            return None
        made: list[blocks.Block] = []
        for picture, file in zip(shown, files, strict=True):
            about = markdown.plain_name(picture.about or picture.name)
            made.append(blocks.picture(file, picture.name, about))
        return made

    def refused(self, place: message_posting.Place, error: api_errors.SlackError) -> None:
        """Record that Slack refuses such blocks there."""
        _log.info("pictures are sent as files for a while: %s", error)
        self._api.note_lacking(place.workspace.team, _FEATURE, _LACKING_SECONDS)


def outgoing(picture: answer_contents.Picture) -> file_uploads.Outgoing:
    """Make a file of a picture."""
    return file_uploads.of_bytes(picture.name, picture.data, picture.about, is_image=True)


class EditedAnswer:
    """The messages of one answer, as far as they are posted and not streamed."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        place: message_posting.Place,
        *,
        request_id: str,
        heading: str = "",
        payload: dict[str, str] | None = None,
    ) -> None:
        """Show nothing yet; see `live_answers.LiveMessage` for what each is."""
        self.facts: dict[str, Any] = {unfinished_answers.REQUEST: request_id}
        """Metadata of the next message, with which the next bot finds it."""
        self.complaints: list[str] = []
        self._api = shared.api
        self._uploads = shared.uploads
        self._pictures = PictureBlocks(shared.api, shared.uploads)
        self._place = place
        self._config = shared.config
        self._heading = heading
        self._payload = payload
        self._messages = message_posting.PostedMessages(
            shared.api,
            place,
            max_characters=shared.config.stream_characters,
            payload=self.facts,
        )
        self._root = ""
        # Pictures that stand there, and whether the text before the next one does for good.
        self._placed = 0
        self._is_told = False

    @property
    def thread(self) -> str:
        """Where all but the first message goes."""
        return self._place.thread or self._root or self._messages.first

    def adopt(self, timestamps: Sequence[str]) -> None:
        """Take over messages of the current section that were streamed."""
        self._messages.adopt(timestamps)

    def resume(self, unfinished: unfinished_answers.Unfinished) -> None:
        """Go on in the messages of a bot that is gone."""
        self._root = unfinished.root
        if unfinished.pictures:
            self._next(unfinished.pictures)
        self._messages.adopt(unfinished.texts)

    async def show(
        self, answer: answer_contents.Answer, live: str, below: Sequence[blocks.Block]
    ) -> None:
        """Show an answer as far as it goes.

        Args:
            answer: all of it.
            live: Markdown under its text, which may still change.
            below: blocks under that.

        Raises:
            SlackError: Slack refuses it.
        """
        await self._up_to_pictures(answer)
        text = f"{self._text(answer)}\n\n{live}".strip("\n")
        shown = text or f"_{slack_words.WORKING}_"
        await self._messages.show(shown, below=below, payload=self._payload, is_first_sign=not text)

    async def finish(self, answer: answer_contents.Answer, below: Sequence[blocks.Block]) -> None:
        """Show all that is left: in one message with its pictures, if possible.

        Raises:
            SlackError: Slack refuses it.
        """
        if not await self._finish_in_blocks(answer, below):
            await self._up_to_pictures(answer)
            await self._messages.show(self._text(answer), below=below, payload=self._payload)

    async def part(self, answer: answer_contents.Answer, timestamps: Sequence[str] | None) -> None:
        """Record that the text before the next picture was streamed.

        Args:
            answer: all of it.
            timestamps: of the messages that are to be rewritten; None if they are right.

        Raises:
            SlackError: Slack refuses it.
        """
        if timestamps is not None:
            self.adopt(timestamps)
            await self._messages.show(self._text(answer))
        self._is_told = True

    async def _show_made(
        self, shown: Sequence[answer_contents.Picture], made: Sequence[blocks.Block] | None
    ) -> None:
        if made is None:
            await self._send(shown)
        else:
            await self._post(made, shown)
        self._next(len(shown))

    async def _up_to_pictures(self, answer: answer_contents.Answer) -> None:
        """Show the text before each picture for good, and the picture."""
        while any(
            isinstance(piece, answer_contents.Picture) for piece in self._pieces_left(answer)
        ):
            shown = await self._begin_pictures(answer)
            made = await self._pictures.blocks(self._place, shown)
            await self._tell(answer)
            await self._show_made(shown, made)

    async def _begin_pictures(
        self, answer: answer_contents.Answer
    ) -> list[answer_contents.Picture]:
        """Show the words before the next pictures, or leave the first sign; return the pictures.

        Many pictures take a while until they are uploaded.
        """
        if self._text(answer):
            await self._tell(answer)
        for run in answer_contents.runs(self._pieces_left(answer)):
            if shown := [p for p in run if isinstance(p, answer_contents.Picture)]:
                return shown
        return []

    async def _finish_in_blocks(
        self, answer: answer_contents.Answer, below: Sequence[blocks.Block]
    ) -> bool:
        """Show all that is left in blocks; says whether this workspace can have that."""
        waiting = [p for p in self._pieces_left(answer) if isinstance(p, answer_contents.Picture)]
        if waiting:
            await self._begin_pictures(answer)
        made = await self._pictures.blocks(self._place, waiting) if waiting else None
        if made is None:
            return False
        await self._tell(answer)
        shown: list[blocks.Block] = []
        for run in answer_contents.runs(self._pieces_left(answer)):
            if isinstance(run[0], answer_contents.Picture):
                shown += made[: len(run)]
                del made[: len(run)]
            else:
                texts = message_splitting.split(self._markdown(run), self._config.stream_characters)
                shown += [block for text in texts for block in blocks.written(text)]
        await self._post([*shown, *below], waiting)
        self._next(len(waiting))
        return True

    async def _post(
        self, made: Sequence[blocks.Block], shown: Sequence[answer_contents.Picture]
    ) -> None:
        """Post messages with pictures; from one that Slack refuses on, they are sent as files."""
        left = list(shown)
        is_refused = False
        for message in blocks.packed(made):
            count = sum(map(_is_picture, message))
            now, left = left[:count], left[count:]
            if not is_refused:
                try:
                    await self._say(message)
                    continue
                except api_errors.GoneError:
                    raise
                except api_errors.RefusedError as error:
                    if not now:
                        raise
                    self._pictures.refused(self._place, error)
                    is_refused = True
            await self._post_apart(message, now)

    async def _post_apart(
        self, message: Sequence[blocks.Block], shown: list[answer_contents.Picture]
    ) -> None:
        """Post what was to be one message, its pictures as files between its words."""
        for is_picture, run in itertools.groupby(message, _is_picture):
            found = list(run)
            if is_picture:
                await self._send(shown[: len(found)])
                shown = shown[len(found) :]
            else:
                await self._say(found)

    async def _say(self, message: Sequence[blocks.Block]) -> None:
        texts = [block for block in message if block["type"] in ("markdown", "rich_text")]
        notified = markdown.notification(blocks.words(texts)) or "A picture"
        place = dataclasses.replace(self._place, thread=self.thread)
        content = {"text": notified, "blocks": message}
        pictures = sum(map(_is_picture, message))
        payload = {**self.facts, unfinished_answers.PICTURES: pictures}
        await message_posting.post(self._api, place, content, self.thread, payload)

    async def _send(self, shown: Sequence[answer_contents.Picture]) -> None:
        """Show pictures as files."""
        files = [outgoing(picture) for picture in shown]
        self.complaints += await self._uploads.send(self._place, self.thread, files)

    def _next(self, count: int) -> None:
        """Go on in messages below so many pictures more."""
        self._root = self.thread
        self._placed += count
        self.facts = {**self.facts, unfinished_answers.SHOWN: self._placed}
        self._is_told = False
        self._payload = None
        place = dataclasses.replace(self._place, thread=self.thread)
        limit = self._config.stream_characters
        self._messages = message_posting.PostedMessages(
            self._api, place, max_characters=limit, payload=self.facts
        )

    async def _tell(self, answer: answer_contents.Answer) -> None:
        """Show the text before the next picture for good."""
        if not self._is_told:
            if text := self._text(answer):
                await self._messages.show(text, payload=self._payload)
            else:
                await self._messages.clear()
        self._is_told = True

    def _pieces_left(self, answer: answer_contents.Answer) -> list[answer_contents.Piece]:
        """List what is not shown for good yet."""
        left = answer.pieces[answer.after(self._placed) :]
        if self._is_told:
            return list(
                itertools.dropwhile(lambda p: not isinstance(p, answer_contents.Picture), left)
            )
        return left

    def _text(self, answer: answer_contents.Answer) -> str:
        """Write what comes before the next picture."""
        left = answer.pieces[answer.after(self._placed) :]
        before = itertools.takewhile(lambda p: not isinstance(p, answer_contents.Picture), left)
        text = self._markdown(list(before))
        is_first = self._heading and not self._placed
        return f"{self._heading}\n\n{text}".strip("\n") if is_first else text

    def _markdown(self, pieces: Sequence[answer_contents.Piece]) -> str:
        return answer_contents.markdown(pieces, with_details=self._config.code == "short")


def _is_picture(block: blocks.Block) -> bool:
    return bool(block["type"] == "image")
