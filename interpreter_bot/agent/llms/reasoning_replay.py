"""A model's reasoning as its provider sent it, to be sent back with the model's message.

Chat completions carry it in fields beside the text, and Gemini signs each call. Responses has items
of its own and Anthropic blocks, whose order among the calls counts. Without it a model starts to
think anew at every step, and some servers refuse the request. Only the same model gets it back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from interpreter_bot import settings
from interpreter_bot.agent import chat_messages

_TEXT_FIELDS: Final = ("reasoning_content", "reasoning")
_DETAILS_FIELD: Final = "reasoning_details"
_EXTRA_FIELD: Final = "extra_content"
FIELDS: Final = (*_TEXT_FIELDS, _DETAILS_FIELD, _EXTRA_FIELD)
"""The fields of chat completions that carry it."""
# The most characters of one reply. A part would be refused, so longer reasoning is dropped as a
# whole.
_MAX_CHARACTERS: Final = 512 * 1024
_STREAMED_FIELDS: Final = ("text", "summary")

# The stand-ins that a server accepts in place of reasoning that another model never wrote.
_STAND_INS: Final[Mapping[str, tuple[str, Any]]] = {
    "thought_signature": (
        _EXTRA_FIELD,
        {"google": {"thought_signature": "skip_thought_signature_validator"}},
    ),
    "reasoning_content": ("reasoning_content", " "),
}


def origin(protocol: str, model: settings.Model) -> str:
    """Return an identifier of a model and protocol; hashed, for the address may hold secrets."""
    name = f"{protocol} {model.base_url} {model.name}"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Collector:
    """Collects the reasoning from the chunks of one reply, of any protocol."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._extras: dict[str, Any] = {}
        self._items: list[dict[str, Any]] = []
        self._remaining_characters = _MAX_CHARACTERS

    def collect(self, delta: object) -> int:
        """Collect from a chunk of a chat completion; return the number of characters found."""
        left_before = self._remaining_characters
        for name in _TEXT_FIELDS:
            if (text := getattr(delta, name, None)) and isinstance(text, str) and self._fits(text):
                self._texts.setdefault(name, []).append(text)
        details = getattr(delta, _DETAILS_FIELD, None)
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and self._fits(detail):
                self._add_detail(detail)
        self.collect_call("", delta)
        return left_before - self._remaining_characters

    def collect_call(self, number: int | str, piece: object) -> None:
        """Collect the signature of a call of a chat completion, by its number in the reply."""
        extra = getattr(piece, _EXTRA_FIELD, None)
        if extra and isinstance(extra, dict) and self._fits(extra):
            self._extras[str(number)] = extra

    def add_item(self, item: Mapping[str, Any]) -> None:
        """Collect an item of a Responses reply, or a block of Anthropic's, in order; those we can
        rewrite ourselves by name only."""
        if self._fits(item):
            self._items.append(dict(item))

    def collected(self, origin: str) -> chat_messages.Reasoning | None:
        """Return the collected reasoning; None if there was none, or too much."""
        if self._remaining_characters < 0:
            return None
        if any("reasoning" in item for item in self._items):
            return chat_messages.Reasoning(origin, _json({"items": self._items}))
        fields: dict[str, Any] = {name: "".join(parts) for name, parts in self._texts.items()}
        if self._details:
            fields[_DETAILS_FIELD] = self._details
        if not fields and not self._extras:
            return None
        value = {"fields": fields, "calls": self._extras}
        return chat_messages.Reasoning(origin, _json(value))

    def _fits(self, piece: object) -> bool:
        self._remaining_characters -= len(piece if isinstance(piece, str) else _json(piece))
        return self._remaining_characters >= 0

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Append a detail, or extend the last one: details come in pieces."""
        last = self._details[-1] if self._details else {}
        is_more = all(detail.get(name) == last.get(name) for name in ("type", "index"))
        if not is_more or not any(isinstance(last.get(name), str) for name in _STREAMED_FIELDS):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            if (
                name in _STREAMED_FIELDS
                and isinstance(value, str)
                and isinstance(last.get(name), str)
            ):
                last[name] += value
            elif value is not None:
                last[name] = value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _read_reasoning(message: chat_messages.AssistantMessage, origin: str) -> Mapping[str, Any]:
    """Return the reasoning to send back with a message; empty if another model wrote it."""
    if message.reasoning is None or message.reasoning.origin != origin:
        return {}
    value: Mapping[str, Any] = json.loads(message.reasoning.value)
    return value


def fields(message: chat_messages.AssistantMessage, origin: str) -> dict[str, Any]:
    """Return the reasoning fields of a chat completions message."""
    value = _read_reasoning(message, origin)
    extra = value.get("calls", {}).get("")
    return {**value.get("fields", {}), **({_EXTRA_FIELD: extra} if extra else {})}


def signatures(message: chat_messages.AssistantMessage, origin: str) -> list[dict[str, Any]]:
    """Return the reasoning fields of each call of a chat completions message."""
    extras = _read_reasoning(message, origin).get("calls", {})
    numbers = map(str, range(len(message.calls)))
    return [{_EXTRA_FIELD: extras[number]} if number in extras else {} for number in numbers]


def items(message: chat_messages.AssistantMessage, origin: str) -> Iterator[Mapping[str, Any]]:
    """Return the order of a message's parts among the items, or blocks, of a reply.

    Returns:
        For each item its `reasoning_replay`; or `message`, which stands for the text; or `call`,
        the number of one; empty if the order is not known.
    """
    order: list[dict[str, Any]] = list(_read_reasoning(message, origin).get("items", ()))
    parts = [
        part
        for part in order
        if "reasoning" in part
        or ("message" in part and message.text)
        or ("call" in part and part["call"] < len(message.calls))
    ]
    # Reasoning without a following item is refused: its call may have been left out since.
    while parts and "reasoning" in parts[-1]:
        parts.pop()
    yield from parts


def add_stand_ins(messages: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Add a stand-in for missing reasoning to chat completions messages.

    Args:
        messages: as they go over the wire.
        name: what the server wants; see `server_quirks.Quirks.requires`.
    """
    field, stand_in = _STAND_INS[name]
    result = []
    for message in messages:
        completed = dict(message)
        if name == "reasoning_content" and completed["role"] == "assistant":
            completed.setdefault(field, stand_in)
        if name == "thought_signature" and completed.get("tool_calls"):
            # Of parallel calls, only the first is ever signed.
            first_call, *other_calls = completed["tool_calls"]
            completed["tool_calls"] = [{field: stand_in, **first_call}, *other_calls]
        result.append(completed)
    return result
