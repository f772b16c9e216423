"""Settings of language models, turns, daily allowances, patience and the embedded model."""

from __future__ import annotations

import decimal
import pathlib
import re
from typing import Annotated, Final, Literal

import pydantic

from interpreter_bot.setting_groups import fields, header_values

# Smaller models write better programs in code blocks than in tool calls, even if they support
# calls: in these, a model of 1.5 billion parameters writes one line, and repeats its mistakes.
_MAX_SMALL_BILLIONS: Final = 4.0
# "qwen2.5-coder-1.5b-instruct", "llama3.2:3b", "smollm2-360m"; neither the "A3B" of a larger one
# with experts, nor the "4bit" of a quantized one.
_SIZE_IN_NAME_PATTERN: Final = re.compile(
    r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.IGNORECASE
)

_ANTHROPIC_DEFAULTS: Final = {
    "base_url": "https://api.anthropic.com",
    "api_key_variable": "ANTHROPIC_API_KEY",
}


class Model(fields.Group):
    """One model that people can choose."""

    name: Annotated[str, pydantic.Field(min_length=1)]
    """Name of the model, as its server calls it."""
    label: str = ""
    """Name that people see. Empty means `name`."""
    base_url: header_values.Address = "https://api.openai.com/v1"
    """Address of a server that speaks OpenAI's protocols or Anthropic's. For `anthropic` the
    default is Anthropic's own."""
    api_key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; for `anthropic`, `ANTHROPIC_API_KEY` by default.
    If the variable is unset or empty, no key is sent."""
    protocol: Literal["auto", "chat", "responses", "fenced", "anthropic"] = "auto"
    """`chat`: chat completions with tools. `responses`: OpenAI's Responses. `anthropic`: the
    Messages API; needs the extra `[anthropic]`. `fenced`: chat completions in which the model
    writes fenced code blocks that are run. `auto`: `fenced` for models whose name says at most four
    billion parameters; otherwise tools, and `fenced` while the server refuses tools."""
    thinks: bool = True
    """Let the model think before it answers and between calls. Only for `anthropic`. Thoughts count
    as output, also towards `answer_tokens`."""
    context_tokens: Annotated[int, pydantic.Field(ge=2048)] = 128_000
    """Size of its context: input and output together."""
    answer_tokens: Annotated[int, pydantic.Field(ge=64)] = 8192
    """Longest single answer to ask for."""
    can_see_images: bool = True
    """Show the model pictures that people send and code draws, unless its server refuses them.
    `false`: describe them in words at once."""
    refuses: tuple[str, ...] = ()
    """Parameters and fields of requests that the server refuses, such as `temperature`,
    `stream_options` or `reasoning_content`. `max_tokens` is then sent by its newer name,
    `max_completion_tokens`."""
    requires: Literal["", "reasoning_content", "thought_signature"] = ""
    """What the server requires in the messages of another model, as DeepSeek's and Google's do."""
    input_price: fields.Price = decimal.Decimal(0)
    """Price of a million input tokens."""
    cached_price: fields.Price | None = None
    """Price of a million input tokens that the server had cached. Unset means `input_price`."""
    cache_write_price: fields.Price | None = None
    """Price of a million input tokens that the server writes to its cache. Unset means
    `input_price`."""
    output_price: fields.Price = decimal.Decimal(0)
    """Price of a million output tokens."""
    temperature: Annotated[float, pydantic.Field(ge=0, le=2)] | None = None
    """Sampling temperature. Unset leaves it to the server."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fill_anthropic_defaults(cls, values: object) -> object:
        """Fill in the address and the key variable of Anthropic for its own protocol."""
        if isinstance(values, dict) and values.get("protocol") == "anthropic":
            return {**_ANTHROPIC_DEFAULTS, **values}
        return values

    @property
    def title(self) -> str:
        """The name that people see."""
        return self.label or self.name

    @property
    def is_small(self) -> bool:
        """Whether its name states a size that needs short prompts, and code in blocks."""
        sizes = _SIZE_IN_NAME_PATTERN.findall(self.name)
        billions = [float(number) / (1000 if unit in "mM" else 1) for number, unit in sizes]
        return bool(billions) and max(billions) <= _MAX_SMALL_BILLIONS

    @property
    def can_call_tools(self) -> bool:
        """Whether it can do more than run code: a small model cannot judge when to, and blocks hold
        only code."""
        return not self.is_small and self.protocol != "fenced"


class TurnLimits(fields.Group):
    """What one turn (a request and its answer) may use. Checked before each model call."""

    steps: fields.Positive = 25
    """Model calls."""
    tokens: fields.Positive = 1_000_000
    """Input and output tokens."""
    seconds: fields.Seconds = 30 * 60.0
    """Wall time, running code included."""
    money: fields.Price | None = None
    """Cost, in the currency of your prices. Unset means no limit."""


class Patience(fields.Group):
    """How long the bot waits for a model's server."""

    silence_seconds: fields.Seconds = 180.0
    """Longest silence from the server before the request fails. Small machines need minutes to
    read a long transcript.
    """


STRANGER_DAILY_TOKENS: Final = 200_000
"""Daily tokens of one person if the bot is open to all and no allowance is set."""


class DailyAllowance(fields.Group):
    """What one person may use per day (UTC), in all conversations. Without limits by default,
    except on Discord while no servers, channels, roles or people are named: 200,000 tokens."""

    money: fields.Price | None = None
    """Cost, in the currency of your prices. Unset means no limit."""
    tokens: fields.Positive | None = None
    """Input and output tokens. Unset means no limit."""


class EmbeddedModel(fields.Group):
    """The demo model, which runs inside the bot if no other model is configured. Needs the extra
    `[local]`."""

    enabled: bool = True
    """Use the demo model if no other model is configured."""
    model_path: pathlib.Path | None = None
    """A GGUF file to use. Unset means that the demo model is downloaded once (1.04 GiB). A file
    with the name of the official one is checked against its hash.
    """
