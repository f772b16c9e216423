"""Collects a model's reasoning, and sends it back with the model's message in later requests.

Without its reasoning, a model starts to think anew at each step, and some servers refuse the
request. Reasoning is sent back only to the model that wrote it.

Chat Completions has reasoning in fields beside the text, and Gemini adds a signature to each call.
Responses has items for it and Anthropic has blocks, which must keep their order among the calls.
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
"""The fields of chat completions that have reasoning."""
# The limit for one reply. Longer reasoning is dropped as a whole, because servers refuse a part.
_MAX_CHARACTERS: Final = 512 * 1024
_STREAMED_FIELDS: Final = ("text", "summary")

# Some servers require reasoning in each message. They accept these stand-ins in messages of other
# models.
_STAND_INS: Final[Mapping[str, tuple[str, Any]]] = {
    "thought_signature": (
        _EXTRA_FIELD,
        {"google": {"thought_signature": "skip_thought_signature_validator"}},
    ),
    "reasoning_content": ("reasoning_content", " "),
}


def make_origin(protocol: str, model: settings.Model) -> str:
    """Make an identifier of a model and protocol. It is a hash, because a URL may have secrets."""
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
        """Collect the reasoning of a chat completion chunk; return its number of characters."""
        characters_before = self._remaining_characters
        for name in _TEXT_FIELDS:
            if (text := getattr(delta, name, None)) and isinstance(text, str) and self._fits(text):
                self._texts.setdefault(name, []).append(text)
        details = getattr(delta, _DETAILS_FIELD, None)
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and self._fits(detail):
                self._add_detail(detail)
        self.collect_call("", delta)
        return characters_before - self._remaining_characters

    def collect_call(self, number: int | str, piece: object) -> None:
        """Collect the signature of a call, by the call's number in a chat completion."""
        extra = getattr(piece, _EXTRA_FIELD, None)
        if extra and isinstance(extra, dict) and self._fits(extra):
            self._extras[str(number)] = extra

    def add_item(self, item: Mapping[str, Any]) -> None:
        """Collect the next item of a Responses reply, or the next block of an Anthropic reply.

        Texts and calls are in the transcript, so their items only mark their places in the order.
        """
        if self._fits(item):
            self._items.append(dict(item))

    def build_reasoning(self, origin: str) -> chat_messages.Reasoning | None:
        """Build the reasoning of the reply; None if there was none, or too much."""
        if self._remaining_characters < 0:
            return None
        if any("reasoning" in item for item in self._items):
            return chat_messages.Reasoning(origin, _dump_json({"items": self._items}))
        fields: dict[str, Any] = {name: "".join(parts) for name, parts in self._texts.items()}
        if self._details:
            fields[_DETAILS_FIELD] = self._details
        if not fields and not self._extras:
            return None
        value = {"fields": fields, "calls": self._extras}
        return chat_messages.Reasoning(origin, _dump_json(value))

    def _fits(self, piece: object) -> bool:
        self._remaining_characters -= len(piece if isinstance(piece, str) else _dump_json(piece))
        return self._remaining_characters >= 0

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Append a detail, or extend the last one, because details are streamed in pieces."""
        last_detail = self._details[-1] if self._details else {}
        continues_last = all(
            detail.get(name) == last_detail.get(name) for name in ("type", "index")
        )
        if not continues_last or not any(
            isinstance(last_detail.get(name), str) for name in _STREAMED_FIELDS
        ):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            if (
                name in _STREAMED_FIELDS
                and isinstance(value, str)
                and isinstance(last_detail.get(name), str)
            ):
                last_detail[name] += value
            elif value is not None:
                last_detail[name] = value


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _read_reasoning(message: chat_messages.AssistantMessage, origin: str) -> Mapping[str, Any]:
    """Return the reasoning to send back with a message; empty if another model wrote it."""
    if message.reasoning is None or message.reasoning.origin != origin:
        return {}
    value: Mapping[str, Any] = json.loads(message.reasoning.value)
    return value


def read_fields(message: chat_messages.AssistantMessage, origin: str) -> dict[str, Any]:
    """Return the reasoning fields of a chat completions message."""
    value = _read_reasoning(message, origin)
    extra = value.get("calls", {}).get("")
    return {**value.get("fields", {}), **({_EXTRA_FIELD: extra} if extra else {})}


def read_signatures(message: chat_messages.AssistantMessage, origin: str) -> list[dict[str, Any]]:
    """Return the reasoning fields of each call of a chat completions message."""
    extras = _read_reasoning(message, origin).get("calls", {})
    numbers = map(str, range(len(message.calls)))
    return [{_EXTRA_FIELD: extras[number]} if number in extras else {} for number in numbers]


def read_ordered_parts(
    message: chat_messages.AssistantMessage, origin: str
) -> Iterator[Mapping[str, Any]]:
    """Return a message's parts in their original order; empty if that is not known.

    Returns:
        Mappings with one of these keys: `reasoning` (an item or block to send back), `message` (the
        place of the text) or `call` (the number of a call).
    """
    order: list[dict[str, Any]] = list(_read_reasoning(message, origin).get("items", ()))
    parts = [
        part
        for part in order
        if "reasoning" in part
        or ("message" in part and message.text)
        or ("call" in part and part["call"] < len(message.calls))
    ]
    # Servers refuse reasoning at the end. Its call may not be in the transcript any more.
    while parts and "reasoning" in parts[-1]:
        parts.pop()
    yield from parts


def add_stand_ins(messages: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Add a stand-in for missing reasoning to chat completions messages.

    Args:
        messages: the messages in the wire format.
        name: the required reasoning, see `server_quirks.Quirks.requires`.
    """
    field, stand_in = _STAND_INS[name]
    new_messages = []
    for message in messages:
        new_message = dict(message)
        if name == "reasoning_content" and new_message["role"] == "assistant":
            new_message.setdefault(field, stand_in)
        if name == "thought_signature" and new_message.get("tool_calls"):
            # Only the first of parallel calls has a signature.
            first_call, *other_calls = new_message["tool_calls"]
            new_message["tool_calls"] = [{field: stand_in, **first_call}, *other_calls]
        new_messages.append(new_message)
    return new_messages
