"""An answer as streamed messages, each for as long as Slack lets a stream live.

Only in direct messages: elsewhere a stream is live for one person, and all others see its first
words until it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from interpreter_bot.platforms.rendering import message_splitting
from interpreter_bot.platforms.slack import (
    answer_contents,
    api_errors,
    blocks,
    markdown,
    message_posting,
    web_api,
)

_log = logging.getLogger(__name__)

# A stream that cannot begin soon is given up: the answer is posted instead.
_LONGEST_WAIT_SECONDS: Final = 3.0
_LONGEST_WORD: Final = 60
_NO_ADDRESS: Final = ":\u200b//"
_STOPPED: Final = "stopped_by_user"
# Any other refusal leaves the stream open.
_OVER: Final = frozenset({_STOPPED, "message_not_found", "message_not_in_streaming_state"})
_LEAST_ROOM: Final = message_splitting.LEAST_CHARACTERS


class BrokenStreamError(Exception):
    """The stream cannot go on; its messages are to be edited instead."""


class StoppedStreamError(BrokenStreamError):
    """A person stopped it with Slack's own button."""


class StreamedMessage:
    """Streams an answer into one message after the other."""

    def __init__(
        self,
        api: web_api.WebApi,
        place: message_posting.Place,
        *,
        max_characters: int,
        max_seconds: float,
        payload: Mapping[str, Any],
    ) -> None:
        self.payload = payload
        self._api = api
        self._place = place
        self._max_characters = max(max_characters, _LEAST_ROOM * 2)
        self._max_seconds = max_seconds
        self._open = ""
        self._began = 0.0
        self._body = ""
        self._service = ""
        self._tasks: set[str] = set()
        self.timestamps: list[str] = []
        self.is_tainted = False

    async def append(self, pieces: Iterable[answer_contents.Piece]) -> None:
        """Show more; pictures cannot be streamed.

        Raises:
            BrokenStreamError: the stream is over, or cannot begin.
            SlackError: Slack refused it, and would refuse a message as well.
        """
        chunks: list[dict[str, Any]] = []
        for piece in pieces:
            if isinstance(piece, answer_contents.Text):
                self._service += piece.text
            elif isinstance(piece, answer_contents.Task):
                chunks = await self._flush(chunks, is_all=True)
                chunks.append(self._task(piece))
        chunks = await self._flush(chunks, is_all=False)
        if chunks:
            await self._send(chunks)

    async def _flush(self, chunks: list[dict[str, Any]], *, is_all: bool) -> list[dict[str, Any]]:
        """Hold back the last line of code and the last word until they are whole."""
        text = self._service
        cut = len(text)
        if not is_all:
            is_code = answer_contents.open_fence(self._body + text) is not None
            cut = text.rfind("\n") + 1 if is_code else _whole_words(text)
        self._service = text[cut:]
        # There is no way to say that links in a stream are not to be fetched.
        shown = markdown.streamed(text[:cut], answer_contents.open_fence(self._body))
        if shown is None:
            raise BrokenStreamError("its code holds a mention")
        return await self._text(shown, chunks)

    async def stop(self, below: Sequence[blocks.Block], *, status: str) -> None:
        """End it, with blocks under the last message.

        Raises:
            BrokenStreamError: it is over already.
            SlackError: Slack refused it.
        """
        if chunks := await self._flush([], is_all=True):
            await self._send(chunks)
        if not self._open:
            raise BrokenStreamError("nothing was streamed")
        await self._stop(blocks=list(below) or None, session_status=status)

    async def part(self) -> None:
        """End the open message, if any; what is appended next begins another one.

        Raises:
            BrokenStreamError: it is over already.
            SlackError: Slack refused it.
        """
        chunks = await self._flush([], is_all=True)
        await self._rotate("", chunks)

    def has_room_for(self, below: Sequence[blocks.Block]) -> bool:
        """Say whether blocks fit under the open message."""
        text = len(self._body) + len(self._service)
        return text + blocks.size(below) <= blocks.MAX_CHARACTERS

    async def abandon(self) -> None:
        """End it if it has not ended by itself, so that its messages can be edited."""
        if self._open:
            try:
                await self._stop()
            except (BrokenStreamError, api_errors.SlackError) as error:
                _log.info("a stream was over already: %s", error)
            self._open = ""

    def _task(self, task: answer_contents.Task) -> dict[str, Any]:
        chunk = {"type": "task_update", "id": task.id, "title": task.title, "status": task.state}
        if task.details and task.id not in self._tasks:
            # Details of the same task are put one after the other by Slack.
            chunk["details"] = markdown.streamable_code(task.details)
        self._tasks.add(task.id)
        chunk |= {"output": _harmless_field(task.output)} if task.output else {}
        return chunk

    async def _text(self, text: str, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add text, in further messages where one cannot hold it; return the chunks to be sent."""
        if self._open and time.monotonic() - self._began > self._max_seconds:
            text = await self._rotate(text, chunks)
            chunks = []
        while len(self._body) + len(text) > self._max_characters:
            piece = message_splitting.pieces(self._body + text, self._max_characters)[0]
            room = len(piece.body) - len(self._body)
            if room > 0:
                chunks.append(_text_chunk(text[:room]))
                self._body += text[:room]
                text = text[room:]
            text = await self._rotate(text, chunks)
            chunks = []
        self._body += text
        return [*chunks, _text_chunk(text)] if text else chunks

    async def _rotate(self, text: str, chunks: list[dict[str, Any]]) -> str:
        """End this message; return the text with which the next one begins."""
        fence = answer_contents.open_fence(self._body)
        if fence is not None:
            gap = "" if self._body.endswith("\n") else "\n"
            chunks.append(_text_chunk(f"{gap}{fence.closing}\n"))
        if chunks:
            await self._send(chunks)
        if self._open:
            await self._stop()
        self._body = ""
        self._tasks.clear()
        return (fence.opening if fence else "") + text

    async def _send(self, chunks: list[dict[str, Any]]) -> None:
        joined = _joined(chunks)
        if not self._open:
            await self._start(joined)
            return
        await self._try("chat.appendStream", channel=self._place.channel, chunks=joined)

    async def _start(self, chunks: list[dict[str, Any]]) -> None:
        place = self._place
        answer = await self._try(
            "chat.startStream",
            channel=place.channel,
            thread_ts=place.thread,
            task_display_mode="timeline",
            chunks=chunks,
        )
        self._open = str(answer["ts"])
        self._began = time.monotonic()
        self.timestamps.append(self._open)

    async def _stop(self, **more: Any) -> None:
        metadata = message_posting.metadata(self.payload)
        await self._try("chat.stopStream", channel=self._place.channel, metadata=metadata, **more)
        self._open = ""

    async def _try(self, method: str, **arguments: Any) -> web_api.Answer:
        is_start = method == "chat.startStream"
        if is_start:
            arguments["max_seconds"] = _LONGEST_WAIT_SECONDS
        else:
            arguments["ts"] = self._open
        try:
            return await self._api.call(
                self._place.workspace,
                method,
                find=self._find_start if is_start else self._find_nothing,
                **arguments,
            )
        except api_errors.GoneError:
            raise
        except api_errors.RefusedError as error:
            if self.is_tainted and error.code == "message_not_in_streaming_state":
                # The first try, whose response was lost, has stopped it.
                return {}
            self._open = "" if error.code in _OVER else self._open
            broken = StoppedStreamError if error.code == _STOPPED else BrokenStreamError
            raise broken(error.code) from error
        except (api_errors.LostError, web_api.WaitError) as error:
            raise BrokenStreamError(str(error)) from error

    async def _find_start(self) -> web_api.Answer | None:
        """Look for a stream that began although the response was lost."""
        for message in await message_posting.recent(self._api, self._place, self._place.thread):
            is_ours = self._place.workspace.has_written(message)
            is_new = message["ts"] > (self._place.asked or self._place.thread)
            has_facts = "metadata" in message or message.get("files")
            # Streams of other answers are known: their responses were not lost.
            is_known = self._api.has_made(self._place.channel, message["ts"])
            if is_ours and is_new and not has_facts and not is_known:
                return message
        return None

    async def _find_nothing(self) -> web_api.Answer | None:
        """Try again, and remember that text may stand there twice now."""
        self.is_tainted = True
        return None


def _whole_words(text: str) -> int:
    """Return the length of a text up to the end of its last whole word; a very long word is cut."""
    line = text.rfind("\n") + 1
    limit = line + markdown.unfinished(text[line:])
    for place in range(limit, max(limit - _LONGEST_WORD, 0), -1):
        if text[place - 1].isspace():
            return place
    return limit if limit > _LONGEST_WORD else 0


def _harmless_field(text: str) -> str:
    text = markdown.defused(text).replace("://", _NO_ADDRESS)
    return text[: answer_contents.FIELD_CHARACTERS]


def _text_chunk(text: str) -> dict[str, Any]:
    return {"type": "markdown_text", "text": text}


def _joined(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join adjacent texts, and keep only the last state of a task."""
    result: list[dict[str, Any]] = []
    for chunk in chunks:
        last = result[-1] if result else {}
        if chunk["type"] == last.get("type") == "markdown_text":
            result[-1] = _text_chunk(last["text"] + chunk["text"])
        elif chunk["type"] == last.get("type") == "task_update" and chunk["id"] == last["id"]:
            result[-1] = {**last, **chunk}
        else:
            result.append(chunk)
    return result
