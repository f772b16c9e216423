"""What a turn does, told to whoever watches it."""

from __future__ import annotations

from interpreter_bot import values
from interpreter_bot.platforms.web import events, hubs, turns
from interpreter_bot.sessions import ports


class TabReply:
    """The reply of one request: remembered and shown by its turn in the hub."""

    def __init__(self, hub: hubs.Hub, turn: turns.Turn, *, is_planned: bool = False) -> None:
        """Args: `is_planned` says that what is asked about is a plan, where one was said."""
        self._hub = hub
        self._turn = turn
        self._is_planned = is_planned
        self._has_words = False

    def waiting(self, ahead: int) -> None:
        """Show how many come before."""
        self._turn.say(events.waiting(ahead))

    def begun(self) -> None:
        """Show that the turn is on."""
        self._turn.say(events.begun())

    def announcement(self, cell: int, text: str) -> None:
        """Show a sentence about the session."""
        self._turn.say(events.announcement(text))

    def step(self, number: int) -> None:
        """Show that the model thinks."""
        self._turn.say(events.step(number))

    def progress(self, text: str, share: float | None) -> None:
        """Show what is waited for."""
        self._turn.say(events.progress(text, share))

    def text(self, delta: str) -> None:
        """Show the model's words."""
        self._has_words = self._has_words or bool(delta.strip())
        self._turn.say(events.text(delta))

    def writing(self, delta: str) -> None:
        """Show code as it is written."""
        self._turn.say(events.writing(delta))

    async def approve(self, cell: int, code: str) -> str | None:
        """Ask in the page; whoever answers first has answered."""
        is_planned = self._is_planned and self._has_words
        return await self._turn.ask(
            lambda number: events.approving(cell, number, code, is_planned=is_planned)
        )

    def code(self, cell: int, code: str) -> None:
        """Show what is run."""
        self._turn.say(events.code(cell, code))

    def output(self, cell: int, output: values.Output) -> None:
        """Show an output; its bytes are kept for the page to fetch."""
        event = events.output(cell, output)
        if isinstance(output, values.Image):
            self._hub.keep(event["sha256"], output.data)
        elif isinstance(output, values.Html):
            self._hub.keep(event["sha256"], events.encoded(output))
        self._turn.say(event)

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Ask in the page; whoever answers first has answered."""
        answer = await self._turn.ask(lambda number: events.asking(cell, number, request))
        return answer or ""

    def save(self, cell: int, name: str) -> ports.Saving | None:
        """Want no copy: the page reads files from the workspace when they are asked for."""
        return None

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Show a file that was made."""
        self._turn.say(events.artifact(artifact))

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Show how a cell ended."""
        self._turn.say(events.finished(cell, finished))

    def usage(self, spent: ports.Spent) -> None:
        """Show what was spent."""
        self._turn.say(events.usage(spent))

    def over(self, end: ports.End) -> None:
        """Show the end."""
        self._turn.say(events.over(end))
