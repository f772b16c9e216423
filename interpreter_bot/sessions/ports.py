"""Protocols that platforms implement: the reply to a request, and writers for its files."""

from __future__ import annotations

import abc
from typing import Final, Protocol

from interpreter_bot import events

NO_TOOLS: Final = '{"servers": {}}'
"""What code is answered that asks for tools where there are none; of a call, it has no result."""


class FileWriter(Protocol):
    """Writes the bytes of one artifact."""

    def write(self, data: bytes, /) -> object:
        """Write all of `data`. Called in a thread; OSError ends the copy."""

    def complete(self) -> None:
        """Publish the artifact: all of it was written. OSError says that it cannot."""

    def close(self) -> None:
        """Close the writer; an artifact that was not completed is discarded.

        Always called, and last.
        """


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

    @abc.abstractmethod
    def save(self, name: str) -> FileWriter | None:
        """Return the writer for a changed file, whose `FileMade` follows; None if it is not wanted.

        Raises:
            OSError: it cannot be written; the file is left out, which is announced.
        """
