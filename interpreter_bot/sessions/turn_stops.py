"""Signals that stop turns early: who stopped them, and the one sentence that says so."""

from __future__ import annotations

import asyncio
from typing import Final

from interpreter_bot import values
from interpreter_bot.sessions import ports

INTERRUPTED: Final = (
    "The bot was restarted in the middle of an answer here. What was made until then is kept; "
    "so are variables that were saved before. Please ask again."
)
SUSPENDED: Final = "The bot is being restarted. This goes on when it is back."
WENT_ON: Final = "This went on while the bot was restarted."
_STOPPED: Final = "Stopped."
_KEPT: Final = "Stopped. Variables are kept."


class StopSignal(asyncio.Event):
    """An event that stops a turn when it is set.

    Attributes:
        is_restart: set by the bot's own shutdown, not by a person.
        goes_on: set with it, where the next bot goes on with the turn.
    """

    is_restart = False
    goes_on = False

    @property
    def is_suspended(self) -> bool:
        """Whether the turn ends here only, and goes on in the next bot."""
        return self.is_set() and self.is_restart and self.goes_on

    def suspend(self) -> None:
        """A turn that is cancelled while the bot ends goes on in the next one, if it can."""
        if self.is_restart and self.goes_on:
            self.set()

    def end(self, text: str = "", *, last: values.Finished | None = None) -> ports.End:
        """Return the end of a turn that was stopped.

        Args:
            text: the model's words until then.
            last: how the last code ended. What it lost is in its own sentence; that it was stopped
                is said here, and nowhere else.
        """
        if self.is_restart:
            status = values.TurnStatus.INTERRUPTED
            sentence = SUSPENDED if self.goes_on else INTERRUPTED
            return ports.End(status=status, text=text, sentence=sentence)
        was_running = last is not None and last.ending is values.Ending.STOPPED
        sentence = _KEPT if was_running and last and not last.kernel_lost else _STOPPED
        return ports.End(status=values.TurnStatus.STOPPED, text=text, sentence=sentence)
