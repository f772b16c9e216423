"""Limits on what clients may make the bot hold: bodies of unanswered requests, and sessions."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from interpreter_bot import errors
from interpreter_bot.text import quantities
from interpreter_bot.wording import api_words


class ClientBusyError(errors.BotError):
    """The client has to wait for the answers to its other requests."""


class ServerBusyError(errors.BotError):
    """The client has to wait for the answers to requests of others."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits.

    Attributes:
        client_body_bytes: of all bodies of one client that are not answered yet.
        total_body_bytes: of all bodies that are not answered yet.
        client_sessions: sessions of one client of the HTTP interface.
    """

    client_body_bytes: int = 64 * 1024 * 1024
    total_body_bytes: int = 256 * 1024 * 1024
    client_sessions: int = 10_000


DEFAULT_LIMITS: Final = Limits()


class BodyMemory:
    """The bytes of the bodies of unanswered requests, by client."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes_by_client: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def open_account(self, client: str) -> Iterator[Callable[[int], None]]:
        """Give a function that charges bytes to a request; they are returned at the end.

        The function raises ClientBusyError or ServerBusyError if the bytes exceed a limit.
        """
        charged_bytes = 0

        def charge(size_bytes: int) -> None:
            nonlocal charged_bytes
            if self._bytes_by_client[client] + size_bytes > self._limits.client_body_bytes:
                raise ClientBusyError(
                    api_words.client_busy(quantities.size(self._limits.client_body_bytes))
                )
            if self._bytes_by_client.total() + size_bytes > self._limits.total_body_bytes:
                raise ServerBusyError(api_words.SERVER_BUSY)
            self._bytes_by_client[client] += size_bytes
            charged_bytes += size_bytes

        try:
            yield charge
        finally:
            self._bytes_by_client[client] -= charged_bytes
            if not self._bytes_by_client[client]:
                del self._bytes_by_client[client]
