"""A limit on how many downloads of a session one reader may have at a time."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

from interpreter_bot import errors, values
from interpreter_bot.wording import page_words


class SessionSlots:
    """Counts the downloads under way, for each session and each visit of a session."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: collections.Counter[tuple[values.SessionKey, str]] = collections.Counter()

    @contextlib.contextmanager
    def hold(self, key: values.SessionKey, *, visit: str) -> Iterator[None]:
        """Count a download until the context ends; `visit` is empty for the session's owner.

        Raises:
            BotError: the reader has too many downloads.
        """
        reader = key, visit
        if self._counts[reader] >= self._limit:
            raise errors.BotError(page_words.TOO_MANY_DOWNLOADS)
        self._counts[reader] += 1
        try:
            yield
        finally:
            self._counts[reader] -= 1
            if not self._counts[reader]:
                del self._counts[reader]
