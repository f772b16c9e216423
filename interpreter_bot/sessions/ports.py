"""What platforms implement: the reply to a request."""

from __future__ import annotations

import abc
import pathlib
from typing import Final

from interpreter_bot import events

NO_TOOLS: Final = '{"servers": {}}'
"""What code is answered that asks for tools where there are none; of a call, it has no result."""


class Reply(abc.ABC):
    """Where a turn, or a run of code, is shown. Events after its end are ignored, also if the end
    could not be shown.

    What `_show` raises means that the reader is gone, such as BrokenPipeError: the code is stopped
    at once and the exception is passed on.
    """

    _has_ended = False

    def emit(self, event: events.TurnEvent) -> None:
        """Receive an event."""
        # A message that is final stays as it is, whatever goes wrong in the last moments.
        if not self._has_ended:
            self._has_ended = isinstance(event, events.TurnEnded)
            self._show(event)

    @abc.abstractmethod
    def _show(self, event: events.TurnEvent) -> None:
        """Show an event, or note it to be shown; must not block."""

    @property
    def spool(self) -> pathlib.Path | None:
        """The directory for copies of the files that code makes; None if it wants no copies."""
        return None
