"""An answer shown as it grows, within Slack's rates."""

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
    drafts,
    file_uploads,
    handler_dependencies,
    markdown,
    message_posting,
    transport,
    unfinished_answers,
)
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import command_words

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
        self.request_id: Final = request_id
        self.note = ""
        self.stop_key = stop_key
        self.is_queued = False
        self.messages: Final = transport.AnswerMessages(
            shared, place, request_id=request_id, payload=payload
        )
        self._noted = ""
        self._uploads = shared.uploads
        self._config = shared.config
        self._heading = heading
        self._crowd = crowd
        self._streamed = 0
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
            if self.messages.stream is not None and self.is_queued and not self._streamed:
                # Streams have no metadata: only one of a thread at a time can be found again.
                self.messages.stream = None
            if not await self._append(answer):
                await self._edit(answer.so_far(), live())

    async def _append(self, answer: answer_contents.Answer) -> bool:
        """Append what is new to the stream, if there is one: only words and what was done, as
        nothing of it can be moved in the end."""
        if self.messages.stream is None:
            return False
        pieces = answer.pieces[self._streamed :]
        is_appended = await self.messages.append([*self._waiting(), *pieces])
        self._streamed += len(pieces)
        return is_appended

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
        if not self.is_streaming:
            seconds = config.editing_seconds * max(1.0, crowd * _EDITING_SHARE)
        else:
            seconds = config.streaming_seconds * max(1.0, crowd * _STREAMING_SHARE)
        rest = self._last + seconds - time.monotonic()
        if rest > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await over.wait()

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
            if self.is_streaming and not is_rewritten and final.may_be_streamed:
                if await self._finish_stream(answer, final, below):
                    return
            else:
                await self.messages.end_stream()
            try:
                await self.messages.show(self._draw(final, below))
            finally:
                await self.status("active")

    async def _finish_stream(
        self,
        answer: answer_contents.Answer,
        final: answer_contents.Answer,
        below: Sequence[blocks.Block],
    ) -> bool:
        """Finish a stream, and show pictures, and what has no room in it, below; False if its
        message has to be edited."""
        if not await self._append(answer) or self.messages.stream is None:
            return False
        pictures = final.only_pictures()
        is_whole = not pictures.pieces and self.messages.stream.has_room_for(below)
        if not await self.messages.finish_stream(below if is_whole else ()):
            return False
        if not is_whole:
            await self.messages.show(self._draw(pictures, below))
        await self.status("active")
        return True

    def _draw(
        self,
        answer: answer_contents.Answer,
        below: Sequence[blocks.Block],
        *,
        live: str = "",
        is_final: bool = True,
    ) -> transport.Draw:
        def draw(pictures: int) -> Sequence[drafts.Draft]:
            return drafts.draw(
                answer.pieces[answer.after(pictures) :],
                below,
                max_characters=self._config.stream_characters,
                with_details=self._config.code == "short",
                heading="" if pictures else self._heading,
                live=live,
                is_final=is_final,
            )

        return draw

    async def suspend(self, answer: answer_contents.Answer, live: Callable[[], str]) -> None:
        """Show how far it came; the next bot goes on in the same messages.

        Raises:
            SlackError: Slack refuses it.
        """
        await self.progress(answer, live)
        async with self._busy:
            await self.messages.end_stream()

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
        below = [*note, blocks.stop(self.stop_key)]
        await self.messages.show(self._draw(answer, below, live=live, is_final=False))

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
