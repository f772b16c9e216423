"""Assemble a model reply from stream chunks of any shape."""

from __future__ import annotations

import dataclasses
import json
import secrets
from typing import Final

from interpreter_bot import events, values
from interpreter_bot.agent import (
    chat_messages,
    picture_selection,
    tool_calls_in_text,
    tools,
    written_calls,
)
from interpreter_bot.agent.llms import reasoning_replay

# A server that ignores its token limit is cut off after this many characters per allowed token.
_CHARACTERS_PER_TOKEN: Final = 12
_MAX_CALLS: Final = 64


class _PendingCall:
    """A native call that is still being written."""

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []
        self.preview = tools.CodePreview()


@dataclasses.dataclass(slots=True)
class ThoughtHabit:
    """Facts about one model, learned from its replies.

    Attributes:
        begins_in_thought: replies begin with thoughts, and only the end of the thoughts is marked,
            because the opening tag is part of the model's template.
    """

    begins_in_thought: bool = False


class ModelReplyAssembler:
    """Assembles one streamed reply and forwards its text and code.

    Args:
        emit: receives text and code as they arrive.
        prompt: the prompt of the call.
        takes_python: fenced blocks of Python are calls.
        habit: how the model marks its thoughts.
        origin: the model's identifier, see `reasoning_replay.make_origin`; empty if no reasoning is
            sent back.

    Attributes:
        finish: why the reply ended; None before its end.
        is_refused: the model or a filter refused to answer.
        reasoning: collects the reasoning that later requests send back.
        usage: the server's token counts.
        has_code_block: a block of Python is complete, with `takes_python`.
        has_pictures: the prompt contains pictures.
        has_received: any part was received, so that the request must not be repeated.
    """

    def __init__(
        self,
        emit: events.Emit,
        prompt: chat_messages.Prompt,
        *,
        takes_python: bool = False,
        habit: ThoughtHabit | None = None,
        origin: str = "",
    ) -> None:
        self.finish: chat_messages.Finish | None = None
        self.usage: values.Usage | None = None
        self.is_refused = False
        self.has_code_block = False
        self.has_pictures = picture_selection.has_pictures(prompt.messages)
        self.reasoning = reasoning_replay.Collector()
        self._origin = origin
        self._emit = emit
        self._finds_calls = bool(prompt.tools)
        self._habit = habit or ThoughtHabit()
        self._parser = tool_calls_in_text.Parser(
            finds_calls=self._finds_calls,
            takes_python=takes_python and self._finds_calls,
            begins_in_thought=self._habit.begins_in_thought,
        )
        self._has_ended = False
        self._unreadable_call = ""
        self._remaining_characters = prompt.answer_tokens * _CHARACTERS_PER_TOKEN
        self._text_pieces: list[str] = []
        self._thought_pieces: list[str] = []
        self._native_calls: list[_PendingCall] = []
        self._calls_by_key: dict[object, _PendingCall] = {}
        self._parsed_calls: list[chat_messages.Call] = []
        self.has_received = False

    @property
    def exceeds_limit(self) -> bool:
        """Whether the reply is far longer than its limit."""
        return self._remaining_characters < 0

    def add_text(self, delta: str) -> None:
        """Add text."""
        if not delta:
            return
        self.has_received = True
        self._remaining_characters -= len(delta)
        self._apply(self._parser.feed(delta))

    def add_thought(self, delta: object) -> None:
        """Add the reasoning of a chat completion chunk, which is never shown to people."""
        characters = self.reasoning.collect(delta)
        if characters:
            # The server separates thoughts from text, so the parser need not look for them.
            self._apply(self._parser.stop_waiting())
        self.count_output(characters)

    def count_output(self, characters: int) -> None:
        """Count output that is neither text nor a call against the limit of the answer."""
        self._remaining_characters -= characters

    def add_call(
        self, key: object, *, call_id: str = "", name: str = "", arguments: str = ""
    ) -> int:
        """Add a piece of a native call, and return the call's number in the reply.

        Args:
            key: identifies the call within the reply; None if the server gives none.
            call_id: its id; empty in some pieces.
            name: the tool's name; empty in some pieces.
            arguments: added to the arguments.
        """
        call = self._calls_by_key.get(key)
        # Some servers send each call in one piece, with the same key or no key for all calls.
        is_new_call = call is not None and bool(name) and (not call_id or call.id != call_id)
        if call is None or (is_new_call and call.arguments):
            if len(self._native_calls) >= _MAX_CALLS:
                self._remaining_characters = -1
                return _MAX_CALLS
            call = self._calls_by_key[key] = _PendingCall(call_id, name)
            self._native_calls.append(call)
        self.has_received = True
        self._remaining_characters -= len(arguments)
        call.id, call.name = call.id or call_id, call.name or name
        if arguments:
            call.arguments.append(arguments)
        is_code = tools.canonical_name(call.name) == tools.RUN_CODE
        if is_code and (code := call.preview.feed(arguments)):
            self._emit(events.CodeDrafted(code))
        return self._native_calls.index(call)

    def set_arguments(self, key: object, arguments: str) -> None:
        """Set the complete arguments of a native call, which replace the pieces."""
        if key in self._calls_by_key and arguments:
            self._calls_by_key[key].arguments = [arguments]

    def build_reply(self, *, is_whole: bool = True) -> chat_messages.ModelReply:
        """Build the reply. If it is not whole, it has only the text."""
        finish = chat_messages.Finish.FILTERED if self.is_refused else self.finish
        finish = finish or chat_messages.Finish.STOP
        is_usable = is_whole and finish is chat_messages.Finish.STOP
        if not self._has_ended:
            self._has_ended = True
            self._apply(self._parser.finish(is_cut=not is_usable), is_whole=is_whole)
            self._habit.begins_in_thought = self._parser.begins_in_thought
        native_calls = [
            # A name with markup would be refused when it is sent back.
            chat_messages.Call(
                call.id,
                tools.canonical_name(call.name) or call.name,
                "".join(call.arguments),
            )
            for call in self._native_calls
        ]
        calls = _make_ids_unique(native_calls or self._parsed_calls) if is_usable else ()
        # If nothing follows the mark that seemed to end the thoughts, the text before it is the
        # answer.
        has_content = bool(calls) or any(word.strip() for word in self._text_pieces)
        text = "".join(
            self._text_pieces if has_content else [*self._thought_pieces, *self._text_pieces]
        )
        unreadable_call = "" if calls or not is_usable else self._unreadable_call
        if is_usable and not calls and self._finds_calls and written_calls.has_unmarked_call(text):
            text, unreadable_call = "", f"{text}{unreadable_call}"
        return chat_messages.ModelReply(
            text=text,
            calls=calls,
            unreadable_call=unreadable_call,
            finish=finish,
            usage=self.usage,
            reasoning=self.reasoning.build_reasoning(self._origin)
            if is_whole and self._origin
            else None,
        )

    def _apply(self, pieces: list[tool_calls_in_text.Piece], *, is_whole: bool = True) -> None:
        for piece in pieces:
            match piece:
                case tool_calls_in_text.Words(text):
                    # Text after a call is ignored, because the model invents the code's output.
                    if not self._parsed_calls and not self._unreadable_call:
                        self._text_pieces.append(text)
                        self._emit(events.TextAdded(text))
                case tool_calls_in_text.ForgetWords():
                    self._thought_pieces, self._text_pieces = self._text_pieces, []
                    self._parsed_calls.clear()
                    self._unreadable_call = ""
                case tool_calls_in_text.UnreadableCall(text):
                    self._unreadable_call = self._unreadable_call or text
                case tool_calls_in_text.CodeDelta(text):
                    self._emit(events.CodeDrafted(text))
                case tool_calls_in_text.CodeBlock(code, is_closed) if is_closed or is_whole:
                    self.has_code_block = True
                    arguments = json.dumps({"code": code})
                    self._parsed_calls.append(chat_messages.Call("", tools.RUN_CODE, arguments))
                case tool_calls_in_text.ParsedCall(name, arguments):
                    self._parsed_calls.append(chat_messages.Call("", name, arguments))


def _make_ids_unique(calls: list[chat_messages.Call]) -> tuple[chat_messages.Call, ...]:
    """Give each call a unique id, because some servers send no ids or equal ones."""
    calls_by_id: dict[str, chat_messages.Call] = {}
    for call in calls:
        is_unique = bool(call.id) and call.id not in calls_by_id
        call_id = call.id if is_unique else f"call_{secrets.token_hex(8)}"
        calls_by_id[call_id] = chat_messages.Call(call_id, call.name, call.arguments)
    return tuple(calls_by_id.values())
