"""The reply of one request on the page: a turn that waits, runs, or ended a moment ago."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import ports, turn_log
from interpreter_bot.wording import page_words, session_words

_MAX_OUTPUT_CHARACTERS: Final = 4 * 1024 * 1024


class HeldTurn(ports.Reply):
    """The reply of a schedule's request, which becomes a live turn once there is something to see.

    Attributes:
        turn: the live turn; None before.
    """

    def __init__(self, begin: Callable[[], LiveTurn]) -> None:
        self.turn: LiveTurn | None = None
        self._begin = begin
        self._held: list[events.TurnEvent] = []

    def _show(self, event: events.TurnEvent) -> None:
        self._held.append(event)
        match event:
            case events.TurnEnded(is_quiet=True) | events.TurnEnded(goes_on=True):
                is_shown = False
            case events.TurnEnded(sentence=sentence):
                is_shown = sentence != session_words.BOT_CLOSING
            case _:
                is_shown = isinstance(event, events.QuestionAsked)
        if is_shown or self.turn is not None:
            self.turn = self.turn or self._begin()
            for held in self._held:
                self.turn.emit(held)
            self._held.clear()


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
