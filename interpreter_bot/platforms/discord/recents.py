"""Messages that became requests a short while ago."""

from __future__ import annotations

import dataclasses
import time
from typing import Final

import discord

from interpreter_bot.platforms.discord import requesting

_MOST: Final = 1000


@dataclasses.dataclass(eq=False, slots=True)
class Recent:
    """One of them.

    Attributes:
        content: of the message, as it was answered last.
        heard: when it was heard first, on the monotonic clock.
        run: its request.
    """

    content: str
    heard: float
    run: requesting.Run


class Recents:
    """The latest of them, by message."""

    def __init__(self) -> None:
        self._known: dict[int, Recent] = {}

    def remember(self, message: discord.Message, run: requesting.Run) -> None:
        """Take note of a message that became a request."""
        if len(self._known) >= _MOST:
            self._known.pop(next(iter(self._known)))
        self._known[message.id] = Recent(message.content, time.monotonic(), run)

    def find(self, message_id: int) -> Recent | None:
        """Return what is known of a message."""
        return self._known.get(message_id)

    def forget(self, message_id: int) -> Recent | None:
        """Return it, for the last time."""
        return self._known.pop(message_id, None)
