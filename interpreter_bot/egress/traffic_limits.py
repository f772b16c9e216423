"""Counters and limits of a session's traffic with the outside."""

from __future__ import annotations

import collections
import time
from typing import Final

from interpreter_bot import code_activity, settings
from interpreter_bot.egress import policies
from interpreter_bot.wording import network_words

_HOUR_SECONDS: Final = 3600.0
_DAY_SECONDS: Final = 24 * 3600.0
_TOO_MANY_REQUESTS: Final = 429


class Traffic:
    """The traffic of one session."""

    def __init__(self, limits: settings.EgressLimits) -> None:
        self._limits = limits
        self._times: collections.deque[float] = collections.deque(maxlen=limits.requests)
        self._since = time.monotonic()
        self._bytes = 0

    @property
    def today_bytes(self) -> int:
        """Bytes in both directions since the session's day began, which lasts 24 hours."""
        now = time.monotonic()
        if now - self._since > _DAY_SECONDS:
            self._since, self._bytes = now, 0
        return self._bytes

    def admit(self) -> None:
        """Count a connection or request.

        Raises:
            Refusal: there were too many, or was too much.
        """
        now = time.monotonic()
        if len(self._times) == self._limits.requests and now - self._times[0] < _HOUR_SECONDS:
            raise policies.Refusal(
                network_words.too_many_requests(self._limits.requests), status=_TOO_MANY_REQUESTS
            )
        self._times.append(now)
        self._add(0)

    def count_sent(self, contact: code_activity.Contact, count: int) -> None:
        """Count what code sends.

        Raises:
            Refusal: it is too much.
        """
        contact.sent_bytes += count
        self._add(count)
        if contact.sent_bytes > (limit := self._limits.sent_bytes):
            raise policies.Refusal(network_words.sent_too_much(limit), status=413)

    def count_received(self, contact: code_activity.Contact, count: int) -> None:
        """Count what code receives.

        Raises:
            Refusal: it is too much.
        """
        contact.received_bytes += count
        self._add(count)
        if contact.received_bytes > (limit := self._limits.received_bytes):
            raise policies.Refusal(network_words.received_too_much(limit), status=502)

    def _add(self, count: int) -> None:
        self._bytes += count
        if self.today_bytes > self._limits.daily_bytes:
            raise policies.Refusal(network_words.TRAFFIC_USED_UP, status=_TOO_MANY_REQUESTS)
