"""Request parameters that a server rejected, remembered so that they are left out next time."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import openai

from interpreter_bot.agent import model_errors
from interpreter_bot.agent.llms import model_reply_assembly, reasoning_replay

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


_MAX_TRIES: Final = 10
_T = TypeVar("_T")


async def open_accepted(
    send: Callable[[dict[str, Any]], Awaitable[_T]],
    parameters: dict[str, Any],
    *,
    refusals: type[Exception],
    adapt: Callable[[dict[str, Any]], dict[str, Any]],
    mend: Callable[[Any, dict[str, Any], dict[str, Any]], dict[str, Any] | None],
) -> _T:
    """Send a request until the server accepts it, each time without what it refused.

    Args:
        send: sends it.
        parameters: of the request.
        refusals: what `send` raises if the server refuses it.
        adapt: leaves out what is known to be refused.
        mend: takes a refusal, what was sent, and the parameters; returns the parameters for another
            try, or None if there is none.

    Raises:
        RequestRefusedError: it cannot be sent.
    """
    is_well_formed = False
    for _ in range(_MAX_TRIES):
        sent = adapt(parameters)
        try:
            return await send(sent)
        except UnicodeEncodeError as error:
            if is_well_formed:
                # The key or the address cannot be sent; the body is fine.
                raise model_errors.RequestRefusedError from error
            parameters, is_well_formed = well_formed(parameters), True
        except refusals as error:
            mended = mend(error, sent, parameters)
            if mended is None:
                raise
            parameters = mended
    raise model_errors.RequestRefusedError


def well_formed(sent: Any) -> Any:  # noqa: ANN401
    """Replace lone surrogates in anything that becomes JSON.

    Half a character may be in a message of a platform, in an output, or in what a model's server
    sent by escapes; it is remembered, and would fail each later request of the session.
    """
    if isinstance(sent, str):
        return sent.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(sent, dict):
        return {well_formed(name): well_formed(value) for name, value in sent.items()}
    if isinstance(sent, list | tuple):
        return [well_formed(entry) for entry in sent]
    return sent


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

    def mend(
        self,
        error: openai.APIStatusError,
        sent: dict[str, Any],
        parameters: dict[str, Any],
        assembler: model_reply_assembly.ModelReplyAssembler,
    ) -> dict[str, Any] | None:
        """Return the parameters for another try after a refusal; None if there is none."""
        if self.learn(error, sent):
            return parameters
        text = f"{error.param} {error.message} {error.body}"
        if reasoning_replay.is_refused(error.status_code, text, parameters):
            assembler.is_reasoning_refused = True
            return reasoning_replay.without(parameters)
        return None

    def _learn_of_reasoning(self, said: str, sent: dict[str, Any]) -> bool:
        """Learn that the server does not know the reasoning fields that its own models sent."""
        named = any(re.search(rf"\b{name}\b", said) for name in reasoning_replay.FIELDS)
        if not named or not _UNKNOWN.search(said) or reasoning_replay.without(sent) == sent:
            return False
        self._gives_reasoning_back = False
        return True
