"""The transcript of one session, as the model sees it.

Servers refuse a transcript with calls that have no result. So `answer_open_calls` adds the missing
results at the end of every turn, even of a cancelled one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot.agent import chat_messages, context_windows, picture_selection

_RESULT_UNKNOWN: Final = chat_messages.Note("[Nothing is known of what became of this.]")
_MAX_QUOTED_CHARACTERS: Final = 120
_MAX_QUOTED_REQUESTS: Final = 10
_MAX_REASONING_CHARACTERS: Final = 4 * 1024 * 1024


class Transcript:
    """The messages of a session: from a person, the model and the bot."""

    def __init__(
        self, earlier_messages: Iterable[chat_messages.Message] = (), *, is_resumed: bool = False
    ) -> None:
        """Continue from earlier messages.

        Args:
            earlier_messages: the messages so far.
            is_resumed: calls at their end without a result will still be run.
        """
        self._entries = list(earlier_messages)
        if not is_resumed:
            self.answer_open_calls(_RESULT_UNKNOWN)

    @property
    def entries(self) -> tuple[chat_messages.Message, ...]:
        """All messages, oldest first."""
        return tuple(self._entries)

    def add_user_message(self, text: str, pictures: Iterable[chat_messages.Picture] = ()) -> None:
        """Add a person's message and its pictures, which begins a turn."""
        self._entries.append(chat_messages.UserMessage(text, tuple(pictures)))
        self._entries = picture_selection.drop_old_contents(self._entries)

    def add_note(self, note: chat_messages.Note) -> None:
        """Add a note of the bot to the model."""
        self._entries.append(chat_messages.UserMessage(note.text, is_from_bot=True))

    def add_reply(
        self,
        text: str,
        calls: tuple[chat_messages.Call, ...] = (),
        reasoning: chat_messages.Reasoning | None = None,
    ) -> None:
        """Add a message of the model."""
        if text or calls:
            self._entries.append(chat_messages.AssistantMessage(text, calls, reasoning))
            self._limit_reasoning()

    def add_tool_result(
        self, call: chat_messages.Call, text: str, pictures: tuple[chat_messages.Picture, ...] = ()
    ) -> None:
        """Add a tool result, and the pictures that it showed."""
        self._entries.append(chat_messages.ToolResult(call.id, text or "[nothing]", pictures))
        if pictures:
            self._entries = picture_selection.drop_old_contents(self._entries)

    def answer_open_calls(
        self, note: chat_messages.Note, *, note_for_others: chat_messages.Note | None = None
    ) -> None:
        """Add a result to every call that has none: `note`, which describes the first of them.

        All others get `note_for_others`, if it is given.
        """
        for call in self.unanswered_calls:
            self.add_tool_result(call, note.text)
            note = note_for_others or note

    @property
    def unanswered_calls(self) -> tuple[chat_messages.Call, ...]:
        """The calls that have no result yet."""
        indexes = [
            i
            for i, message in enumerate(self._entries)
            if isinstance(message, chat_messages.AssistantMessage)
        ]
        last_message = self._entries[indexes[-1]] if indexes else None
        if not isinstance(last_message, chat_messages.AssistantMessage):
            return ()
        # Only calls of the last message count, as some servers repeat the ids at every step.
        later_messages = self._entries[indexes[-1] :]
        answered_ids = {
            message.call_id
            for message in later_messages
            if isinstance(message, chat_messages.ToolResult)
        }
        return tuple(call for call in last_message.calls if call.id not in answered_ids)

    def replace(self, fitted: context_windows.FittedTranscript, summary: str) -> None:
        """Replace the dropped messages by `summary`."""
        head = [chat_messages.UserMessage(summary, is_from_bot=True)] if summary else []
        self._entries = [*head, *fitted.messages]

    def forget_reasoning(self, *, until: int | None = None) -> None:
        """Drop the reasoning of the first `until` messages, or of all."""
        self._entries[:until] = [
            dataclasses.replace(message, reasoning=None)
            if isinstance(message, chat_messages.AssistantMessage)
            else message
            for message in self._entries[:until]
        ]

    def _limit_reasoning(self) -> None:
        """Drop the older half of the reasoning once there is too much."""
        sizes = [
            len(message.reasoning.value)
            if isinstance(message, chat_messages.AssistantMessage) and message.reasoning
            else 0
            for message in self._entries
        ]
        excess = sum(sizes) - _MAX_REASONING_CHARACTERS
        if excess <= 0:
            return
        excess += _MAX_REASONING_CHARACTERS // 2
        for number, size in enumerate(sizes):
            excess -= size
            if excess <= 0:
                self.forget_reasoning(until=number + 1)
                return

    def forget_pictures(self) -> None:
        """Drop all pictures, as the server cannot read one of them."""
        self._entries = list(picture_selection.drop_pictures(self._entries))


def describe_dropped(messages: Sequence[chat_messages.Message]) -> str:
    """Return a note that replaces dropped messages if there is no summary."""
    questions = [
        message.text
        if len(message.text) <= _MAX_QUOTED_CHARACTERS
        else f"{message.text[:_MAX_QUOTED_CHARACTERS]}…"
        for message in messages
        if isinstance(message, chat_messages.UserMessage) and not message.is_from_bot
    ]
    # The dropped messages may begin with an earlier summary, which is kept.
    earlier_notes = [
        message.text
        for message in messages
        if isinstance(message, chat_messages.UserMessage) and message.is_from_bot
    ][:1]
    summary = "; ".join(questions[-_MAX_QUOTED_REQUESTS:])
    requests_note = f"[{len(questions)} earlier requests are left out. The last of them: {summary}]"
    return "\n".join(
        [*(context_windows.shorten(text, 2000) for text in earlier_notes), requests_note]
    )


def format_as_text(messages: Sequence[chat_messages.Message], max_characters: int) -> str:
    """Format messages as plain text, to be summarised."""
    lines = []
    for message in messages:
        match message:
            case chat_messages.UserMessage():
                lines.append(f"{'Note' if message.is_from_bot else 'Person'}: {message.text}")
            case chat_messages.AssistantMessage():
                lines.append(f"Analyst: {message.text}")
                lines += [f"Code: {call.arguments}" for call in message.calls]
            case chat_messages.ToolResult():
                lines.append(f"Output: {context_windows.shorten(message.text, 600)}")
    return context_windows.shorten("\n".join(lines), max_characters)
