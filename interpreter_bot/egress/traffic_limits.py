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
_MAX_HOURLY_REQUESTS: Final = 600
_TOO_MANY_REQUESTS: Final = 429


class Traffic:
    """The traffic of one session."""

    def __init__(
        self, limits: settings.EgressLimits, *, max_hourly_requests: int = _MAX_HOURLY_REQUESTS
    ) -> None:
        self._limits = limits
        self._max_hourly_requests = max_hourly_requests
        self._request_times: collections.deque[float] = collections.deque(
            maxlen=max_hourly_requests
        )
        self._day_started_at = time.monotonic()
        self._day_bytes = 0

    @property
    def today_bytes(self) -> int:
        """Bytes in both directions on the session's present day of 24 hours."""
        now = time.monotonic()
        if now - self._day_started_at > _DAY_SECONDS:
            self._day_started_at, self._day_bytes = now, 0
        return self._day_bytes

    def admit(self) -> None:
        """Count a connection or request.

        Raises:
            Refusal: there were too many requests in the last hour, or too many bytes today.
        """
        now = time.monotonic()
        if (
            len(self._request_times) == self._max_hourly_requests
            and now - self._request_times[0] < _HOUR_SECONDS
        ):
            raise policies.Refusal(
                network_words.too_many_requests(self._max_hourly_requests),
                status=_TOO_MANY_REQUESTS,
            )
        self._request_times.append(now)
        self._count_bytes(0)

    def count_sent(self, contact: code_activity.Contact, byte_count: int) -> None:
        """Count what code sends.

        Raises:
            Refusal: a limit is exceeded.
        """
        contact.sent_bytes += byte_count
        self._count_bytes(byte_count)
        if contact.sent_bytes > (limit := self._limits.sent_bytes):
            raise policies.Refusal(network_words.sent_too_much(limit), status=413)

    def count_received(self, contact: code_activity.Contact, byte_count: int) -> None:
        """Count what code receives.

        Raises:
            Refusal: a limit is exceeded.
        """
        contact.received_bytes += byte_count
        self._count_bytes(byte_count)
        if contact.received_bytes > (limit := self._limits.received_bytes):
            raise policies.Refusal(network_words.received_too_much(limit), status=502)

    def _count_bytes(self, byte_count: int) -> None:
        self._day_bytes += byte_count
        if self.today_bytes > self._limits.daily_bytes:
            raise policies.Refusal(network_words.TRAFFIC_USED_UP, status=_TOO_MANY_REQUESTS)
