"""A model's reasoning as its provider sent it, to be given back with the model's message.

Chat completions carry it in fields beside the text, and Gemini signs each call; Responses has items
of its own and Anthropic blocks, whose order among the calls counts. Without it a model begins to
think anew at every step, and some servers refuse the step. It goes back unchanged, to the model it
came from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import openai

from interpreter_bot import settings
from interpreter_bot.agent import chat_messages

_TEXTS: Final = ("reasoning_content", "reasoning")
_DETAILS: Final = "reasoning_details"
_EXTRA: Final = "extra_content"
FIELDS: Final = (*_TEXTS, _DETAILS, _EXTRA)
"""The fields of chat completions that carry it."""
BLOCKS: Final = ("thinking", "redacted_thinking")
"""The types of the blocks that carry it over Anthropic's protocol."""

# The most characters of one reply. A part would be refused, so longer reasoning is dropped as a
# whole.
_MAX_CHARACTERS: Final = 512 * 1024
_GROWING: Final = ("text", "summary")

_REFUSED: Final = re.compile(
    r"thought|thinking|reasoning|encrypted|signature|\brs_\w", re.IGNORECASE
)
_MISSING: Final = re.compile(r"missing|must be passed|required|expected", re.IGNORECASE)
# The stand-in that a server accepts where it insists on a signature that another model never wrote.
_STAND_INS: Final[Mapping[str, tuple[str, Any]]] = {
    "signature": (_EXTRA, {"google": {"thought_signature": "skip_thought_signature_validator"}}),
    "reasoning_content": ("reasoning_content", " "),
}


def origin(protocol: str, model: settings.Model) -> str:
    """Return an identifier of a model and protocol; hashed, for the address may hold secrets."""
    named = f"{protocol} {model.base_url} {model.name}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Collector:
    """Collects the reasoning from the chunks of one reply, in any of the shapes."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._extras: dict[str, Any] = {}
        self._items: list[dict[str, Any]] = []
        self._left = _MAX_CHARACTERS

    def hear(self, delta: object) -> int:
        """Collect from a chunk of a chat completion; return the number of characters found."""
        left = self._left
        for name in _TEXTS:
            if (text := getattr(delta, name, None)) and isinstance(text, str) and self._fits(text):
                self._texts.setdefault(name, []).append(text)
        details = getattr(delta, _DETAILS, None)
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and self._fits(detail):
                self._add_detail(detail)
        self.hear_call("", delta)
        return left - self._left

    def hear_call(self, number: int | str, piece: object) -> None:
        """Collect the signature of a call of a chat completion, by its number in the reply."""
        extra = getattr(piece, _EXTRA, None)
        if extra and isinstance(extra, dict) and self._fits(extra):
            self._extras[str(number)] = extra

    def item(self, item: Mapping[str, Any]) -> None:
        """Collect an item of a Responses reply, or a block of Anthropic's, in order; those we can
        rewrite ourselves by name only."""
        if self._fits(item):
            self._items.append(dict(item))

    def collected(self, origin: str) -> chat_messages.Reasoning | None:
        """Return the collected reasoning; None if there was none, or too much."""
        if self._left < 0:
            return None
        if any("reasoning" in one for one in self._items):
            return chat_messages.Reasoning(origin, _json({"items": self._items}))
        fields: dict[str, Any] = {name: "".join(parts) for name, parts in self._texts.items()}
        if self._details:
            fields[_DETAILS] = self._details
        if not fields and not self._extras:
            return None
        value = {"fields": fields, "calls": self._extras}
        return chat_messages.Reasoning(origin, _json(value))

    def _fits(self, piece: object) -> bool:
        self._left -= len(piece if isinstance(piece, str) else _json(piece))
        return self._left >= 0

    def _add_detail(self, detail: dict[str, Any]) -> None:
        """Append a detail, or extend the last one: details come in pieces."""
        last = self._details[-1] if self._details else {}
        is_more = all(detail.get(name) == last.get(name) for name in ("type", "index"))
        if not is_more or not any(isinstance(last.get(name), str) for name in _GROWING):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
                last[name] += value
            elif value is not None:
                last[name] = value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _value(said: chat_messages.AssistantMessage, origin: str) -> Mapping[str, Any]:
    """Return the reasoning to give back with a message; empty for a model it is not from."""
    if said.reasoning is None or said.reasoning.origin != origin:
        return {}
    value: Mapping[str, Any] = json.loads(said.reasoning.value)
    return value


def fields(said: chat_messages.AssistantMessage, origin: str) -> dict[str, Any]:
    """Return the reasoning fields of a chat completions message."""
    value = _value(said, origin)
    extra = value.get("calls", {}).get("")
    return {**value.get("fields", {}), **({_EXTRA: extra} if extra else {})}


def signatures(said: chat_messages.AssistantMessage, origin: str) -> list[dict[str, Any]]:
    """Return the reasoning fields of each call of a chat completions message."""
    extras = _value(said, origin).get("calls", {})
    numbers = map(str, range(len(said.calls)))
    return [{_EXTRA: extras[number]} if number in extras else {} for number in numbers]


def items(said: chat_messages.AssistantMessage, origin: str) -> Iterator[Mapping[str, Any]]:
    """Return the order of a message's parts among the items, or blocks, of a reply.

    Returns:
        For each item its `reasoning_replay`; or `message`, which stands for the text; or `call`,
        the number of one; empty if the order is not known.
    """
    order: list[dict[str, Any]] = list(_value(said, origin).get("items", ()))
    known = [
        one
        for one in order
        if "reasoning" in one
        or ("message" in one and said.text)
        or ("call" in one and one["call"] < len(said.calls))
    ]
    # Reasoning without a following item is refused: its call may have been left out since.
    while known and "reasoning" in known[-1]:
        known.pop()
    yield from known


def is_refused(status_code: int, said: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether a server refused a request because of the reasoning in it.

    Args:
        status_code: of the refusal.
        said: all its words.
        parameters: the request.
    """
    is_about_it = status_code in (400, 404, 422) and bool(_REFUSED.search(said))
    return is_about_it and without(parameters) != parameters


def without(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Remove all reasoning from a request."""
    kept = dict(parameters)
    if "messages" in kept:
        kept["messages"] = [_bare(one) for one in kept["messages"]]
    if "input" in kept:
        kept["input"] = [_unnamed(one) for one in kept["input"] if one.get("type") != "reasoning"]
    return kept


def _unnamed(item: Mapping[str, Any]) -> dict[str, Any]:
    """Remove an item's id, by which a server would look for the reasoning it came with."""
    if "id" in item and item["type"] == "message":
        return {"role": item["role"], "content": item["content"][0]["text"]}
    return {name: value for name, value in item.items() if name != "id"}


def _bare(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in message.items() if name not in FIELDS}
    if isinstance(kept.get("content"), list):
        kept["content"] = [one for one in kept["content"] if one.get("type") not in BLOCKS]
    if "tool_calls" in kept:
        kept["tool_calls"] = [_bare(one) for one in kept["tool_calls"]]
    return kept


def missing(error: openai.APIStatusError) -> str:
    """Return the field with a known stand-in that a server's error says is missing; else empty."""
    said = f"{error.param} {error.message} {error.body}"
    if not _MISSING.search(said):
        return ""
    return next((name for name in _STAND_INS if name in said), "")


def with_stand_ins(said: Sequence[Mapping[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Add stand-ins for missing fields to chat completions messages."""
    result = []
    for message in said:
        one = dict(message)
        if one["role"] == "assistant" and "reasoning_content" in names:
            name, value = _STAND_INS["reasoning_content"]
            one.setdefault(name, value)
        if one.get("tool_calls") and "signature" in names:
            # Of parallel calls, only the first is ever signed.
            name, value = _STAND_INS["signature"]
            first, *others = one["tool_calls"]
            one["tool_calls"] = [{name: value, **first}, *others]
        result.append(one)
    return result
