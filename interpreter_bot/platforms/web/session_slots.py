"""How many costly answers of one session the page's server makes at a time."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Final

from interpreter_bot import errors, values

_BUSY: Final = "Too many downloads of this conversation are under way. Try again when one is done."


class SessionSlots:
    """Counts what is under way for each session."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: collections.Counter[values.SessionKey] = collections.Counter()

    @contextlib.contextmanager
    def held(self, key: values.SessionKey) -> Iterator[None]:
        """Count one more in the context.

        Raises:
            BotError: there are too many.
        """
        if self._held[key] >= self._most:
            raise errors.BotError(_BUSY)
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
