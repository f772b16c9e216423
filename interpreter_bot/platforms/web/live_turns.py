"""The reply of one request on the page: a turn that waits, runs, or ended a moment ago."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from interpreter_bot import events, values
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import ports, turn_log
from interpreter_bot.wording import page_words, session_words

_MAX_OUTPUT_CHARACTERS: Final = 4 * 1024 * 1024


class HiddenTurn(ports.Reply):
    """The reply to a schedule's request; it becomes a live turn when there is something to see.

    Attributes:
        live_turn: None while it is hidden.
    """

    def __init__(self, begin: Callable[[], LiveTurn]) -> None:
        self.live_turn: LiveTurn | None = None
        self._begin = begin
        self._hidden_events: list[events.TurnEvent] = []

    def _show(self, event: events.TurnEvent) -> None:
        self._hidden_events.append(event)
        match event:
            case events.TurnEnded(is_quiet=True) | events.TurnEnded(goes_on=True):
                is_shown = False
            case events.TurnEnded(sentence=sentence):
                is_shown = sentence != session_words.BOT_CLOSING
            case _:
                is_shown = isinstance(event, events.QuestionAsked)
        if is_shown or self.live_turn is not None:
            self.live_turn = self.live_turn or self._begin()
            for hidden_event in self._hidden_events:
                self.live_turn.emit(hidden_event)
            self._hidden_events.clear()


class LiveTurn(ports.Reply):
    """A request that is being answered.

    Its events go to the tabs that watch, and are kept for tabs that are opened later.

    Attributes:
        id: the page's id of the request.
        log: the events so far.
    """

    def __init__(
        self,
        turn_id: str,
        heading: dict[str, Any],
        *,
        send: Callable[[LiveTurn, events.RecordedEvent], None],
        keep_blob: Callable[[str, bytes], None],
    ) -> None:
        """Begin without events, with a heading of `tab_contents.make_heading`.

        `keep_blob` keeps the bytes of a picture or a page, which tabs fetch by their hash.
        """
        self.id: Final = turn_id
        self.log: Final = turn_log.TurnLog(max_characters=_MAX_OUTPUT_CHARACTERS)
        self._heading = heading
        self._send = send
        self._keep_blob = keep_blob

    def _show(self, event: events.TurnEvent) -> None:
        recorded: events.RecordedEvent = event
        if isinstance(event, events.OutputShown):
            output = event.output
            if isinstance(output, values.Image | values.Html):
                display = event_json.to_stored_display(output)
                data = output.data if isinstance(output, values.Image) else output.html
                self._keep_blob(display.sha256, data)
                recorded = events.StoredDisplayShown(event.cell, display)
        self.log.apply(recorded)
        self._send(self, recorded)

    def describe(self) -> dict[str, Any]:
        """Return the turn and all its events so far, as the page gets them."""
        notices = [events.NoticeShown(page_words.OUTPUT_LEFT_OUT)] if self.log.is_cut else []
        event_documents = [event_json.to_json(event) for event in (*notices, *self.log.events())]
        return self._heading | {"id": self.id, "events": event_documents}
