"""An answer shown as it grows, within Slack's rates."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

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
    transport,
    turn_drawing,
    unfinished_answers,
    web_api,
)
from interpreter_bot.text import quantities

_log = logging.getLogger(__name__)

Status: TypeAlias = Literal["active", "processing", "suspended"]
# Slack takes about 100 pieces of streams and 50 edits a minute, of all answers in a workspace:
# with the usual pauses of one second and three, that is 1.7 answers and 2.5.
_STREAMING_SHARE: Final = 0.6
_EDITING_SHARE: Final = 0.4


class LiveMessage:
    """One answer in Slack."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        place: message_posting.Place,
        *,
        stop_key: str,
        request_id: str,
        heading: str = "",
        payload: dict[str, str] | None = None,
        crowd: Callable[[], int] = lambda: 1,
    ) -> None:
        """Show nothing yet.

        Args:
            stop_key: what the Stop button carries.
            request_id: of the request that is answered.
            heading: Markdown above everything else; there is only a heading for raw code.
            payload: facts about the first message, where it is not streamed.
            crowd: says how many answers are being shown, which share Slack's rates.
        """
        self.api: Final = shared.api
        self.place: Final = place
        self.request_id: Final = request_id
        self.stop_key = stop_key
        self.messages: Final = transport.AnswerMessages(
            shared, place, request_id=request_id, payload=payload
        )
        self._uploads = shared.uploads
        self._config = shared.config
        self._timing = shared.api.timing
        self._heading = heading
        self._crowd = crowd
        self._has_status = False
        self._busy = asyncio.Lock()
        self._last = 0.0

    @property
    def thread(self) -> str:
        """Return the thread for files and questions."""
        return self.messages.thread

    @property
    def is_streaming(self) -> bool:
        """Whether it is streamed, below a status of Slack's own."""
        return self.messages.stream is not None

    async def begin(
        self, title: str = "", *, unfinished: unfinished_answers.Unfinished | None = None
    ) -> None:
        """Show a first sign of work.

        In channels a stream is live for one person only, and all others see its first words until
        it ends: there the answer is posted and edited.

        Args:
            title: of a session that begins with it.
            unfinished: the messages of a bot that is gone, in which the answer goes on.
        """
        has_sessions = self._config.agent_view and self.place.thread and not self._heading
        if unfinished is not None:
            self.messages.resume(unfinished)
            if has_sessions:
                self._has_status = await self._set_status("processing")
            return
        if has_sessions and self.place.is_direct:
            self._has_status = await self._set_status("processing", title)
            if self._has_status:
                self.messages.begin_stream()
                return
        first_sign = self.messages.show(self._draw((), self._below(""), is_final=False))
        if not has_sessions or self.place.is_direct:
            await first_sign
            return
        # Of many at once, the status of each is there before its message has its turn.
        status = self._set_status("processing", title)
        _, self._has_status = await asyncio.gather(first_sign, status)

    async def status(self, status: Status) -> None:
        """Set the session's status, where Slack shows it."""
        if self._has_status:
            await self._set_status(status)

    async def _set_status(self, status: Status, title: str = "") -> bool:
        try:
            await self.api.call(
                self.place.workspace,
                "agents.sessions.setStatus",
                # A first sign is worth no wait; one that says "at work" must not stay.
                max_seconds=2.0 if status == "processing" else web_api.LONGEST_OUTAGE_SECONDS,
                channel_id=self.place.channel,
                thread_ts=self.place.thread,
                status=status,
                title=title or None,
                initiator_user_id=self.place.user if title else None,
            )
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            _log.debug("no session status: %s", error)
            return False
        return True

    async def progress(self, drawing: turn_drawing.TurnDrawing, *, is_queued: bool = False) -> None:
        """Show an answer as far as it goes.

        Raises:
            SlackError: Slack refuses it.
        """
        async with self._busy:
            self._last = time.monotonic()
            if (
                self.messages.stream is not None
                and is_queued
                and not self.messages.stream.has_begun
            ):
                # Streams have no metadata: only one of a thread at a time can be found again.
                self.messages.stream = None
            if await self._grow(drawing):
                return
            pieces = drawing.pieces
            if not self._heading:
                # Pictures follow the words of a model.
                pieces = [piece for piece in pieces if not _is_picture(piece)]
            below = self._below(drawing.status(is_streamed=False))
            await self.messages.show(
                self._draw(pieces, below, live=drawing.live_output, is_final=False)
            )

    async def _grow(self, drawing: turn_drawing.TurnDrawing) -> bool:
        """Show an answer in the stream, if there is one: only words and what was done. What code
        prints is only shown where it can be taken back."""
        kinds = answer_contents.Text | answer_contents.Task
        pieces = [piece for piece in drawing.pieces if isinstance(piece, kinds)]
        return await self.messages.grow(pieces, drawing.status(is_streamed=True))

    def _below(self, status: str) -> list[blocks.Block]:
        shown = quantities.one_line(status, answer_contents.FIELD_CHARACTERS)
        return [*([blocks.note(shown)] if shown else []), blocks.stop(self.stop_key)]

    async def pause(self, over: asyncio.Event) -> None:
        """Wait until the next update is within Slack's rates, or until the event is set."""
        timing, crowd = self._timing, self._crowd()
        if not self.is_streaming:
            seconds = timing.editing_seconds * max(1.0, crowd * _EDITING_SHARE)
        else:
            seconds = timing.streaming_seconds * max(1.0, crowd * _STREAMING_SHARE)
        rest = self._last + seconds - time.monotonic()
        if rest > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await over.wait()

    async def finish(
        self, drawing: turn_drawing.TurnDrawing, below: Sequence[blocks.Block]
    ) -> None:
        """Show the final answer, the last words first; a stream that has all of it stays as it is.

        Args:
            drawing: all of it.
            below: blocks under it.

        Raises:
            SlackError: Slack refuses it.
        """
        final = drawing.final_pieces()
        async with self._busy:
            texts = itertools.dropwhile(_is_picture, reversed(final))
            kinds = answer_contents.Text | answer_contents.Task
            if all(isinstance(piece, kinds) for piece in texts) and await self._grow(drawing):
                pictures = list(filter(_is_picture, final))
                if await self._finish_stream(pictures, below):
                    return
            await self.messages.end_stream()
            await self._finish(final, below)

    async def _finish(
        self, pieces: Sequence[answer_contents.Piece], below: Sequence[blocks.Block]
    ) -> None:
        try:
            await self.messages.show(self._draw(pieces, below))
        finally:
            await self.status("active")

    async def _finish_stream(
        self, pictures: Sequence[answer_contents.Piece], below: Sequence[blocks.Block]
    ) -> bool:
        """Finish a stream, and show pictures, and what has no room in it, below; False if its
        message has to be edited."""
        stream = self.messages.stream
        is_whole = not pictures and stream is not None and stream.has_room_for(below)
        if not await self.messages.finish_stream(below if is_whole else ()):
            return False
        if is_whole:
            await self.status("active")
        else:
            await self._finish(pictures, below)
        return True

    def _draw(
        self,
        pieces: Sequence[answer_contents.Piece],
        below: Sequence[blocks.Block],
        *,
        live: str = "",
        is_final: bool = True,
    ) -> transport.Draw:
        def draw(pictures: int) -> Sequence[drafts.Draft]:
            return drafts.draw(
                answer_contents.after(pieces, pictures),
                below,
                max_characters=streams.MAX_CHARACTERS,
                with_details=self._config.code == "short",
                heading="" if pictures else self._heading,
                live=live,
                is_final=is_final,
            )

        return draw

    async def suspend(self, drawing: turn_drawing.TurnDrawing) -> None:
        """Show how far it came; the next bot goes on in the same messages.

        Raises:
            SlackError: Slack refuses it.
        """
        await self.progress(drawing)
        async with self._busy:
            await self.messages.end_stream()

    async def refuse(self, sentence: str) -> None:
        """Show why nothing is going to be done, though there was a first sign.

        Raises:
            SlackError: Slack refuses it.
        """
        async with self._busy:
            await self.messages.end_stream()
            text = f"⚠️ {markdown.defused(sentence)}"
            await self._finish([answer_contents.Text(text)], ())

    async def upload(self, batch: Sequence[file_uploads.Outgoing]) -> list[str]:
        """Send files; returns sentences about those that could not be sent."""
        return await self._uploads.send(self.place, self.thread, batch)

    async def say(self, text: str) -> None:
        """Add a message of its own.

        Raises:
            SlackError: Slack does not take it.
        """
        content = message_posting.content(text[:11_000])
        await message_posting.post(self.api, self.place, content, self.thread)


def _is_picture(piece: answer_contents.Piece) -> bool:
    return isinstance(piece, answer_contents.Picture)
