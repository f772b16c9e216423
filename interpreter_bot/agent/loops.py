"""The model loop: ask the model, run its code, give it the outputs, until it answers in words.

Every way out is an `Outcome`. The transcript that comes in is complete when the turn is
over, however it ends, also by cancellation: what was said is in it, and every call is answered.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
from typing import Final

from interpreter_bot import cancellation, errors, events, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    file_references,
    model_calls,
    model_errors,
    ports,
    tool_execution,
    tools,
    transcripts,
)
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

# The most cut or empty replies that are tolerated in one turn.
_CUTS: Final = 3
# The same error, malformed call or refused repeat in a row.
_MAX_EQUAL_FAILURES: Final = 4
_MAX_SETBACKS: Final = 8
_EMPTY: Final = 3
_REFUSALS: Final = 2
_CALLS_AT_ONCE: Final = 8

_GO_ON: Final = chat_messages.Note(
    "[Your last message was cut off {why}. Go on exactly where it stopped, without repeating it. "
    "A call that you had begun has to be made again.]"
)
_NOT_RUN: Final = chat_messages.Note(
    "[Your last message was meant as a call, in a form that cannot be read here, so nothing was "
    "run. Call run_code as a tool, or answer the person.]"
)
_TOO_MANY: Final = chat_messages.Note("[Not run: too many calls at once. Call again.]")
_SAY_SOMETHING: Final = chat_messages.Note(
    "[Your last message was empty. Call run_code, or answer the person.]"
)


class OutcomeKind(enum.StrEnum):
    """How a turn ended; exactly one of these."""

    ANSWERED = "answered"
    STOPPED = "stopped"
    """By the person; what was made until then stays."""
    OUT_OF_BUDGET = "out of budget"
    """Of steps, tokens, seconds or money."""
    REFUSED = "refused"
    """By the model or its provider."""
    UNREACHABLE = "unreachable"
    """The model's server could not be used: the sentence says why."""
    CUT = "cut"
    """The model's answer broke off, again and again."""
    EMPTY = "empty"
    """The model said nothing, again and again."""
    MALFORMED = "malformed"
    """The model's calls could not be understood, again and again."""
    STUCK = "stuck"
    """The same code or the same error, again and again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn.

    Attributes:
        ending: how it ended.
        text: the model's last words to the person, in part if they were cut short.
        sentence: for people, empty where `ending` is ANSWERED.
        spent: its tokens and cost.
        missing_files: those that `text` claims and that do not exist, though the model was asked
            again.
    """

    ending: OutcomeKind
    text: str
    sentence: str
    spent: values.Usage
    missing_files: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnSpec:
    """One turn: the model, the transcript and the services it needs.

    Attributes:
        llm: the model.
        model: its settings.
        limits: what the turn may use.
        system: the system prompt.
        transcript: ends in what the person wants, or in the middle of such a turn; grows.
        environment: where code runs.
        emit: receives what happens.
        budget: made for this turn.
        cache_key: see `chat_messages.Prompt`.
        approve: lets a person say whether code may run; None if no person is asked.
        can_install: whether packages can be installed where code runs.
        tool_index: has the functions that the prompt does not list; None if it lists all.
    """

    llm: ports.Llm
    model: settings.Model
    limits: settings.TurnLimits
    system: str
    transcript: transcripts.Transcript
    environment: ports.Environment
    emit: events.Emit
    budget: budgets.Budget
    cache_key: str = ""
    approve: ports.Approve | None = None
    can_install: bool = False
    tool_index: ports.ToolIndex | None = None


async def run(job: TurnSpec, *, stop: asyncio.Event | None = None) -> Outcome:
    """Run one turn to its outcome.

    Args:
        job: the turn.
        stop: set when the person wants it to end; the model's stream is closed and running code
            interrupted before this returns. Cancelling does the same, and raises.
    """
    turn = _Turn(job)
    end = await cancellation.run_until_stopped(
        turn.run(), stop=stop, seconds=job.budget.seconds_left
    )
    if end is cancellation.EarlyEnd.STOPPED:
        return turn.outcome(OutcomeKind.STOPPED, "Stopped.")
    if isinstance(end, cancellation.EarlyEnd):
        return turn.outcome(OutcomeKind.OUT_OF_BUDGET, job.budget.time_is_up)
    return end


class _EndedError(Exception):
    """The turn is over without an answer."""

    def __init__(self, ending: OutcomeKind, sentence: str) -> None:
        super().__init__(sentence)
        self.ending = ending
        self.sentence = sentence


class _Turn:
    def __init__(self, job: TurnSpec) -> None:
        self._job = job
        self._transcript = job.transcript
        self._guard = tool_execution.RepetitionDetector()
        offered = tools.offered(
            can_see=job.model.can_see_images,
            can_install=job.can_install,
            can_find=job.tool_index is not None,
        )
        self._tool_runner = tool_execution.ToolRunner(
            job.environment,
            job.emit,
            repetition_detector=self._guard,
            can_see=job.model.can_see_images,
            offered=offered,
            approve=job.approve,
            tool_index=job.tool_index,
        )
        self._asking = model_calls.ModelCall(
            job.llm,
            job.model,
            budget=job.budget,
            emit=job.emit,
            offered=offered,
            cache_key=job.cache_key,
        )
        self._words: list[str] = []
        self._doubted = ""
        self._missing_files: tuple[str, ...] = ()
        self._may_go_on = True
        self._cuts = 0
        self._empty = 0

    def outcome(self, ending: OutcomeKind, sentence: str = "") -> Outcome:
        text = "".join([*self._words, self._asking.heard]).strip() or self._doubted
        return Outcome(ending, text, sentence, self._job.budget.spent, self._missing_files)

    async def run(self) -> Outcome:
        try:
            # Those of a turn that another process had begun.
            await self._do(self._transcript.unanswered)
            while True:
                reply = await self._ask()
                if self._is_answer(reply):
                    if await self._stands(reply):
                        return self.outcome(OutcomeKind.ANSWERED)
                    continue
                await self._do(reply.calls)
        except _EndedError as over:
            return self.outcome(over.ending, over.sentence)
        except model_errors.RefusedError as error:
            return self.outcome(OutcomeKind.REFUSED, str(error))
        except model_errors.ModelError as error:
            return self.outcome(OutcomeKind.UNREACHABLE, str(error))
        finally:
            self._transcript.add_reply(self._asking.heard)
            # Only the first of them can have been running.
            self._transcript.settle(self._tool_runner.unfinished(), rest=tool_execution.NOT_RUN)

    async def _ask(self) -> chat_messages.ModelReply:
        """Call the model; a reply that was cut or empty is returned without an end."""
        must_answer = self._guard.refusals >= _REFUSALS
        if must_answer and not self._guard.has_succeeded:
            # Without the output to answer from it would invent one.
            raise _EndedError(
                OutcomeKind.STUCK,
                model_words.keeps_failing(self._guard.last_failure),
            )
        setbacks = self._guard.setbacks + self._empty + self._cuts
        asked = await self._asking.ask(
            self._job.system, self._transcript, must_answer=must_answer, setbacks=setbacks
        )
        if isinstance(asked, budgets.Refusal):
            raise _EndedError(OutcomeKind.OUT_OF_BUDGET, asked.sentence)
        reply = asked.reply
        if reply.finish is chat_messages.Finish.FILTERED:
            raise _EndedError(OutcomeKind.REFUSED, model_errors.RefusedError.__doc__ or "")
        self._asking.heard = ""
        self._may_go_on = asked.may_call and not asked.is_last
        if reply.is_reasoning_refused:
            self._transcript.forget_reasoning()
        if reply.are_pictures_refused:
            self._transcript.forget_pictures()
        if asked.is_cut or reply.finish is chat_messages.Finish.LENGTH:
            return self._cut(reply, is_lost=asked.is_cut)
        if not asked.may_call and (reply.calls or reply.unread_call) and not reply.text.strip():
            self._close(asked.is_last)
        calls = reply.calls if asked.may_call else ()
        if reply.unread_call:
            return self._misread(reply)
        self._transcript.add_reply(reply.text, calls, reply.reasoning)
        # Words before a call stand by themselves; only words that go on belong together.
        self._words = [] if calls else [*self._words, reply.text]
        return dataclasses.replace(reply, calls=calls)

    def _is_answer(self, reply: chat_messages.ModelReply) -> bool:
        if reply.calls or reply.unread_call or reply.finish is chat_messages.Finish.LENGTH:
            return False
        if "".join(self._words).strip():
            return True
        self._empty += 1
        if self._empty >= _EMPTY:
            raise _EndedError(OutcomeKind.EMPTY, model_words.NO_ANSWER)
        self._transcript.add_note(_SAY_SOMETHING)
        return False

    async def _stands(self, reply: chat_messages.ModelReply) -> bool:
        """Return whether an answer may be the last; files that do not exist are objected to."""
        text = "".join(self._words)
        self._missing_files = await self._find_missing_files(text)
        if not self._missing_files or self._doubted or not self._may_go_on:
            return True
        self._doubted, self._words = text.strip(), []
        self._transcript.add_note(file_references.as_objection(self._missing_files))
        self._job.emit(events.NoticeShown(model_words.CHECKING))
        return False

    async def _find_missing_files(self, text: str) -> tuple[str, ...]:
        if not file_references.may_refer(text):
            return ()
        try:
            existing = [info.name for info in await self._job.environment.list_files()]
        except errors.WorkspaceError as error:
            _log.info("files of the workspace cannot be listed", exc_info=error)
            return ()
        entries = tuple(self._transcript.entries)
        return await asyncio.to_thread(file_references.missing, text, existing, entries)

    def _misread(self, reply: chat_messages.ModelReply) -> chat_messages.ModelReply:
        """Tell the model that its attempted call was not run."""
        self._transcript.add_reply(f"{reply.text}{reply.unread_call}", (), reply.reasoning)
        self._words = []
        self._guard.misread()
        self._check_misreadings()
        self._transcript.add_note(_NOT_RUN)
        return reply

    def _check_misreadings(self) -> None:
        if self._guard.misreadings >= _MAX_EQUAL_FAILURES:
            raise _EndedError(OutcomeKind.MALFORMED, model_words.CODE_MISREAD)

    def _cut(self, reply: chat_messages.ModelReply, *, is_lost: bool) -> chat_messages.ModelReply:
        """Keep the text of an answer that broke off, and let the model continue."""
        self._transcript.add_reply(reply.text)
        self._words.append(reply.text)
        self._cuts += 1
        if self._cuts >= _CUTS:
            sentence = model_words.ANSWER_LOST if is_lost else model_words.ANSWER_TOO_LONG
            raise _EndedError(OutcomeKind.CUT, sentence)
        why = "by a lost connection" if is_lost else "at its longest"
        self._transcript.add_note(_GO_ON.filled(why=why))
        return chat_messages.ModelReply(text=reply.text, finish=chat_messages.Finish.LENGTH)

    def _close(self, is_last: bool) -> None:
        if is_last:
            sentence = model_words.out_of_steps(self._job.limits.steps)
            raise _EndedError(OutcomeKind.OUT_OF_BUDGET, sentence)
        raise _EndedError(OutcomeKind.STUCK, model_words.SAME_CODE)

    async def _do(self, calls: tuple[chat_messages.Call, ...]) -> None:
        for call in calls[:_CALLS_AT_ONCE]:
            text, pictures = await self._tool_runner.answer(call)
            self._transcript.add_tool_result(call, text, pictures)
            if self._guard.failures >= _MAX_EQUAL_FAILURES:
                sentence = model_words.same_error(_MAX_EQUAL_FAILURES, self._guard.last_failure)
                raise _EndedError(OutcomeKind.STUCK, sentence)
            self._check_misreadings()
            if self._guard.setbacks >= _MAX_SETBACKS:
                raise _EndedError(OutcomeKind.STUCK, model_words.no_progress(_MAX_SETBACKS))
        self._transcript.settle(_TOO_MANY)
