"""What a turn may cost, checked before each spend; and what it did cost, exactly.

A model call is allowed only if its worst case (the transcript as estimated, and the longest answer
asked for) fits into what is left; a shorter answer is asked for where only that fits. What counts
in the end is what the server says it counted.
"""

from __future__ import annotations

import dataclasses
import decimal
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from interpreter_bot import settings
from interpreter_bot.agent import chat_messages

_MILLION: Final = decimal.Decimal(1_000_000)
# An answer that must be shorter than this is not worth asking for.
_SHORTEST_ANSWER: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """What a turn has used.

    Attributes:
        steps: model calls.
        usage: tokens.
        money: in the currency of the price list.
    """

    steps: int = 0
    usage: chat_messages.Usage = dataclasses.field(default_factory=chat_messages.Usage)
    money: decimal.Decimal = decimal.Decimal(0)


Allowance: TypeAlias = Callable[[Spent], Awaitable[str | None]]
"""Asked before each spend, for what is limited per person and day.

It gets what this turn would have spent in the worst case once the coming call is over, and returns
a sentence where that is too much, None where it is allowed.
"""


def time_is_up(seconds: float) -> str:
    """Say that a request took longer than it may."""
    return f"This took longer than the {seconds:,.0f} seconds a request may take."


def price(usage: chat_messages.Usage, model: settings.Model) -> decimal.Decimal:
    """Compute what tokens cost, without rounding."""
    cached, stored = usage.cached_tokens, usage.cache_write_tokens
    read = (usage.input_tokens - cached - stored) * model.input_price
    read += cached * _or(model.cached_price, model.input_price)
    read += stored * _or(model.cache_write_price, model.input_price)
    return (read + usage.output_tokens * model.output_price) / _MILLION


def _or(price: decimal.Decimal | None, otherwise: decimal.Decimal) -> decimal.Decimal:
    return otherwise if price is None else price


def _worst_input(tokens: int, model: settings.Model) -> chat_messages.Usage:
    """Say how tokens are read at worst: where it has a higher price, all of them go to a cache."""
    is_dearer = _or(model.cache_write_price, model.input_price) > model.input_price
    return chat_messages.Usage(tokens, cache_write_tokens=tokens if is_dearer else 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Allotment:
    """Leave to ask the model. With `is_last`, there will be no other: it shall answer in words."""

    answer_tokens: int
    is_last: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing more is spent, as a sentence."""

    sentence: str


class Budget:
    """One turn's purse."""

    def __init__(
        self,
        limits: settings.Turn,
        model: settings.Model,
        *,
        allowance: Allowance | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spent = Spent()
        self._limits = limits
        self._model = model
        self._allowance = allowance
        self._clock = clock
        self._started = clock()

    @property
    def seconds_left(self) -> float:
        """Wall time until the turn is over."""
        return self._started + self._limits.seconds - self._clock()

    @property
    def time_is_up(self) -> str:
        """The sentence for that."""
        return time_is_up(self._limits.seconds)

    async def ask(self, input_tokens: int) -> Allotment | Refusal:
        """Say whether the model may be asked, and how long its answer may be."""
        limits = self._limits
        if self.spent.steps >= limits.steps:
            return Refusal(f"This took all {limits.steps} steps that a request may take.")
        if self.seconds_left <= 0:
            return Refusal(self.time_is_up)
        answer = min(
            self._model.answer_tokens, limits.tokens - self.spent.usage.tokens - input_tokens
        )
        if answer < _SHORTEST_ANSWER:
            return Refusal(f"This request would need more than its {limits.tokens:,} tokens.")
        answer = min(answer, self._affordable(input_tokens))
        if answer < _SHORTEST_ANSWER:
            return Refusal(f"This request would cost more than {limits.money} allows.")
        if self._allowance and (
            sentence := await self._allowance(self._worst(input_tokens, answer))
        ):
            return Refusal(sentence)
        return Allotment(answer, is_last=self.spent.steps + 1 >= limits.steps)

    def charge(self, usage: chat_messages.Usage, *, is_step: bool = True) -> Spent:
        """Count a model call that was made; only some of them are steps."""
        self.spent = self._with(usage, steps=int(is_step))
        return self.spent

    def _affordable(self, input_tokens: int) -> int:
        """Count the tokens of answer that the money left pays for."""
        if self._limits.money is None:
            return self._model.answer_tokens
        left = self._limits.money - self.spent.money
        left -= price(_worst_input(input_tokens, self._model), self._model)
        if left < 0 or not self._model.output_price:
            return -1 if left < 0 else self._model.answer_tokens
        return int(left * _MILLION / self._model.output_price)

    def _worst(self, input_tokens: int, answer_tokens: int) -> Spent:
        answer = chat_messages.Usage(0, answer_tokens, is_estimated=True)
        return self._with(_worst_input(input_tokens, self._model) + answer)

    def _with(self, usage: chat_messages.Usage, *, steps: int = 1) -> Spent:
        return Spent(
            self.spent.steps + steps,
            self.spent.usage + usage,
            self.spent.money + price(usage, self._model),
        )
