"""The reply of one request on the page: its events go to the tabs that watch."""

from __future__ import annotations

from interpreter_bot import events, values
from interpreter_bot.platforms.web import event_json, live_turns, tab_hub
from interpreter_bot.sessions import ports


class TabReply(ports.Reply):
    """The reply of one request: recorded and shown by its turn in the hub."""

    def __init__(self, hub: tab_hub.Hub, turn: live_turns.LiveTurn) -> None:
        self._hub = hub
        self._turn = turn

    def _show(self, event: events.TurnEvent) -> None:
        shown = event_json.to_json(event)
        if isinstance(event, events.OutputShown):
            # The page fetches these bytes.
            if isinstance(event.output, values.Image):
                self._hub.keep(shown["sha256"], event.output.data)
            elif isinstance(event.output, values.Html):
                self._hub.keep(shown["sha256"], event.output.html)
        self._turn.say(shown)

    def save(self, name: str) -> ports.FileWriter | None:
        """Return no writer: the page reads files from the workspace when they are asked for."""
        return None
