"""The budget of a turn: limits checked before each model call, and the exact cost afterwards.

A model call is allowed only if its worst case (the estimated transcript plus the longest answer)
fits into the rest of the budget; if need be, a shorter answer is requested. Afterwards the usage
that the server reports is charged.
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
# A shorter answer is not worth a call.
_MIN_ANSWER_TOKENS: Final = 64


Allowance: TypeAlias = Callable[[values.Usage], Awaitable[str | None]]
"""Checks the limits per person and day before each model call.

The argument is what the turn would have spent after this call in the worst case. If that is too
much, a sentence is returned, otherwise None.
"""


def compute_price(usage: values.Usage, model: settings.Model) -> decimal.Decimal:
    """Compute the price of tokens, without rounding."""
    cached_tokens, cache_writes = usage.cached_tokens, usage.cache_write_tokens
    input_price = (usage.input_tokens - cached_tokens - cache_writes) * model.input_price
    input_price += cached_tokens * _price_or(model.cached_price, model.input_price)
    input_price += cache_writes * _price_or(model.cache_write_price, model.input_price)
    return (input_price + usage.output_tokens * model.output_price) / _MILLION


def _price_or(
    token_price: decimal.Decimal | None, default_price: decimal.Decimal
) -> decimal.Decimal:
    return default_price if token_price is None else token_price


def _worst_input_usage(tokens: int, model: settings.Model) -> values.Usage:
    """Return the worst-case usage of an input: all is written to the cache if that costs more."""
    is_dearer = _price_or(model.cache_write_price, model.input_price) > model.input_price
    return values.Usage(tokens, cache_write_tokens=tokens if is_dearer else 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Allotment:
    """Permission for one model call.

    Attributes:
        answer_tokens: the limit of the answer.
        is_last: there will be no further call, so the model must answer in words.
    """

    answer_tokens: int
    is_last: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a model call, with a sentence for the person that gives the reason."""

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
        self.usage = values.Usage()
        self._limits = limits
        self._model = model
        self._allowance = allowance
        self._clock = clock
        self._started_at = clock()

    @property
    def seconds_left(self) -> float:
        """Return the wall time left for the turn."""
        return self._started_at + self._limits.seconds - self._clock()

    @property
    def time_is_up_sentence(self) -> str:
        """Return the sentence that ends a turn when its time is over."""
        return model_words.out_of_time(self._limits.seconds)

    async def allot(self, input_tokens: int) -> Allotment | Refusal:
        """Check whether the model may be called, and how long its answer may be."""
        limits = self._limits
        if self.usage.steps >= limits.steps:
            return Refusal(model_words.out_of_steps(limits.steps))
        if self.seconds_left <= 0:
            return Refusal(self.time_is_up_sentence)
        answer_tokens = min(
            self._model.answer_tokens, limits.tokens - self.usage.tokens - input_tokens
        )
        if answer_tokens < _MIN_ANSWER_TOKENS:
            return Refusal(model_words.out_of_tokens(limits.tokens))
        answer_tokens = min(answer_tokens, self._affordable_tokens(input_tokens))
        if answer_tokens < _MIN_ANSWER_TOKENS:
            return Refusal(model_words.out_of_money(limits.money))
        if self._allowance and (
            sentence := await self._allowance(self._worst_usage(input_tokens, answer_tokens))
        ):
            return Refusal(sentence)
        return Allotment(answer_tokens, is_last=self.usage.steps + 1 >= limits.steps)

    def charge(self, usage: values.Usage, *, is_step: bool = True) -> values.Usage:
        """Record a completed model call; summaries, for example, do not count as steps."""
        self.usage += self._with_price(usage, steps=int(is_step))
        return self.usage

    def _affordable_tokens(self, input_tokens: int) -> int:
        """Count the answer tokens that the remaining money pays for."""
        if self._limits.money is None:
            return self._model.answer_tokens
        money_left = self._limits.money - self.usage.money
        money_left -= compute_price(_worst_input_usage(input_tokens, self._model), self._model)
        if money_left < 0 or not self._model.output_price:
            return -1 if money_left < 0 else self._model.answer_tokens
        return int(money_left * _MILLION / self._model.output_price)

    def _worst_usage(self, input_tokens: int, answer_tokens: int) -> values.Usage:
        answer_usage = values.Usage(0, answer_tokens, is_estimated=True)
        usage = _worst_input_usage(input_tokens, self._model) + answer_usage
        return self.usage + self._with_price(usage)

    def _with_price(self, usage: values.Usage, *, steps: int = 1) -> values.Usage:
        return dataclasses.replace(usage, steps=steps, money=compute_price(usage, self._model))
