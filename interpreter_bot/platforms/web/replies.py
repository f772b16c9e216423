"""The reply of one request on the page: its events go to the tabs that watch."""

from __future__ import annotations

from collections.abc import Sequence

from interpreter_bot import values
from interpreter_bot.platforms.web import event_json, live_turns, tab_hub
from interpreter_bot.sessions import ports


@ports.silent_after_end
class TabReply:
    """The reply of one request: recorded and shown by its turn in the hub."""

    def __init__(
        self, hub: tab_hub.Hub, turn: live_turns.LiveTurn, *, is_planned: bool = False
    ) -> None:
        """Args: `is_planned` says that a plan is approved, if the model wrote one."""
        self._hub = hub
        self._turn = turn
        self._is_planned = is_planned
        self._has_words = False

    def queued(self, ahead: int) -> None:
        """Show how many requests come before."""
        self._turn.say(event_json.queued(ahead))

    def started(self) -> None:
        """Show that the turn has started."""
        self._turn.say(event_json.started())

    def announcement(self, cell: int, text: str) -> None:
        """Show a sentence about the session."""
        self._turn.say(event_json.announcement(text))

    def step(self, number: int) -> None:
        """Show that the model thinks."""
        self._turn.say(event_json.step(number))

    def progress(self, text: str, share: float | None) -> None:
        """Show what is waited for."""
        self._turn.say(event_json.progress(text, share))

    def text(self, delta: str) -> None:
        """Show the model's words."""
        self._has_words = self._has_words or bool(delta.strip())
        self._turn.say(event_json.text(delta))

    def writing(self, delta: str) -> None:
        """Show code as it is written."""
        self._turn.say(event_json.writing(delta))

    async def approve(
        self, cell: int, code: str, *, choices: Sequence[str] = (), is_personal: bool = False
    ) -> str | None:
        """Ask in the page; the first answer counts."""
        is_planned = self._is_planned and self._has_words
        return await self._turn.ask(
            lambda number: event_json.approving(
                cell, number, code, is_planned=is_planned, choices=choices
            )
        )

    async def tell_privately(self, text: str) -> bool:
        """Show a sentence in the tabs, whose people are one: who has the token of the page."""
        self._turn.say(event_json.private(text))
        return True

    def code(self, cell: int, code: str) -> None:
        """Show what is run."""
        self._turn.say(event_json.code(cell, code))

    def output(self, cell: int, output: values.Output) -> None:
        """Show an output; its bytes are kept for the page to fetch."""
        event = event_json.output(cell, output)
        if isinstance(output, values.Image):
            self._hub.keep(event["sha256"], output.data)
        elif isinstance(output, values.Html):
            self._hub.keep(event["sha256"], output.html)
        self._turn.say(event)

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Ask in the page; the first answer counts."""
        answer = await self._turn.ask(lambda number: event_json.asking(cell, number, request))
        return answer or ""

    def save(self, cell: int, name: str) -> ports.FileWriter | None:
        """Return no writer: the page reads files from the workspace when they are asked for."""
        return None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Show a file that was made."""
        self._turn.say(event_json.artifact(artifact))

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Show how a cell ended."""
        self._turn.say(event_json.finished(cell, finished))

    def usage(self, spent: values.Usage) -> None:
        """Show the usage."""
        self._turn.say(event_json.usage(spent))

    def ended(self, end: ports.End) -> None:
        """Show the end."""
        self._turn.say(event_json.ended(end))
