"""How many costly answers of one session the page's server makes for one reader at a time."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

from interpreter_bot import errors, values
from interpreter_bot.wording import page_words


class SessionSlots:
    """Counts what is under way for each session, and for each visit of it apart."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: collections.Counter[tuple[values.SessionKey, str]] = collections.Counter()

    @contextlib.contextmanager
    def hold(self, key: values.SessionKey, *, visit: str) -> Iterator[None]:
        """Count one more in the context.

        Args:
            key: the session.
            visit: id of the visit that reads it; empty for its owner.

        Raises:
            BotError: there are too many.
        """
        reader = key, visit
        if self._holders[reader] >= self._limit:
            raise errors.BotError(page_words.TOO_MANY_DOWNLOADS)
        self._holders[reader] += 1
        try:
            yield
        finally:
            self._holders[reader] -= 1
            if not self._holders[reader]:
                del self._holders[reader]
