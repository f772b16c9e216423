"""The way back of one request: hears its turn, and lets Discord show it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from interpreter_bot import errors, values
from interpreter_bot.platforms.discord import (
    desks,
    posting,
    questions,
    sheets,
    stories,
    telling,
    uploads,
)
from interpreter_bot.platforms.rendering import waits
from interpreter_bot.sessions import ports

_log = logging.getLogger(__name__)

_MOST_TABLES = 5
_LOST = "Discord does not let me show anything there any more."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How an answer is shown.

    Attributes:
        number: of the request; by it, it can be stopped.
        owner: who asked; the only person who is notified, and who may answer questions.
        channel_id: where they are, and answer.
        is_code: the request is code, not words.
        shows_code: code stays to be seen when it has run.
        pace_seconds: between two edits.
        file_bytes: the largest file that may be sent.
        file_parts: in so many parts a larger one may be sent.
    """

    number: int
    owner: int
    channel_id: int
    is_code: bool
    shows_code: bool
    pace_seconds: float
    file_bytes: int
    file_parts: int


class DiscordReply:
    """One reply. Use `open`."""

    def __init__(
        self,
        manner: Manner,
        desk: desks.Desk,
        waiting: questions.Questions,
        instead_of: DiscordReply | None,
    ) -> None:
        self._manner = manner
        self._questions = waiting
        self._story = stories.Story(
            owner=manner.owner, is_code=manner.is_code, shows_code=manner.shows_code
        )
        self._spool = uploads.Spool(file_bytes=manner.file_bytes, parts=manner.file_parts)
        self._teller = telling.Teller(self._story, self._spool.wrap)
        self._files: list[sheets.Part] = []
        self._has_ended = asyncio.Event()
        self._buttons: tuple[sheets.Button, ...] = ()
        self._poster: posting.Poster = posting.Poster(
            desk,
            self._draw,
            self._repack,
            pace_seconds=manner.pace_seconds,
            instead_of=instead_of._poster if instead_of is not None else None,
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        manner: Manner,
        desk: desks.Desk,
        waiting: questions.Questions,
        *,
        on_lost: Callable[[], Awaitable[object]],
        instead_of: DiscordReply | None = None,
    ) -> AsyncIterator[DiscordReply]:
        """Show a turn inside the context, which ends when all of it stands.

        Args:
            manner: how.
            desk: where.
            waiting: where its questions wait for answers.
            on_lost: called when nothing can be shown there any more.
            instead_of: an earlier reply whose messages become this one's.
        """
        reply = cls(manner, desk, waiting, instead_of)
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(reply._watch(on_lost), name="watch an answer")
                shown = tasks.create_task(reply._show(), name="show an answer")
                yield reply
                await shown
                watching.cancel()
        finally:
            reply._spool.close()

    async def _watch(self, on_lost: Callable[[], Awaitable[object]]) -> None:
        await self._poster.is_lost.wait()
        await on_lost()

    async def _show(self) -> None:
        """Keep the answer until all of it stands, the files that were made among it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poster.run(), name="post an answer")
            await self._has_ended.wait()
            await self._pack()
            self._poster.finish()

    async def _pack(self) -> None:
        files: list[sheets.Part] = []
        for artifact in self._story.artifacts:
            files += await self._spool.prepare(artifact)
        self._files = files

    async def _repack(self, refused: tuple[sheets.Upload, ...]) -> None:
        """Take smaller files, or none, in the place of those that Discord refused."""
        self._spool.refuse(refused)
        if self._files:
            await self._pack()

    def _draw(self) -> tuple[sheets.Sheet, ...]:
        return sheets.lay_out([*self._teller.parts(), *self._files], self._offered())

    def _offered(self) -> tuple[sheets.Button, ...]:
        """Choose the buttons that make sense now."""
        end, owner = self._story.end, self._manner.owner
        if end is None:
            return (*self._buttons, sheets.Button("stop", self._manner.number, owner))
        if not end.turn_id:
            return ()
        verbs = ["again", "notebook"]
        if self._story.cells:
            verbs.insert(0, "code")
        offered = [sheets.Button(verb, end.turn_id, owner) for verb in verbs]
        tables = self._story.tables[:_MOST_TABLES]
        for count, number in enumerate(tables, start=1):
            label = f"Table {count} as CSV" if len(tables) > 1 else ""
            offered.append(sheets.Button("csv", number, owner, label))
        return tuple(offered)

    @property
    def is_running(self) -> bool:
        """Whether its turn has begun and is not over."""
        return self._story.has_begun and self._story.end is None

    def show(self) -> None:
        """Let something be seen before the turn has begun."""
        self._poster.change()

    # What is heard.

    def waiting(self, ahead: int) -> None:
        """Show how many come before."""
        self._story.ahead = ahead
        self._poster.change()

    def begun(self) -> None:
        """Show that the turn is on."""
        self._story.ahead = None
        self._story.has_begun = True
        self._poster.change()

    def announcement(self, cell: int, text: str) -> None:
        """Show a sentence about the session."""
        self._story.entries.append(stories.Note(text))
        self._poster.change()

    def step(self, number: int) -> None:
        """Show that the model thinks."""
        self._story.step(number)
        self._poster.change()

    def progress(self, text: str, share: float | None) -> None:
        """Show what is waited for."""
        self._story.awaited = waits.sentence(text, share)
        self._poster.change()

    def text(self, delta: str) -> None:
        """Show the model's words."""
        self._story.text(delta)
        self._poster.change()

    def writing(self, delta: str) -> None:
        """Show code as it is written."""
        self._story.writing(delta)
        self._poster.change()

    def code(self, cell: int, code: str) -> None:
        """Show what is run."""
        self._story.begin(cell, code)
        self._poster.change()

    def output(self, cell: int, output: values.Output) -> None:
        """Show an output."""
        known = self._story.cell(cell)
        if known is not None:
            known.screen.show(output)
        self._poster.change()

    async def ask(self, cell: int, request: values.InputRequested) -> str:
        """Ask where the request came from."""
        if self._poster.is_lost.is_set():
            raise errors.BotError(_LOST)
        entry = stories.Question(0, request.prompt, is_password=request.is_password)
        with self._asking(entry, verbs=("answer",)) as question:
            answer = await question.answer or ""
            self._answered(cell, entry, "•••" if request.is_password else answer)
            return answer

    def _answered(self, cell: int, entry: stories.Question, shown: str) -> None:
        """Let question and answer stand among what was printed, as on a terminal."""
        self._story.entries.remove(entry)
        known = self._story.cell(cell)
        if known is not None:
            known.screen.show(values.Text("stdout", f"{entry.prompt}{shown}\n"))

    async def approve(self, cell: int, code: str) -> str | None:
        """Ask where the request came from whether code may be run."""
        entry = stories.Question(0, code, is_approval=True)
        with self._asking(entry, verbs=("run", "change", "refuse"), code=code) as question:
            answer = await question.answer
            entry.verdict = "🚫 refused" if answer is None else "✔️ approved"
            if answer is not None and answer != code:
                entry.verdict = "✔️ approved, after it was edited"
            return answer

    @contextlib.contextmanager
    def _asking(
        self, entry: stories.Question, *, verbs: tuple[str, ...], code: str | None = None
    ) -> Iterator[questions.Open]:
        manner = self._manner
        self._story.draft = ""
        self._story.entries.append(entry)
        with self._questions.asking(
            manner.owner, manner.channel_id, code=code, is_password=entry.is_password
        ) as question:
            entry.number = question.number
            self._buttons = tuple(
                sheets.Button(verb, question.number, manner.owner) for verb in verbs
            )
            self._poster.change(is_urgent=True)
            try:
                yield question
            finally:
                entry.verdict = entry.verdict or "not answered any more"
                self._buttons = ()
                self._poster.change(is_urgent=True)

    def save(self, cell: int, name: str) -> ports.Saving | None:
        """Take a file, to be sent in the end."""
        return self._spool.save(name)

    def artifact(self, cell: int, artifact: values.Artifact) -> None:
        """Remember a file that was made."""
        known = [one for one in self._story.artifacts if one.name != artifact.name]
        self._story.artifacts = [*known, artifact]

    def finished(self, cell: int, finished: values.Finished) -> None:
        """Show how a cell ended."""
        known = self._story.cell(cell)
        if known is not None:
            known.finished = finished
        self._poster.change()

    def usage(self, spent: ports.Spent) -> None:
        """Show nothing: `/interpreter usage` does."""

    def over(self, end: ports.End) -> None:
        """Take the end; it is shown when the files have been packed."""
        self._story.finish(end)
        self._has_ended.set()
