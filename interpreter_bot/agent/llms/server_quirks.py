"""Request parameters that a server rejected, remembered so that they are left out next time."""

from __future__ import annotations

import re
from typing import Any, Final

import openai

from interpreter_bot.agent.llms import reasoning_replay

# Names of one parameter: what one server insists on, another does not know.
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
_DISPENSABLE: Final = (
    *("temperature", "stream_options", "parallel_tool_calls", "tool_choice"),
    *("prompt_cache_key", "include"),
)
_COMPLAINT: Final = re.compile(
    r"unsupported|not support|unknown|unrecognized|not permitted|extra|unexpected|invalid|does not",
    re.IGNORECASE,
)
_UNKNOWN: Final = re.compile(
    r"unknown|unrecognized|unsupported|not permitted|extra (?:input|field)|unexpected"
    r"|additional propert",
    re.IGNORECASE,
)
# A word that other messages contain too, so it counts only when named as a parameter.
_INCLUDE: Final = re.compile(
    r"^include\b|['\"`]include['\"`\[]|encrypted content is not supported", re.IGNORECASE
)


class Quirks:
    """Request parameters that one server rejects.

    Args:
        is_modern: it is OpenAI's own, which wants the newer name of the limit.
    """

    def __init__(self, *, is_modern: bool) -> None:
        self._length = _LENGTHS[0] if is_modern else _LENGTHS[1]
        self._refused: set[str] = set()
        self._has_swapped = False
        self._gives_reasoning_back = True
        self._stand_ins: set[str] = set()

    def adapted(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Adapt parameters to this server; `max_tokens` stands for the limit."""
        kept = {name: one for name, one in parameters.items() if name not in self._refused}
        if "max_tokens" in kept:
            kept[self._length] = kept.pop("max_tokens")
        if not self._gives_reasoning_back:
            kept = reasoning_replay.without(kept)
        if self._stand_ins and "messages" in kept:
            kept["messages"] = reasoning_replay.with_stand_ins(kept["messages"], self._stand_ins)
        return kept

    def learn(self, error: openai.APIStatusError, sent: dict[str, Any]) -> bool:
        """Learn from a refusal; True if asking again with other parameters makes sense."""
        if error.status_code not in (400, 422):
            return False
        said = f"{error.param} {error.message} {error.body}"
        if self._learn_of_reasoning(said, sent):
            return True
        if (missed := reasoning_replay.missing(error)) and missed not in self._stand_ins:
            self._stand_ins.add(missed)
            return True
        if not _COMPLAINT.search(said):
            return False
        # As a whole word: "max_tokens" is also part of other words.
        if self._length in sent and re.search(rf"\b{self._length}\b", said):
            other = _LENGTHS[1 - _LENGTHS.index(self._length)]
            if self._has_swapped:
                return False
            self._has_swapped, self._length = True, other
            return True
        for name in _DISPENSABLE:
            pattern = _INCLUDE if name == "include" else re.compile(rf"\b{name}\b")
            if name in sent and pattern.search(said):
                self._refused.add(name)
                return True
        return False

    def _learn_of_reasoning(self, said: str, sent: dict[str, Any]) -> bool:
        """Learn that the server does not know the reasoning fields that its own models sent."""
        named = any(re.search(rf"\b{name}\b", said) for name in reasoning_replay.FIELDS)
        if not named or not _UNKNOWN.search(said) or reasoning_replay.without(sent) == sent:
            return False
        self._gives_reasoning_back = False
        return True
