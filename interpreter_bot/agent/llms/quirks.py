"""What a server turned out not to accept, remembered so that it is asked without next time."""

from __future__ import annotations

import re
from typing import Any, Final

import openai

# Names of one parameter: what one server insists on, another does not know.
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
_DISPENSABLE: Final = ("temperature", "stream_options", "parallel_tool_calls", "tool_choice")
_COMPLAINT: Final = re.compile(
    r"unsupported|not support|unknown|unrecognized|not permitted|extra|unexpected|invalid|does not",
    re.IGNORECASE,
)


class Quirks:
    """One server's dislikes.

    Args:
        is_modern: it is OpenAI's own, which wants the newer name of the limit.
    """

    def __init__(self, *, is_modern: bool) -> None:
        self._length = _LENGTHS[0] if is_modern else _LENGTHS[1]
        self._refused: set[str] = set()
        self._has_swapped = False

    def adapted(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Write parameters the way this server takes them; `max_tokens` stands for the limit."""
        kept = {name: one for name, one in parameters.items() if name not in self._refused}
        if "max_tokens" in kept:
            kept[self._length] = kept.pop("max_tokens")
        return kept

    def learn(self, error: openai.APIStatusError, sent: dict[str, Any]) -> bool:
        """Take note of a refusal; True where asking again otherwise makes sense."""
        if error.status_code not in (400, 422):
            return False
        said = f"{error.param} {error.message} {error.body}"
        if not _COMPLAINT.search(said):
            return False
        # A word of the message: "max_tokens" is also part of other words.
        if self._length in sent and re.search(rf"\b{self._length}\b", said):
            other = _LENGTHS[1 - _LENGTHS.index(self._length)]
            if self._has_swapped:
                return False
            self._has_swapped, self._length = True, other
            return True
        for name in _DISPENSABLE:
            if name in sent and re.search(rf"\b{name}\b", said):
                self._refused.add(name)
                return True
        return False
