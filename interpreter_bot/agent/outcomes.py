"""Outcomes of a turn: values, with a sentence for people unless it was answered."""

from __future__ import annotations

import dataclasses
import enum

from interpreter_bot.agent import budgets, claims


class OutcomeKind(enum.StrEnum):
    """How a turn ended; exactly one of these."""

    ANSWERED = "answered"
    STOPPED = "stopped"
    """By the person; what was made until then stays."""
    OUT_OF_BUDGET = "out of budget"
    """Of steps, tokens, seconds or money."""
    REFUSED = "refused"
    """By the model or its provider."""
    UNREACHABLE = "unreachable"
    """The model's server could not be used: the sentence says why."""
    CUT = "cut"
    """The model's answer broke off, again and again."""
    EMPTY = "empty"
    """The model said nothing, again and again."""
    MALFORMED = "malformed"
    """The model's calls could not be understood, again and again."""
    STUCK = "stuck"
    """The same code or the same error, again and again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn.

    Attributes:
        ending: how it ended.
        text: the model's last words to the person; what there is of them where it was cut short.
        sentence: for people, empty where `ending` is ANSWERED.
        spent: what it cost.
        unfounded: what `text` claims without ground, though the model was asked again.
    """

    ending: OutcomeKind
    text: str
    sentence: str
    spent: budgets.Spent
    unfounded: claims.Unfounded = claims.NOTHING
