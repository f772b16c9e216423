"""The reply of one request on the page: a turn that waits, runs, or ended a moment ago."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import ports, turn_log
from interpreter_bot.wording import page_words

_MAX_OUTPUT_CHARACTERS: Final = 4 * 1024 * 1024


class LiveTurn(ports.Reply):
    """One request in flight: its events go to the tabs that watch, and stand here for later ones.

    Attributes:
        id: the page's id of it.
        log: what it has shown.
    """

    def __init__(
        self,
        turn_id: str,
        head: dict[str, Any],
        *,
        send: Callable[[LiveTurn, events.RecordedEvent], None],
        keep: Callable[[str, bytes], None],
    ) -> None:
        """Show nothing yet.

        Args:
            turn_id: made up by the page.
            head: what was asked, as `tab_contents.heading` has it.
            send: sends an event to the tabs that watch.
            keep: keeps the bytes of a picture or a page, which tabs fetch by their hash.
        """
        self.id: Final = turn_id
        self.log: Final = turn_log.TurnLog(max_characters=_MAX_OUTPUT_CHARACTERS)
        self._head = head
        self._send = send
        self._keep = keep

    def _show(self, event: events.TurnEvent) -> None:
        recorded: events.RecordedEvent = event
        if isinstance(event, events.OutputShown):
            output = event.output
            if isinstance(output, values.Image | values.Html):
                display = event_json.stored_display(output)
                data = output.data if isinstance(output, values.Image) else output.html
                self._keep(display.sha256, data)
                recorded = events.StoredDisplayShown(event.cell, display)
        self.log.apply(recorded)
        self._send(self, recorded)

    def with_events(self) -> dict[str, Any]:
        """Return the turn and all its events so far."""
        cut = [events.NoticeShown(page_words.OUTPUT_LEFT_OUT)] if self.log.is_cut else []
        event_documents = [event_json.to_json(event) for event in (*cut, *self.log.events())]
        return self._head | {"id": self.id, "events": event_documents}
