"""Messages that became requests a short while ago."""

from __future__ import annotations

import dataclasses
import time
from typing import Final

import cachetools
import discord

from interpreter_bot.platforms.discord import requesting

_MOST: Final = 1000


@dataclasses.dataclass(eq=False, slots=True)
class Recent:
    """One of them.

    Attributes:
        message: as it was answered last.
        heard: when it was heard first, on the monotonic clock.
        run: its request; None while its thread is being opened.
        is_deleted: it is gone.
    """

    message: discord.Message
    heard: float
    run: requesting.Run | None = None
    is_deleted: bool = False


class Recents:
    """The latest of them, by message."""

    def __init__(self) -> None:
        self._known = cachetools.LRUCache[int, Recent](_MOST)

    def remember(self, message: discord.Message) -> Recent:
        """Take note of a message that becomes a request."""
        recent = self._known[message.id] = Recent(message, time.monotonic())
        return recent

    def find(self, message_id: int) -> Recent | None:
        """Return what is known of a message."""
        return self._known.get(message_id)

    def forget(self, message_id: int) -> Recent | None:
        """Hear that a message is gone; returns what was known of it."""
        recent = self._known.pop(message_id, None)
        if recent is not None:
            recent.is_deleted = True
        return recent
