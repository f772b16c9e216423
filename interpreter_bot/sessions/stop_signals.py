"""Signals that stop turns early: who stopped them, and the one sentence that says so."""

from __future__ import annotations

import asyncio
from typing import Final

from interpreter_bot import values
from interpreter_bot.sessions import ports

INTERRUPTED: Final = (
    "The bot was restarted in the middle of an answer here. What was made until then is kept; "
    "variables are gone. Please ask again."
)
_STOPPED: Final = "Stopped."
_KEPT: Final = "Stopped. Variables are kept."


class StopSignal(asyncio.Event):
    """An event that stops a turn when it is set.

    Attributes:
        is_restart: set by the bot's own shutdown, not by a person.
    """

    is_restart = False

    def end(self, text: str = "", *, last: values.Finished | None = None) -> ports.End:
        """Return the end of a turn that was stopped.

        Args:
            text: the model's words until then.
            last: how the last code ended. What it lost is in its own sentence; that it was stopped
                is said here, and nowhere else.
        """
        if self.is_restart:
            status = values.TurnStatus.INTERRUPTED
            return ports.End(status=status, text=text, sentence=INTERRUPTED)
        was_running = last is not None and last.ending is values.Ending.STOPPED
        sentence = _KEPT if was_running and last and not last.kernel_lost else _STOPPED
        return ports.End(status=values.TurnStatus.STOPPED, text=text, sentence=sentence)
