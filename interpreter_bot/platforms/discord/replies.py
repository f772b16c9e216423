"""The reply of one request on Discord: receives the turn's events and keeps its messages
current."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.discord import (
    answer_contents,
    file_transfers,
    message_layout,
    message_sync,
    message_targets,
    rate_limits,
    turn_rendering,
)
from interpreter_bot.sessions import pending_questions, ports
from interpreter_bot.wording import discord_words, question_words, run_words, session_words

_log = logging.getLogger(__name__)

_MOST_TABLES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStyle:
    """How an answer is shown.

    Attributes:
        number: of the request; by it, it can be stopped.
        owner: who asked; the only person who is notified, and who may answer questions.
        channel_id: where they are, and answer.
        is_code: the request is code, not words.
        shows_code: code stays visible when it has run.
        pace_seconds: between two edits.
        file_bytes: the largest file that may be sent.
        file_parts: the most parts into which a larger one is split.
        limit_seconds: how long a piece of code may run.
        is_visitable: a button leads to the session on the page.
        adopts: messages that a bot which is gone has posted for the request are gone on with.
        is_shown_again: the turn's events begin with those that are recorded of it.
    """

    number: int
    owner: int
    channel_id: int
    is_code: bool
    shows_code: bool
    pace_seconds: float
    file_bytes: int
    file_parts: int
    limit_seconds: float
    is_visitable: bool
    adopts: bool = False
    is_shown_again: bool = False


class DiscordReply(ports.Reply):
    """One reply. Use `open`."""

    def __init__(
        self,
        style: ReplyStyle,
        target: message_targets.MessageTarget,
        waiting: pending_questions.PendingQuestions,
        tell: Callable[[int, str], Awaitable[bool]],
        limits: rate_limits.RateLimits,
        instead_of: DiscordReply | None,
    ) -> None:
        self._style = style
        self._tell = tell
        self._questions = waiting
        self._contents = answer_contents.AnswerContents(
            owner=style.owner, is_code=style.is_code, shows_code=style.shows_code
        )
        self._spool = file_transfers.UploadSpool(
            file_bytes=style.file_bytes, parts=style.file_parts
        )
        self._renderer = turn_rendering.TurnRenderer(
            self._contents, self._spool.wrap, limit_seconds=style.limit_seconds
        )
        self._files: list[message_layout.Part] = []
        self._is_over = asyncio.Event()
        self._private_notices: asyncio.Queue[str] = asyncio.Queue()
        self._buttons: tuple[message_layout.Button, ...] = ()
        self._sync: message_sync.MessageSync = message_sync.MessageSync(
            target,
            self._draw,
            functools.partial(self._draw, in_order=True),
            self._repack,
            limits=limits,
            pace_seconds=style.pace_seconds,
            instead_of=instead_of._sync if instead_of is not None else None,
            adopts=style.number if style.adopts else 0,
        )
        if not style.is_shown_again:
            self._sync.begin()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        style: ReplyStyle,
        target: message_targets.MessageTarget,
        waiting: pending_questions.PendingQuestions,
        *,
        on_lost: Callable[[], Awaitable[object]],
        tell: Callable[[int, str], Awaitable[bool]],
        limits: rate_limits.RateLimits,
        instead_of: DiscordReply | None = None,
    ) -> AsyncIterator[DiscordReply]:
        """Show a turn inside the context, which ends when all of it stands.

        Args:
            style: how.
            target: where.
            waiting: registry of its questions.
            on_lost: called when nothing can be shown there any more.
            tell: sends a person a direct message; says whether they take any.
            limits: of the client.
            instead_of: an earlier reply whose messages become this one's.
        """
        reply = cls(style, target, waiting, tell, limits, instead_of)
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(reply._watch(on_lost), name="watch an answer")
                whispering = tasks.create_task(reply._whisper(), name="send private notices")
                shown = tasks.create_task(reply._sync_all(), name="show an answer")
                yield reply
                await shown
                await reply._private_notices.join()
                whispering.cancel()
                watching.cancel()
        finally:
            reply._spool.close()

    async def _watch(self, on_lost: Callable[[], Awaitable[object]]) -> None:
        await self._sync.is_lost.wait()
        await on_lost()
        if self._sync.is_refused:
            await self._tell(
                self._style.owner, discord_words.not_allowed_to_write(self._style.channel_id)
            )

    async def _whisper(self) -> None:
        """Send what only the person may see: direct messages, if they take any."""
        while True:
            notice = await self._private_notices.get()
            try:
                await self._tell(self._style.owner, notice)
            finally:
                self._private_notices.task_done()

    async def _sync_all(self) -> None:
        """Sync the answer until all of it stands, including artifacts."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sync.run(), name="post an answer")
            await self._is_over.wait()
            await self._pack()
            self._sync.finish()

    async def _pack(self) -> None:
        files: list[message_layout.Part] = []
        for artifact in self._contents.artifacts:
            if not artifact.is_shown:
                files += await self._spool.prepare(artifact)
        self._files = files

    async def _repack(self, refused: tuple[message_layout.Upload, ...]) -> None:
        """Replace files that Discord refused by smaller ones, or none."""
        self._spool.refuse(refused)
        if self._files:
            await self._pack()

    def _draw(self, *, in_order: bool = False) -> tuple[message_layout.MessageDraft, ...]:
        parts = self._renderer.parts(in_order=in_order)
        return message_layout.lay_out([*parts, *self._files], self._offered())

    def _offered(self) -> tuple[message_layout.Button, ...]:
        """Return the buttons for the current state."""
        end, owner = self._contents.end, self._style.owner
        if end is None:
            return (*self._buttons, message_layout.Button("stop", self._style.number, owner))
        if not end.turn_id or self._contents.is_brief:
            return ()
        verbs = ["again", "notebook"]
        is_code_hidden = not (self._contents.is_code or self._contents.shows_code)
        if self._contents.cells and (is_code_hidden or end.queries):
            verbs.insert(0, "code")
        if self._style.is_visitable:
            verbs.append("page")
        offered = [message_layout.Button(verb, end.turn_id, owner) for verb in verbs]
        tables = self._contents.tables[:_MOST_TABLES]
        for count, number in enumerate(tables, start=1):
            label = discord_words.table_as_csv(count) if len(tables) > 1 else ""
            offered.append(message_layout.Button("csv", number, owner, label))
        return tuple(offered)

    def _show(self, event: events.TurnEvent) -> None:
        contents = self._contents
        match event:
            case events.Queued(ahead=ahead):
                contents.ahead = ahead
            case events.Started():
                contents.ahead = None
                contents.has_begun = True
                contents.since = time.time()
            case events.NoticeShown(text=text):
                if text == session_words.KEPT_RUNNING:
                    # All that is recorded was shown again: the former bot's messages can be told
                    # apart.
                    self._sync.begin()
                contents.entries.append(answer_contents.Note(text))
            case events.PrivateNotice(text=text):
                self._private_notices.put_nowait(text)
                return
            case events.StepStarted(number=number):
                contents.step(number)
            case events.ProgressChanged(text=text, share=share):
                if text and not contents.awaited:
                    contents.since = time.time()
                contents.awaited = run_words.waiting_sentence(text, share)
            case events.TextAdded(text=text):
                contents.text(text)
            case events.CodeDrafted(text=text):
                contents.writing(text)
            case events.CodeStarted(cell=cell, code=code):
                contents.begin(cell, code)
            case events.OutputShown(cell=cell, output=output):
                if (known := contents.cell(cell)) is not None:
                    known.screen.show(output)
            case events.CodeFinished(cell=cell, finished=finished):
                if (known := contents.cell(cell)) is not None:
                    known.finished = finished
            case events.FileMade(artifact=artifact):
                others = [file for file in contents.artifacts if file.name != artifact.name]
                contents.artifacts = [*others, artifact]
                return
            case events.UsageChanged():
                # `/interpreter usage` shows it.
                return
            case events.TurnEnded():
                self._end_turn(event)
                return
        self._sync.change()

    async def ask(self, question: events.Question) -> str | None:
        """Ask where the request came from."""
        if isinstance(question, events.ApprovalQuestion):
            return await self._approve(question)
        if self._sync.is_lost.is_set():
            raise errors.BotError(discord_words.NOT_SHOWN)
        entry = answer_contents.Question(0, question.prompt, is_password=question.is_password)
        with self._asking(entry, verbs=question.choices or ("answer",)) as pending:
            answer = await pending.answer or ""
            self._answered(question.cell, entry, "•••" if question.is_password else answer)
            return answer

    def _answered(self, cell: int, entry: answer_contents.Question, shown: str) -> None:
        """Show question and answer among what was printed, as on a terminal."""
        self._contents.entries.remove(entry)
        known = self._contents.cell(cell)
        if known is not None:
            known.screen.show(values.Text("stdout", f"{entry.prompt}{shown}\n"))

    async def _approve(self, asked: events.ApprovalQuestion) -> str | None:
        code, choices = asked.code, asked.choices
        entry = answer_contents.Question(0, code, is_approval=True)
        verbs = ("run", *choices, "change", "refuse")
        with self._asking(entry, verbs=verbs, code=code, is_personal=asked.is_personal) as question:
            answer = await question.answer
            entry.verdict = (
                f"🚫 {question_words.DECLINED}"
                if answer is None
                else f"✔️ {question_words.APPROVED}"
            )
            if answer in choices:
                entry.verdict = f"✔️ {question_words.APPROVED_FOR_SESSION}"
            elif answer is not None and answer != code:
                entry.verdict = f"✔️ {question_words.APPROVED_AS_EDITED}"
            return answer

    @contextlib.contextmanager
    def _asking(
        self,
        entry: answer_contents.Question,
        *,
        verbs: tuple[str, ...],
        code: str = "",
        is_personal: bool = False,
    ) -> Iterator[pending_questions.Question]:
        style = self._style
        self._contents.draft = ""
        self._contents.entries.append(entry)
        is_by_message = not (entry.is_approval or entry.is_password)
        place = style.channel_id if is_by_message else None
        asker = str(style.owner)
        asking = self._questions.open(asker, place, code=code, is_personal=is_personal)
        with asking as question:
            entry.number = int(question.id)
            self._buttons = tuple(
                message_layout.Button(verb, entry.number, style.owner) for verb in verbs
            )
            self._sync.change(is_urgent=True)
            try:
                yield question
            finally:
                entry.verdict = entry.verdict or question_words.EXPIRED
                self._buttons = ()
                self._sync.change(is_urgent=True)

    def save(self, name: str) -> ports.FileWriter | None:
        """Return the writer of an artifact, which is sent in the end."""
        return self._spool.save(name)

    def _end_turn(self, end: events.TurnEnded) -> None:
        """Record the end; it is shown when the files have been packed.

        A turn that goes on in the next bot looks as if it went on: that bot adopts its messages.
        """
        self._sync.begin()
        if end.sentence == session_words.ANSWER_CONTINUES:
            self._contents.awaited = end.sentence
        else:
            self._contents.finish(end)
        self._is_over.set()
