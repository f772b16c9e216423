"""The port that platforms implement: the reply to a request."""

from __future__ import annotations

import abc
import pathlib
from typing import Final

from interpreter_bot import events

NO_TOOLS: Final = '{"servers": {}}'
"""The answer to code that lists tools if there are none; to a call it is an invalid answer."""


class Reply(abc.ABC):
    """Shows a turn, or a run of code. Events after `TurnEnded` are ignored, even if that failed.

    An exception of `_show`, such as BrokenPipeError, means that nobody reads the reply any more:
    the code is stopped at once, and the exception is passed on.
    """

    _has_ended = False

    def emit(self, event: events.TurnEvent) -> None:
        """Receive an event."""
        # A final message must not change, even if an error follows.
        if not self._has_ended:
            self._has_ended = isinstance(event, events.TurnEnded)
            self._show(event)

    @abc.abstractmethod
    def _show(self, event: events.TurnEvent) -> None:
        """Show an event, or queue it; must not block."""

    @property
    def spool(self) -> pathlib.Path | None:
        """The directory for copies of the files that code makes; None for no copies."""
        return None
