"""What servers and models refuse in a request, as far as it is declared. Pure.

`KNOWN` has what is known of public servers. `refuses` and `requires` of a model's settings add to
it.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from interpreter_bot import settings
from interpreter_bot.agent import model_errors
from interpreter_bot.agent.llms import reasoning_replay

_T = TypeVar("_T")

# OpenAI's newer name of a parameter, which other servers do not know.
_NEWER_NAMES: Final = {"max_tokens": "max_completion_tokens"}
# Fields within messages, tools and blocks; all other names are parameters of the request.
_NESTED_FIELDS: Final = frozenset(
    {*reasoning_replay.FIELDS, "cache_control", "eager_input_streaming"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Quirks:
    """What one server, or one of its models, does differently.

    Attributes:
        refuses: parameters and fields to leave out; `max_tokens` goes by its newer name.
        requires: reasoning that it wants in each message; those of other models get a stand-in.
    """

    refuses: frozenset[str] = frozenset()
    requires: str = ""

    def adapt(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request as the server accepts them."""
        adapted = dict(parameters)
        if self.requires and "messages" in adapted:
            adapted["messages"] = reasoning_replay.add_stand_ins(adapted["messages"], self.requires)
        for name in self.refuses:
            if name in _NEWER_NAMES and name in adapted:
                adapted[_NEWER_NAMES[name]] = adapted[name]
            adapted.pop(name, None)
        if nested := self.refuses & _NESTED_FIELDS:
            adapted = {name: _remove_fields(value, nested) for name, value in adapted.items()}
        return adapted


KNOWN: Final[tuple[tuple[re.Pattern[str], Quirks], ...]] = (
    (re.compile(r"api\.openai\.com/"), Quirks(frozenset({"max_tokens"}))),
    (re.compile(r"api\.openai\.com/(?:o\d|gpt-5)"), Quirks(frozenset({"temperature"}))),
    (re.compile(r"api\.deepseek\.com/"), Quirks(requires="reasoning_content")),
    (
        re.compile(r"generativelanguage\.googleapis\.com/"),
        Quirks(frozenset({"prompt_cache_key"}), requires="thought_signature"),
    ),
    (
        re.compile(r"api\.mistral\.ai/"),
        Quirks(frozenset({"prompt_cache_key", *reasoning_replay.FIELDS})),
    ),
)
"""Quirks by the host of a server and the name of a model, with a slash between."""

BEGIN_IN_THOUGHT: Final = re.compile(r"deepseek-r1|qwq|qwen3[\w.-]*thinking", re.IGNORECASE)
"""Models whose template opens their thoughts, so that replies mark only the end of them."""

# Parameters and fields that no request needs.
_OPTIONAL_PARAMETERS: Final = frozenset(
    {"temperature", "stream_options", "tool_choice", "prompt_cache_key", "include", "thinking"}
    | {"cache_control", "eager_input_streaming"}
)


def find_quirks(model: settings.Model) -> Quirks:
    """Return the quirks that are declared for a model and its server."""
    name = f"{urllib.parse.urlsplit(model.base_url).hostname}/{model.name}"
    declared = [quirks for pattern, quirks in KNOWN if pattern.match(name)]
    declared.append(Quirks(frozenset(model.refuses), model.requires))
    return Quirks(
        frozenset().union(*(quirks.refuses for quirks in declared)),
        next((quirks.requires for quirks in reversed(declared) if quirks.requires), ""),
    )


def drop_optional_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a request without the parameters that an unknown server may refuse."""
    return Quirks(_OPTIONAL_PARAMETERS).adapt(parameters)


async def send_well_formed(
    send: Callable[[dict[str, Any]], Awaitable[_T]], parameters: dict[str, Any]
) -> _T:
    """Send a request; if it has a lone surrogate in it, send it again without.

    A platform's message, an output or a server's escape may be cut within a surrogate pair. The
    transcript keeps it, so each later request of the session would fail.

    Raises:
        RequestRefusedError: the key or the address cannot be sent.
    """
    try:
        return await send(parameters)
    except UnicodeEncodeError:
        try:
            return await send(replace_surrogates(parameters))
        except UnicodeEncodeError as error:
            raise model_errors.RequestRefusedError from error


def replace_surrogates(value: Any) -> Any:  # noqa: ANN401
    """Replace lone surrogates in anything that becomes JSON."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {
            replace_surrogates(name): replace_surrogates(inner) for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [replace_surrogates(inner) for inner in value]
    return value


def _remove_fields(value: Any, names: frozenset[str]) -> Any:  # noqa: ANN401
    """Remove fields at any depth, except in the arguments of a call."""
    if isinstance(value, list):
        return [_remove_fields(inner, names) for inner in value]
    if not isinstance(value, dict) or value.get("type") == "tool_use":
        return value
    return {
        name: _remove_fields(inner, names) for name, inner in value.items() if name not in names
    }
