"""Assemble a model reply from stream chunks of any shape."""

from __future__ import annotations

import json
import secrets
from typing import Final

from interpreter_bot import values
from interpreter_bot.agent import chat_messages, picture_selection, ports, tool_calls_in_text, tools
from interpreter_bot.agent.llms import reasoning_replay

# A server that ignores the limit on its answer is cut off at this multiple of the limit.
_CHARACTERS_PER_TOKEN: Final = 12
_CALLS: Final = 64


class _Started:
    """A native call that is still being written."""

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []
        self.peek = tools.CallPreview()


class ModelReplyAssembler:
    """Assembles one streamed reply and forwards its text and code.

    Args:
        listener: receives text and code as they come.
        prompt: the prompt of the call.
        finds_calls: calls written into the text, in any known form, count as calls.
        takes_python: blocks of Python in the text are calls, too.
        origin: the model's name in `reasoning_replay`; empty if no reasoning is given back.

    Attributes:
        finish: why the reply ended; None while it has not.
        is_refused: the model, or a filter, said no.
        reasoning: what is to be given back.
        is_reasoning_refused: the reasoning given back was refused.
        usage: what the server counted.
        has_block: a block of Python is complete.
        has_pictures: the prompt contains pictures.
    """

    def __init__(
        self,
        listener: ports.ModelReplyListener,
        prompt: chat_messages.Prompt,
        *,
        finds_calls: bool = False,
        takes_python: bool = False,
        origin: str = "",
    ) -> None:
        self.finish: chat_messages.Finish | None = None
        self.usage: values.Usage | None = None
        self.is_refused = False
        self.has_block = False
        self.has_pictures = picture_selection.any_in(prompt.messages)
        self.reasoning = reasoning_replay.Collector()
        self.is_reasoning_refused = False
        self._origin = origin
        self._listener = listener
        names = tools.KNOWN if finds_calls else frozenset[str]()
        self._splitter = (
            tool_calls_in_text.Parser(names, takes_python=takes_python) if prompt.tools else None
        )
        self._left = prompt.answer_tokens * _CHARACTERS_PER_TOKEN
        self._words: list[str] = []
        self._native: list[_Started] = []
        self._latest: dict[object, _Started] = {}
        self._found: list[chat_messages.Call] = []
        self._call_format = chat_messages.CallFormat.NATIVE
        self._has_heard = False

    @property
    def has_heard(self) -> bool:
        """Whether anything has come: then the call may not be repeated from the start."""
        return self._has_heard

    @property
    def is_endless(self) -> bool:
        """Whether far more has come than was asked for."""
        return self._left < 0

    def text(self, delta: str) -> None:
        """Add text."""
        if not delta:
            return
        self._has_heard = True
        self._left -= len(delta)
        self._take(
            self._splitter.feed(delta) if self._splitter else [tool_calls_in_text.Words(delta)]
        )

    def thought(self, delta: object) -> None:
        """Add the reasoning in a chat completion chunk, which is never shown."""
        self.count(self.reasoning.hear(delta))

    def count(self, characters: int) -> None:
        """Count output that is neither text nor a call against the limit of the answer."""
        self._left -= characters

    def call(self, key: object, *, call_id: str = "", name: str = "", arguments: str = "") -> int:
        """Add a piece of a native call, and return the call's number in the reply.

        Args:
            key: what distinguishes this call from others of the reply; None if the server does not
                say, and sends calls one after the other.
            call_id: its id, in at least one of the pieces.
            name: the tool's name, likewise.
            arguments: what this piece adds to the arguments.
        """
        started = self._latest.get(key)
        # Some servers give the same key, or none, to all calls, each of which comes whole.
        is_other = started is not None and bool(name) and (not call_id or started.id != call_id)
        if started is None or (is_other and started.arguments):
            if len(self._native) >= _CALLS:
                self._left = -1
                return _CALLS
            started = self._latest[key] = _Started(call_id, name)
            self._native.append(started)
        self._has_heard = True
        self._left -= len(arguments)
        started.id, started.name = started.id or call_id, started.name or name
        if arguments:
            started.arguments.append(arguments)
        if started.name == tools.RUN_CODE and (code := started.peek.feed(arguments)):
            self._listener.code(code)
        return self._native.index(started)

    def complete(self, key: object, arguments: str) -> None:
        """Set the complete arguments of a native call, which replace the pieces."""
        if key in self._latest and arguments:
            self._latest[key].arguments = [arguments]

    def reply(self, *, is_whole: bool = True) -> chat_messages.ModelReply:
        """Build the reply; of one that is not whole, only the text."""
        if self._splitter:
            self._take(self._splitter.finish(), is_whole=is_whole)
            self._splitter = None
        finish = chat_messages.Finish.FILTERED if self.is_refused else self.finish
        finish = finish or chat_messages.Finish.STOP
        is_usable = is_whole and finish is chat_messages.Finish.STOP
        native = [
            chat_messages.Call(one.id, one.name, "".join(one.arguments)) for one in self._native
        ]
        calls = _with_unique_ids(native or self._found) if is_usable else ()
        return chat_messages.ModelReply(
            text="".join(self._words),
            calls=calls,
            call_format=chat_messages.CallFormat.NATIVE if native else self._call_format,
            finish=finish,
            usage=self.usage,
            reasoning=self.reasoning.collected(self._origin) if is_whole and self._origin else None,
            is_reasoning_refused=self.is_reasoning_refused,
        )

    def _take(self, pieces: list[tool_calls_in_text.Piece], *, is_whole: bool = True) -> None:
        for piece in pieces:
            match piece:
                case tool_calls_in_text.Words(text):
                    # After a call, a model goes on to invent what the code would print.
                    if not self._found:
                        self._words.append(text)
                        self._listener.text(text)
                case tool_calls_in_text.Writing(text):
                    self._listener.code(text)
                case tool_calls_in_text.Block(code, is_closed) if is_closed or is_whole:
                    self.has_block = True
                    self._call_format = chat_messages.CallFormat.PYTHON
                    arguments = json.dumps({"code": code})
                    self._found.append(chat_messages.Call("", tools.RUN_CODE, arguments))
                case tool_calls_in_text.ParsedText(name, arguments):
                    self._call_format = chat_messages.CallFormat.JSON
                    self._found.append(chat_messages.Call("", name, arguments))


def _with_unique_ids(calls: list[chat_messages.Call]) -> tuple[chat_messages.Call, ...]:
    """Give every call a unique id, for some servers give none, or the same to all."""
    named: dict[str, chat_messages.Call] = {}
    for call in calls:
        is_free = bool(call.id) and call.id not in named
        key = call.id if is_free else f"call_{secrets.token_hex(8)}"
        named[key] = chat_messages.Call(key, call.name, call.arguments)
    return tuple(named.values())
