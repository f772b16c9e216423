"""An answer shown as it grows: streamed if possible, else posted and edited."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from interpreter_bot.platforms.slack import (
    answer_contents,
    api_errors,
    blocks,
    edited_answers,
    file_uploads,
    handler_dependencies,
    markdown,
    message_posting,
    streamed_messages,
    unfinished_answers,
)
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import command_words, slack_words

_log = logging.getLogger(__name__)

Status: TypeAlias = Literal["active", "processing", "suspended"]
_CODE_CHARACTERS: Final = 3_000
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
        self.note = ""
        self._noted = ""
        self._uploads = shared.uploads
        self._config = shared.config
        self.stop_key = stop_key
        self._heading = heading
        self._crowd = crowd
        self.is_stopped = False
        self.is_queued = False
        self._sections = edited_answers.EditedAnswer(
            shared, place, request_id=request_id, heading=heading, payload=payload
        )
        self.request_id: Final = request_id
        self._stream: streamed_messages.StreamedMessage | None = None
        self._streamed = 0
        self._has_status = False
        self._busy = asyncio.Lock()
        self._last = 0.0

    @property
    def thread(self) -> str:
        """Return the thread for files and questions."""
        return self._sections.thread

    @property
    def complaints(self) -> Sequence[str]:
        """Sentences about pictures that could not be shown."""
        return self._sections.complaints

    @property
    def is_streaming(self) -> bool:
        """Whether it is streamed, below a status of Slack's own."""
        return self._stream is not None

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
            self._sections.resume(unfinished)
            if has_sessions:
                self._has_status = await self._set_status("processing")
            return
        if has_sessions and self.place.is_direct:
            self._has_status = await self._set_status("processing", title)
            if self._has_status:
                self._stream = streamed_messages.StreamedMessage(
                    self.api,
                    self.place,
                    max_characters=self._config.stream_characters,
                    max_seconds=self._config.stream_seconds,
                    payload=self._sections.facts,
                )
                return
        first_sign = self._edit(answer_contents.Answer())
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
                max_seconds=2.0,
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

    async def progress(self, answer: answer_contents.Answer, live: Callable[[], str]) -> None:
        """Show an answer as far as it goes.

        Args:
            live: returns what running code has shown until now, as Markdown; that and what code
                printed before is only shown where it can be taken back.

        Raises:
            SlackError: Slack refuses it.
        """
        async with self._busy:
            self._last = time.monotonic()
            if self._stream is not None and self.is_queued and not self._stream.timestamps:
                # Streams have no metadata: only one of a thread at a time can be found again.
                self._stream = None
            if self._stream is None:
                await self._edit(answer.so_far(), live())
                return
            try:
                await self._append(self._stream, answer)
            except streamed_messages.BrokenStreamError as error:
                await self._give_up(error)
                await self._edit(answer.so_far(), live())

    async def _append(
        self, stream: streamed_messages.StreamedMessage, answer: answer_contents.Answer
    ) -> None:
        """Append what is new to the stream: only words and what was done, as nothing of it can be
        moved in the end."""
        pieces = answer.pieces[self._streamed :]
        await stream.append([*self._waiting(), *pieces])
        self._streamed += len(pieces)

    def _waiting(self) -> list[answer_contents.Task]:
        """Return the tasks that show in a stream what the request waits for."""
        if self.note == self._noted:
            return []
        self._noted = self.note
        state: answer_contents.State = "in_progress" if self.note else "complete"
        return [answer_contents.Task("waiting", self.note or "Waited", state)]

    async def pause(self, over: asyncio.Event) -> None:
        """Wait until the next update is within Slack's rates, or until the event is set."""
        config, crowd = self._config, self._crowd()
        if self._stream is None:
            seconds = config.editing_seconds * max(1.0, crowd * _EDITING_SHARE)
        else:
            seconds = config.streaming_seconds * max(1.0, crowd * _STREAMING_SHARE)
        rest = self._last + seconds - time.monotonic()
        if rest > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await over.wait()

    async def _give_up(self, error: Exception) -> None:
        """Change to editing: what was streamed stays where it is, as the first messages."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        self.is_stopped = self.is_stopped or isinstance(error, streamed_messages.StoppedStreamError)
        _log.info("an answer is not streamed any further: %s", error)
        await stream.abandon()
        self._sections.adopt(stream.timestamps)

    async def finish(
        self,
        answer: answer_contents.Answer,
        below: Sequence[blocks.Block],
        *,
        leaves_out: bool = False,
        is_rewritten: bool = False,
    ) -> None:
        """Show the final answer, the last words first; a stream that has all of it stays as it is.

        Args:
            answer: all of it.
            below: blocks under it.
            leaves_out: see `answer_contents.Answer.final`.
            is_rewritten: the last words are others than those that were streamed.

        Raises:
            SlackError: Slack refuses it.
        """
        final = answer.final(leaves_out=leaves_out)
        async with self._busy:
            if self._stream is not None and not is_rewritten and final.may_be_streamed:
                try:
                    if await self._end_stream(self._stream, answer, final, below):
                        return
                except streamed_messages.BrokenStreamError as error:
                    await self._give_up(error)
            elif self._stream is not None:
                await self._give_up(streamed_messages.BrokenStreamError("its end was written anew"))
            self._stream = None
            try:
                await self._sections.finish(final, below)
            finally:
                await self.status("active")

    async def _end_stream(
        self,
        stream: streamed_messages.StreamedMessage,
        answer: answer_contents.Answer,
        final: answer_contents.Answer,
        below: Sequence[blocks.Block],
    ) -> bool:
        """End a stream; return whether nothing is left to be posted."""
        await self._append(stream, answer)
        if final.has_pictures:
            await stream.part()
            await self._sections.part(final, stream.timestamps if stream.is_tainted else None)
            return False
        apart = [] if stream.has_room_for(below) else [b for b in below if b["type"] == "table"]
        await stream.stop([block for block in below if block not in apart], status="active")
        if stream.is_tainted:
            self._sections.adopt(stream.timestamps)
            return False
        if apart:
            content = {"text": slack_words.TABLE, "blocks": apart}
            await message_posting.post(self.api, self.place, content, self.thread)
        return True

    async def suspend(self, answer: answer_contents.Answer, live: Callable[[], str]) -> None:
        """Show how far it came; the next bot goes on in the same messages.

        Raises:
            SlackError: Slack refuses it.
        """
        await self.progress(answer, live)
        async with self._busy:
            if self._stream is not None:
                await self._stream.abandon()

    async def refuse(self, sentence: str) -> None:
        """Show why nothing is going to be done, though there was a first sign.

        Raises:
            SlackError: Slack refuses it.
        """
        answer = answer_contents.Answer()
        answer.paragraph(f"⚠️ {markdown.defused(sentence)}")
        await self.finish(answer, ())

    async def _edit(self, answer: answer_contents.Answer, live: str = "") -> None:
        note = [blocks.note(self.note)] if self.note else []
        await self._sections.show(answer, live, [*note, blocks.stop(self.stop_key)])

    async def settled(self, answer: answer_contents.Answer, live: Callable[[], str]) -> str:
        """Show the answer so far; return the thread in which a question can be asked below it.

        Raises:
            SlackError: Slack refuses it.
        """
        await self.progress(answer, live)
        return self.thread

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


def heading(name: str, code: str) -> str:
    """Return the heading that says whose code runs."""
    readable = safe_text.revealed(code)
    shown = _head(readable.text)
    written = markdown.python(shown, readable.warning)
    return command_words.run_by(markdown.defused(quantities.one_line(name, 80)), written)


def is_whole_in_heading(code: str) -> bool:
    """Say whether the heading shows all of the code."""
    text = safe_text.revealed(code).text
    return _head(text) == text


def _head(text: str) -> str:
    return text if len(text) <= _CODE_CHARACTERS else f"{text[:_CODE_CHARACTERS]}\n…"
