"""A message that is streamed.

Only in direct messages: in channels a stream is live for one person, and all others see only its
first words until it ends. `AsyncChatStream` of slack_sdk is not used, because it cannot hold back
the last word.
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
"""Of one message; a longer answer continues in another. Slack refuses more than 12,000."""

_MAX_WORD_CHARACTERS: Final = 60
_MAX_STATUS_CHARACTERS: Final = 250
_BROKEN_SCHEME: Final = ":\u200b//"


class BrokenStreamError(Exception):
    """The stream cannot continue; its message must be edited instead."""


class Stream:
    """Appends to one message."""

    def __init__(
        self, api: web_api.WebApi, workspace: installations.InstalledWorkspace, channel: str
    ) -> None:
        self._api = api
        self._workspace = workspace
        self._channel = channel
        self._ts = ""
        self._draft_text = ""
        self._shown_text = ""
        self._pending_text = ""
        self._status = ""

    async def start(self, thread: str, draft: transport.Draft) -> str:
        """Start the stream; return the timestamp of its message.

        Raises:
            LostError: it may have started.
            SlackError: it cannot start, or not soon enough.
            BrokenStreamError: a stream cannot show this draft.
        """
        answer = await self._api.call(
            self._workspace,
            "chat.startStream",
            max_seconds=self._api.timing.starting_seconds,
            channel=self._channel,
            thread_ts=thread,
            task_display_mode="timeline",
            chunks=self._chunks(draft),
        )
        self._ts = str(answer["ts"])
        return self._ts

    async def append(self, draft: transport.Draft) -> None:
        """Append the new text of a draft.

        Raises:
            BrokenStreamError: the stream is over, or the draft does not continue its text.
        """
        if chunks := self._chunks(draft):
            await self._call("chat.appendStream", chunks=chunks)

    async def finish(self, draft: transport.Draft, blocks_below: Sequence[blocks.Block]) -> None:
        """Append the new text of a draft, and end the stream with blocks below it.

        Raises:
            BrokenStreamError: the stream is over, or the draft does not continue its text.
        """
        chunks = self._chunks(draft, is_last=True)
        if len(self._shown_text) + blocks.count_characters(blocks_below) > blocks.MAX_CHARACTERS:
            raise BrokenStreamError("its message is full")
        metadata = message_posting.make_metadata({})
        await self._call(
            "chat.stopStream",
            chunks=chunks or None,
            blocks=[*blocks_below] or None,
            metadata=metadata,
        )

    def _chunks(self, draft: transport.Draft, *, is_last: bool = False) -> list[dict[str, Any]]:
        """Return the new text of a draft: whole lines of code, whole words otherwise."""
        if not draft.text.startswith(self._draft_text):
            raise BrokenStreamError("its text was rewritten")
        text = self._pending_text + draft.text[len(self._draft_text) :]
        self._draft_text = draft.text
        fence = _find_open_fence(self._shown_text)
        cut_index = len(text)
        if not is_last:
            is_code = _find_open_fence(self._shown_text + text) is not None
            cut_index = text.rfind("\n") + 1 if is_code else _whole_words_length(text)
        self._pending_text = text[cut_index:]
        # Slack has no option that keeps it from fetching links in a stream.
        new_text = markdown.prepare_for_stream(text[:cut_index], fence)
        if new_text is None:
            raise BrokenStreamError("its code holds a mention")
        self._shown_text += new_text
        text_chunks = [{"type": "markdown_text", "text": new_text}] if new_text else []
        return [*self._status_chunks(draft.status), *text_chunks]

    def _status_chunks(self, status: str) -> list[dict[str, Any]]:
        """Return the chunk that shows the status as a task, which is complete without a status."""
        if status == self._status:
            return []
        title = quantities.one_line(status or self._status, _MAX_STATUS_CHARACTERS)
        title = markdown.break_mentions(title).replace("://", _BROKEN_SCHEME)[
            :_MAX_STATUS_CHARACTERS
        ]
        task_status = "in_progress" if status else "complete"
        self._status = status
        return [{"type": "task_update", "id": "status", "title": title, "status": task_status}]

    async def _call(self, method: str, **arguments: Any) -> None:
        try:
            await self._api.call(
                self._workspace, method, channel=self._channel, ts=self._ts, **arguments
            )
        except api_errors.GoneError:
            raise
        except api_errors.SlackError as error:
            # If the response was lost, the text may be there twice, which the edit also repairs.
            raise BrokenStreamError(str(error)) from error


def _find_open_fence(text: str) -> fences.Fence | None:
    open_fences = [after for _, _, after in fences.track_fences(text.splitlines(keepends=True))]
    return open_fences[-1] if open_fences else None


def _whole_words_length(text: str) -> int:
    """Return the length up to the end of the last whole word; a very long word is cut."""
    line_start = text.rfind("\n") + 1
    end = line_start + markdown.safe_length(text[line_start:])
    for index in range(end, max(end - _MAX_WORD_CHARACTERS, 0), -1):
        if text[index - 1].isspace():
            return index
    return end if end > _MAX_WORD_CHARACTERS else 0
