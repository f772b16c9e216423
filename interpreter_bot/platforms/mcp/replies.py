"""The reply to one run of code, which collects the output for the client."""

from __future__ import annotations

from typing import Final

from interpreter_bot import events
from interpreter_bot.sessions import ports, turn_log
from interpreter_bot.text import quantities, safe_text
from interpreter_bot.wording import mcp_words

_LINE_CHARACTERS: Final = 200


class RunReply(ports.Reply):
    """The reply to one run.

    Attributes:
        log: the events so far.
    """

    def __init__(self) -> None:
        self.log: Final = turn_log.TurnLog()

    @property
    def progress_text(self) -> str:
        """The last line that the code printed, or what the run waits for."""
        log = self.log
        if log.ahead is not None:
            return mcp_words.queued_behind(quantities.count(log.ahead, "request"))
        if log.progress is not None:
            return log.progress.text
        line = log.cells[-1].last_line if log.cells else ""
        return quantities.one_line(safe_text.sanitize(line), _LINE_CHARACTERS)

    def _show(self, event: events.TurnEvent) -> None:
        self.log.apply(event)
