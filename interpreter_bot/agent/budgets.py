"""The budget of a turn: limits checked before each model call, and the exact cost afterwards.

A model call is allowed only if its worst case (the estimated transcript plus the longest answer)
fits into what is left; if need be, a shorter answer is requested. The usage that the server reports
is charged.
"""

from __future__ import annotations

import dataclasses
import decimal
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from interpreter_bot import settings, values
from interpreter_bot.wording import model_words

_MILLION: Final = decimal.Decimal(1_000_000)
# An answer shorter than this is not worth asking for.
_SHORTEST_ANSWER: Final = 64


Allowance: TypeAlias = Callable[[values.Usage], Awaitable[str | None]]
"""Check of the limits per person and day, called before each model call.

It gets what the turn would have spent after the coming call in the worst case, and returns a
sentence where that is too much, None where it is allowed.
"""


def price(usage: values.Usage, model: settings.Model) -> decimal.Decimal:
    """Compute the price of tokens, without rounding."""
    cached, cache_writes = usage.cached_tokens, usage.cache_write_tokens
    read = (usage.input_tokens - cached - cache_writes) * model.input_price
    read += cached * _price_or(model.cached_price, model.input_price)
    read += cache_writes * _price_or(model.cache_write_price, model.input_price)
    return (read + usage.output_tokens * model.output_price) / _MILLION


def _price_or(price: decimal.Decimal | None, otherwise: decimal.Decimal) -> decimal.Decimal:
    return otherwise if price is None else price


def _worst_input(tokens: int, model: settings.Model) -> values.Usage:
    """Return the worst-case usage of an input: written to the cache, if that costs more."""
    is_dearer = _price_or(model.cache_write_price, model.input_price) > model.input_price
    return values.Usage(tokens, cache_write_tokens=tokens if is_dearer else 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Allotment:
    """Permission for one model call.

    With `is_last` there will be no other: it must answer in words.
    """

    answer_tokens: int
    is_last: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a model call: the sentence why nothing more is spent."""

    sentence: str


class Budget:
    """The budget of one turn."""

    def __init__(
        self,
        limits: settings.TurnLimits,
        model: settings.Model,
        *,
        allowance: Allowance | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spent = values.Usage()
        self._limits = limits
        self._model = model
        self._allowance = allowance
        self._clock = clock
        self._started = clock()

    @property
    def seconds_left(self) -> float:
        """Return the wall time left for the turn."""
        return self._started + self._limits.seconds - self._clock()

    @property
    def time_is_up_sentence(self) -> str:
        """Return the sentence for a turn whose time is over."""
        return model_words.out_of_time(self._limits.seconds)

    async def allot(self, input_tokens: int) -> Allotment | Refusal:
        """Check whether the model may be called, and how long its answer may be."""
        limits = self._limits
        if self.spent.steps >= limits.steps:
            return Refusal(model_words.out_of_steps(limits.steps))
        if self.seconds_left <= 0:
            return Refusal(self.time_is_up_sentence)
        answer = min(self._model.answer_tokens, limits.tokens - self.spent.tokens - input_tokens)
        if answer < _SHORTEST_ANSWER:
            return Refusal(model_words.out_of_tokens(limits.tokens))
        answer = min(answer, self._affordable_tokens(input_tokens))
        if answer < _SHORTEST_ANSWER:
            return Refusal(model_words.out_of_money(limits.money))
        if self._allowance and (
            sentence := await self._allowance(self._worst(input_tokens, answer))
        ):
            return Refusal(sentence)
        return Allotment(answer, is_last=self.spent.steps + 1 >= limits.steps)

    def charge(self, usage: values.Usage, *, is_step: bool = True) -> values.Usage:
        """Record a model call that was made; only some of them count as steps."""
        self.spent += self._priced(usage, steps=int(is_step))
        return self.spent

    def _affordable_tokens(self, input_tokens: int) -> int:
        """Count the answer tokens that the remaining money pays for."""
        if self._limits.money is None:
            return self._model.answer_tokens
        money_left = self._limits.money - self.spent.money
        money_left -= price(_worst_input(input_tokens, self._model), self._model)
        if money_left < 0 or not self._model.output_price:
            return -1 if money_left < 0 else self._model.answer_tokens
        return int(money_left * _MILLION / self._model.output_price)

    def _worst(self, input_tokens: int, answer_tokens: int) -> values.Usage:
        answer = values.Usage(0, answer_tokens, is_estimated=True)
        usage = _worst_input(input_tokens, self._model) + answer
        return self.spent + self._priced(usage)

    def _priced(self, usage: values.Usage, *, steps: int = 1) -> values.Usage:
        return dataclasses.replace(usage, steps=steps, money=price(usage, self._model))
