"""Settings of language models, turns, daily allowances, patience and the embedded model."""

from __future__ import annotations

import decimal
import pathlib
import re
from typing import Annotated, Final, Literal

import pydantic

from interpreter_bot.setting_groups import fields, header_values

# Smaller models write better programs as code blocks than as tool calls, even where they support
# those: as calls, one of 1.5 billion puts them on one line, and repeats the same mistake.
_SMALL_BILLIONS: Final = 4.0
# "qwen2.5-coder-1.5b-instruct", "llama3.2:3b", "smollm2-360m"; neither the "A3B" of a larger one
# with experts, nor the "4bit" of a quantized one.
_SIZE: Final = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", re.IGNORECASE)

_ANTHROPICS: Final = {
    "base_url": "https://api.anthropic.com",
    "api_key_variable": "ANTHROPIC_API_KEY",
}


def _sight(value: object) -> object:
    """Accept true and false, too."""
    words = {"true": "yes", "false": "no"}
    return words.get(str(value).lower(), value)


class Model(fields.Group):
    """One model that people can choose."""

    name: Annotated[str, pydantic.Field(min_length=1)]
    """What its server calls it."""
    label: str = ""
    """What people call it; empty means its name."""
    base_url: header_values.Address = "https://api.openai.com/v1"
    """Where its server is: any that speaks OpenAI's protocols, or Anthropic's; for that, its own by
    default."""
    api_key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds its key, `ANTHROPIC_API_KEY` by default for that
    protocol; unset or empty means the server wants none."""
    protocol: Literal["auto", "chat", "responses", "fenced", "anthropic"] = "auto"
    """The wire protocol. `fenced` is chat completions with blocks of code in the text, which are
    run; in all others, code in a model's words is only shown. `auto` is `fenced` for a model whose
    name says at most four billion parameters; otherwise it offers tools, and switches to `fenced`
    while the server refuses them. `anthropic` is the Messages API, and needs the extra
    `[anthropic]`."""
    thinks: bool = True
    """Let it think before it answers and between its calls, where that is up to us: over
    `anthropic`. Its thoughts count as written, also towards `answer_tokens`."""
    context_tokens: Annotated[int, pydantic.Field(ge=2048)] = 128_000
    """How much it can read and write together."""
    answer_tokens: Annotated[int, pydantic.Field(ge=64)] = 8192
    """The longest single answer that is asked for."""
    can_see_images: Annotated[Literal["auto", "yes", "no"], pydantic.BeforeValidator(_sight)] = (
        "auto"
    )
    """Show it the pictures that people send and code draws; otherwise it is told of them in words.
    `auto` goes over to words for good when the server says that the model does not see."""
    input_price: fields.Price = decimal.Decimal(0)
    """Money for a million tokens read."""
    cached_price: fields.Price | None = None
    """Money for a million tokens read that the server had in its cache; None: the input price."""
    cache_write_price: fields.Price | None = None
    """Money for a million tokens read that it puts there; None: the input price."""
    output_price: fields.Price = decimal.Decimal(0)
    """Money for a million tokens written."""
    temperature: Annotated[float, pydantic.Field(ge=0, le=2)] | None = None
    """How freely it answers; None leaves that to the server."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _anthropics_own(cls, given: object) -> object:
        """Complete what is given for Anthropic's protocol by its own address and key."""
        if isinstance(given, dict) and given.get("protocol") == "anthropic":
            return {**_ANTHROPICS, **given}
        return given

    @property
    def can_see(self) -> bool:
        """Whether it is shown pictures, as far as is known."""
        return self.can_see_images != "no"

    @property
    def title(self) -> str:
        """The name that people see."""
        return self.label or self.name

    @property
    def is_small(self) -> bool:
        """Whether its name states a size that needs short prompts, and code in blocks."""
        found = _SIZE.findall(self.name)
        billions = [float(number) / (1000 if unit in "mM" else 1) for number, unit in found]
        return bool(billions) and max(billions) <= _SMALL_BILLIONS


class TurnLimits(fields.Group):
    """What one turn may use. All are checked before each spend."""

    steps: fields.Positive = 25
    """Model calls."""
    tokens: fields.Positive = 1_000_000
    """Tokens read and written."""
    seconds: fields.Seconds = 30 * 60.0
    """Wall time, running code included."""
    money: fields.Price | None = None
    """In the currency of the price list; None means no limit."""
    equal_failures: Annotated[int, pydantic.Field(ge=2)] = 4
    """The same error, the same malformed call or the same refused repeat so often in a row ends
    the turn: it would only burn money."""
    output_characters: Annotated[int, pydantic.Field(ge=400)] = 8000
    """What the model sees of the printed output of one execution, half head and half tail."""
    pictures: Annotated[int, pydantic.Field(ge=0)] = 4
    """Pictures of one execution that are shown to a model that can see."""
    file_bytes: fields.Positive = 32_768
    """What the model gets at once when it reads a file."""


class Patience(fields.Group):
    """How long a model's server is waited for."""

    retries: Annotated[int, pydantic.Field(ge=0, le=10)] = 3
    """Further tries after a rate limit, an overload or a lost connection."""
    backoff_seconds: fields.Seconds = 0.5
    """The wait before the first of them; it doubles each time."""
    longest_wait_seconds: fields.Seconds = 60.0
    """A server that wants us to wait longer is not waited for."""
    connect_seconds: fields.Seconds = 10.0
    """To reach the server."""
    silence_seconds: fields.Seconds = 180.0
    """Between two signs of life; a small machine needs that long to read a long transcript."""


STRANGERS_TOKENS: Final = 200_000
"""Daily tokens of one person where the bot is open to all and no allowance is set."""


class DailyAllowance(fields.Group):
    """What one person may use in a day (of UTC), in all conversations. None means no limit, but
    on Discord while no people, roles, servers or channels are named: 200,000 tokens then."""

    money: fields.Price | None = None
    """In the currency of the price list."""
    tokens: fields.Positive | None = None
    """Tokens read and written."""


class Instructions(fields.Group):
    """What models are told beside the rules."""

    note: str = ""
    """Added to the system prompt: what the operator wants every model to know."""


class EmbeddedModel(fields.Group):
    """The embedded model, used if no other is configured: needs the extra `[local]`."""

    enabled: bool = True
    """Use it where no other model is configured."""
    model_path: pathlib.Path | None = None
    """A GGUF file; without one, the demo model is downloaded once, 1.04 GiB. A file called like the
    official one has to be it."""
    context_tokens: Annotated[int, pydantic.Field(ge=2048)] = 8192
    """How much it can read and write together; more takes more memory."""
    threads: Annotated[int, pydantic.Field(ge=0, le=256)] = 0
    """Threads that it computes with; 0 means one for each core."""
