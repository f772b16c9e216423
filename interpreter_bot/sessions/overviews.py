"""Conversations and their use at a glance."""

from __future__ import annotations

import dataclasses
import datetime
import decimal

from interpreter_bot import values
from interpreter_bot.sessions import ports


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One conversation, for a list.

    Attributes:
        title: empty until somebody sets it.
        model: title of the chosen model; empty for the default.
        used: when it was last used.
        is_busy: a turn runs or waits in it.
        has_kernel: a live Python holds its variables.
        memory_bytes: what that Python uses, where that is known.
        idle_seconds: since that Python last did something.
    """

    key: values.SessionKey
    title: str
    model: str
    used: datetime.datetime
    is_busy: bool
    has_kernel: bool
    memory_bytes: int | None = None
    idle_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used.

    Attributes:
        session: by the conversation, ever.
        today: by the person, in all conversations, since midnight UTC.
        cpu_seconds: processor time of the conversation, ever.
        allowed_money: of the person in a day; None means no limit.
        allowed_tokens: of the person in a day; None means no limit.
    """

    session: ports.Spent
    today: ports.Spent
    cpu_seconds: float
    allowed_money: decimal.Decimal | None
    allowed_tokens: int | None
