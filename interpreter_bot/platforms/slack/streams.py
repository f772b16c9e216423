"""One message that is streamed.

Only in direct messages: elsewhere a stream is live for one person, and all others see its first
words until it ends. The helper of slack_sdk (`AsyncChatStream`) cannot leave the last word for
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    installations,
    markdown,
    message_posting,
    web_api,
)
from interpreter_bot.text import fences, quantities

MAX_CHARACTERS: Final = 9_000
"""Of one message; then the answer continues in another. Slack refuses more than 12,000."""

# A stream that cannot begin soon is given up: the answer is posted instead.
_START_SECONDS: Final = 3.0
_LONGEST_WORD: Final = 60
_MAX_STATUS: Final = 250
_NO_ADDRESS: Final = ":\u200b//"


class BrokenStreamError(Exception):
    """The stream cannot go on; its message is to be edited instead."""


class Stream:
    """Appends to one message."""

    def __init__(
        self, api: web_api.WebApi, workspace: installations.InstalledWorkspace, channel: str
    ) -> None:
        self._api = api
        self._workspace = workspace
        self._channel = channel
        self._ts = ""
        self._source = ""
        self._body = ""
        self._held_back = ""
        self._status = ""

    async def start(self, thread: str, draft: transport.Draft) -> str:
        """Begin it; return the timestamp of its message.

        Raises:
            LostError: it may have begun.
            SlackError: it cannot begin, or not soon.
            BrokenStreamError: it cannot show that.
        """
        answer = await self._api.call(
            self._workspace,
            "chat.startStream",
            max_seconds=_START_SECONDS,
            channel=self._channel,
            thread_ts=thread,
            task_display_mode="timeline",
            chunks=self._chunks(draft),
        )
        self._ts = str(answer["ts"])
        return self._ts

    async def grow(self, draft: transport.Draft) -> None:
        """Append what is new of a draft.

        Raises:
            BrokenStreamError: it is over, or shows something else than the beginning of the draft.
        """
        if chunks := self._chunks(draft):
            await self._call("chat.appendStream", chunks=chunks)

    async def finish(self, draft: transport.Draft, below: Sequence[blocks.Block]) -> None:
        """Append what is new, and end it with blocks below.

        Raises:
            BrokenStreamError: it is over, or shows something else than the beginning of the draft.
        """
        chunks = self._chunks(draft, is_all=True)
        if len(self._body) + blocks.size(below) > blocks.MAX_CHARACTERS:
            raise BrokenStreamError("its message is full")
        metadata = message_posting.metadata({})
        await self._call(
            "chat.stopStream", chunks=chunks or None, blocks=[*below] or None, metadata=metadata
        )

    def _chunks(self, draft: transport.Draft, *, is_all: bool = False) -> list[dict[str, Any]]:
        """Return what is new: of code only whole lines, of words only whole ones."""
        if not draft.text.startswith(self._source):
            raise BrokenStreamError("its words were written anew")
        text = self._held_back + draft.text[len(self._source) :]
        self._source = draft.text
        fence = _open_fence(self._body)
        cut = len(text)
        if not is_all:
            is_code = _open_fence(self._body + text) is not None
            cut = text.rfind("\n") + 1 if is_code else _whole_words(text)
        self._held_back = text[cut:]
        # There is no way to say that links in a stream are not to be fetched.
        shown = markdown.streamed(text[:cut], fence)
        if shown is None:
            raise BrokenStreamError("its code holds a mention")
        self._body += shown
        words = [{"type": "markdown_text", "text": shown}] if shown else []
        return [*self._task(draft.status), *words]

    def _task(self, status: str) -> list[dict[str, Any]]:
        """Return what shows the status: one task, which is done while words follow."""
        if status == self._status:
            return []
        title = quantities.one_line(status or self._status, _MAX_STATUS)
        title = markdown.defused(title).replace("://", _NO_ADDRESS)[:_MAX_STATUS]
        state = "in_progress" if status else "complete"
        self._status = status
        return [{"type": "task_update", "id": "status", "title": title, "status": state}]

    async def _call(self, method: str, **arguments: Any) -> None:
        try:
            await self._api.call(
                self._workspace, method, channel=self._channel, ts=self._ts, **arguments
            )
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            # If the response was lost, its text may stand there twice: it is edited as well.
            raise BrokenStreamError(str(error)) from error


def _open_fence(text: str) -> fences.Fence | None:
    open_after = [after for _, _, after in fences.scanned(text.splitlines(keepends=True))]
    return open_after[-1] if open_after else None


def _whole_words(text: str) -> int:
    """Return the length of a text up to the end of its last whole word; a very long word is cut."""
    line = text.rfind("\n") + 1
    most = line + markdown.unfinished(text[line:])
    for place in range(most, max(most - _LONGEST_WORD, 0), -1):
        if text[place - 1].isspace():
            return place
    return most if most > _LONGEST_WORD else 0
