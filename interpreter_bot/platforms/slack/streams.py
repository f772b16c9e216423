"""One message that is streamed.

Only in direct messages: elsewhere a stream is live for one person, and all others see its first
words until it ends. The helper of slack_sdk (`AsyncChatStream`) cannot go on in a message that
began though the response was lost, nor leave the last word for later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from interpreter_bot.platforms.slack import (
    answer_contents,
    api_errors,
    blocks,
    markdown,
    message_posting,
    web_api,
)

_log = logging.getLogger(__name__)

MAX_CHARACTERS: Final = 9_000
"""Of one message; then the answer continues in another. Slack refuses more than 12,000."""

# A stream that cannot begin soon is given up: the answer is posted instead.
_START_SECONDS: Final = 3.0
_LONGEST_WORD: Final = 60
_NO_ADDRESS: Final = ":\u200b//"
_STOPPED: Final = "stopped_by_user"
# Any other refusal leaves the stream open.
_OVER: Final = frozenset({_STOPPED, "message_not_found", "message_not_in_streaming_state"})


class BrokenStreamError(Exception):
    """The stream cannot go on; its message is to be edited instead."""


class StoppedStreamError(BrokenStreamError):
    """A person stopped it with Slack's own button."""


class Stream:
    """Appends to one message.

    Attributes:
        ts: of the message; empty until it has begun.
        is_tainted: a part may stand there twice.
    """

    def __init__(self, api: web_api.WebApi, place: message_posting.Place) -> None:
        self.ts = ""
        self.is_tainted = False
        self._api = api
        self._place = place
        self._is_open = False
        self._body = ""
        self._held_back = ""
        self._tasks: set[str] = set()
        self._status = ""
        self._shown: list[answer_contents.Piece] = []
        # Where among them the last words are.
        self._words = -1

    @property
    def has_begun(self) -> bool:
        """Whether anything is shown."""
        return bool(self.ts)

    async def show(self, pieces: Sequence[answer_contents.Piece], status: str) -> None:
        """Show pieces: those before, of which the last words may have grown, and more.

        Args:
            pieces: texts and tasks.
            status: what is waited for; empty for nothing.

        Raises:
            BrokenStreamError: the stream is over, full, or cannot begin; or what it shows is not
                how the pieces begin.
            SlackError: Slack refused it, and would refuse a message as well.
        """
        chunks: list[dict[str, Any]] = []
        if status != self._status:
            self._status = status
            state: answer_contents.State = "in_progress" if status else "complete"
            chunks.append(self._task(answer_contents.Task("waiting", status or "Waited", state)))
        for number, piece in enumerate(pieces):
            shown = self._shown[number] if number < len(self._shown) else None
            if isinstance(piece, answer_contents.Text):
                self._held_back += self._growth(piece, shown, is_last=number >= self._words)
                self._words = max(self._words, number)
            elif isinstance(piece, answer_contents.Task) and piece != shown:
                chunks += [*self._text(is_all=shown is None), self._task(piece)]
        if len(pieces) < len(self._shown):
            raise BrokenStreamError("its end was taken back")
        self._shown = list(pieces)
        await self._send([*chunks, *self._text(is_all=False)])

    def _growth(
        self,
        piece: answer_contents.Text,
        shown: answer_contents.Piece | None,
        *,
        is_last: bool,
    ) -> str:
        """Return what is new of words."""
        if piece == shown:
            return ""
        if shown is None:
            has_words = bool(self._body or self._held_back)
            return f"\n\n{piece.text}" if has_words else piece.text
        before = shown.text if isinstance(shown, answer_contents.Text) else ""
        if not (is_last and before and piece.text.startswith(before)):
            raise BrokenStreamError("its words were written anew")
        return piece.text[len(before) :]

    async def stop(self, below: Sequence[blocks.Block], payload: dict[str, Any]) -> None:
        """End it, with blocks under its message.

        Args:
            payload: metadata of the message.

        Raises:
            BrokenStreamError: it is over already, or full.
            SlackError: Slack refused it.
        """
        await self._send(self._text(is_all=True))
        if not self._is_open:
            raise BrokenStreamError("nothing was streamed")
        metadata = message_posting.metadata(payload)
        await self._call("chat.stopStream", blocks=list(below) or None, metadata=metadata)
        self._is_open = False

    async def abandon(self, payload: dict[str, Any]) -> None:
        """End it if it has not ended by itself, so that its message can be edited."""
        self._held_back = ""
        if self._is_open:
            try:
                await self.stop((), payload)
            except (BrokenStreamError, api_errors.SlackError) as error:
                _log.info("a stream was over already: %s", error)
            self._is_open = False

    def _text(self, *, is_all: bool) -> list[dict[str, Any]]:
        """Return what is to be shown; the last line of code, the last word, only when whole."""
        text = self._held_back
        cut = len(text)
        if not is_all:
            is_code = answer_contents.open_fence(self._body + text) is not None
            cut = text.rfind("\n") + 1 if is_code else _whole_words(text)
        self._held_back = text[cut:]
        # There is no way to say that links in a stream are not to be fetched.
        shown = markdown.streamed(text[:cut], answer_contents.open_fence(self._body))
        if shown is None:
            raise BrokenStreamError("its code holds a mention")
        self._body += shown
        if len(self._body) > MAX_CHARACTERS:
            raise BrokenStreamError("its message is full")
        return [{"type": "markdown_text", "text": shown}] if shown else []

    def has_room_for(self, below: Sequence[blocks.Block]) -> bool:
        """Return whether blocks fit under its message."""
        text = len(self._body) + len(self._held_back)
        return text + blocks.size(below) <= blocks.MAX_CHARACTERS

    def _task(self, task: answer_contents.Task) -> dict[str, Any]:
        chunk = {"type": "task_update", "id": task.id, "title": task.title, "status": task.state}
        if task.details and task.id not in self._tasks:
            # Details of the same task are put one after the other by Slack.
            chunk["details"] = markdown.streamable_code(task.details)
        self._tasks.add(task.id)
        return chunk | ({"output": _harmless_field(task.output)} if task.output else {})

    async def _send(self, chunks: Sequence[dict[str, Any]]) -> None:
        if not chunks:
            return
        if self._is_open:
            await self._call("chat.appendStream", chunks=_joined(chunks))
            return
        answer = await self._call(
            "chat.startStream",
            find=self._find_start,
            max_seconds=_START_SECONDS,
            thread_ts=self._place.thread,
            task_display_mode="timeline",
            chunks=_joined(chunks),
        )
        self.ts = str(answer["ts"])
        self._is_open = True

    async def _call(self, method: str, **arguments: Any) -> web_api.Answer:
        arguments = {"find": self._find_nothing, "ts": self.ts or None, **arguments}
        try:
            return await self._api.call(
                self._place.workspace, method, channel=self._place.channel, **arguments
            )
        except api_errors.GoneError:
            raise
        except api_errors.RefusedError as error:
            if self.is_tainted and error.code == "message_not_in_streaming_state":
                # The first try, whose response was lost, has stopped it.
                return {}
            self._is_open = self._is_open and error.code not in _OVER
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
    most = line + markdown.unfinished(text[line:])
    for place in range(most, max(most - _LONGEST_WORD, 0), -1):
        if text[place - 1].isspace():
            return place
    return most if most > _LONGEST_WORD else 0


def _harmless_field(text: str) -> str:
    text = markdown.defused(text).replace("://", _NO_ADDRESS)
    return text[: answer_contents.FIELD_CHARACTERS]


def _joined(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join adjacent texts, and keep only the last state of a task."""
    result: list[dict[str, Any]] = []
    for chunk in chunks:
        last = result[-1] if result else {}
        if chunk["type"] == last.get("type") == "markdown_text":
            result[-1] = {**last, "text": last["text"] + chunk["text"]}
        elif chunk["type"] == last.get("type") == "task_update" and chunk["id"] == last["id"]:
            result[-1] = {**last, **chunk}
        else:
            result.append(chunk)
    return result
