"""The reply of one request on the page: its events go to the tabs that watch."""

from __future__ import annotations

from interpreter_bot import events, values
from interpreter_bot.platforms.web import event_json, live_turns, tab_hub
from interpreter_bot.sessions import ports


class TabReply(ports.Reply):
    """The reply of one request: recorded and shown by its turn in the hub."""

    def __init__(
        self, hub: tab_hub.Hub, turn: live_turns.LiveTurn, *, is_planned: bool = False
    ) -> None:
        """Args: `is_planned` says that a plan is approved, if the model wrote one."""
        self._hub = hub
        self._turn = turn
        self._is_planned = is_planned
        self._has_words = False

    def _show(self, event: events.TurnEvent) -> None:
        if isinstance(event, events.TextAdded):
            self._has_words = self._has_words or bool(event.text.strip())
        shown = event_json.to_json(event)
        if isinstance(event, events.OutputShown):
            # The page fetches these bytes.
            if isinstance(event.output, values.Image):
                self._hub.keep(shown["sha256"], event.output.data)
            elif isinstance(event.output, values.Html):
                self._hub.keep(shown["sha256"], event.output.html)
        self._turn.say(shown)

    async def ask(self, question: events.Question) -> str | None:
        """Ask in the page; the first answer counts."""
        if isinstance(question, events.InputQuestion):
            return await self._turn.ask(lambda number: event_json.asking(number, question))
        is_planned = self._is_planned and self._has_words
        return await self._turn.ask(
            lambda number: event_json.approving(number, question, is_planned=is_planned)
        )

    def save(self, name: str) -> ports.FileWriter | None:
        """Return no writer: the page reads files from the workspace when they are asked for."""
        return None
