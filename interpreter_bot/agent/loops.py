"""The model loop: ask the model, run its code, give it the outputs, until it answers in words.

Every turn ends in an `Outcome`. However it ends, also by cancellation, the transcript then has all
that was said, and a result for every call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
from collections.abc import Awaitable, Callable
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
_MAX_CUTS: Final = 3
# The same error, malformed call or refused repeat in a row.
_MAX_EQUAL_FAILURES: Final = 4
_MAX_SETBACKS: Final = 8
_MAX_EMPTY_REPLIES: Final = 3
_MAX_REFUSALS: Final = 2
_MAX_CALLS_AT_ONCE: Final = 8

_CONTINUE: Final = chat_messages.Note(
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
    NOTHING_TO_REPORT = "nothing to report"
    """A scheduled run ends without a word."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn.

    Attributes:
        ending: how it ended.
        text: the model's last words to the person, in part if they were cut short.
        sentence: for people; empty if `ending` is ANSWERED.
        spent: its tokens and cost.
        missing_files: that `text` claims and that do not exist, even after an objection.
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
        transcript: ends in the request, or in the middle of a resumed turn; grows.
        environment: where code runs.
        emit: receives what happens.
        budget: made for this turn.
        cache_key: see `chat_messages.Prompt`.
        approve: lets a person say whether code may run; None if no person is asked.
        can_ask: whether the model can ask the person.
        can_install: whether packages can be installed where code runs.
        tool_index: has the functions that the prompt does not list; None if it lists all.
        be_steered: adds to the transcript what the person wrote since the turn began; None if
            nothing can come.
        propose_note: lets a person say what is remembered; None if nothing is.
        longest_run: how long code may run in the background, in seconds; 0 if it may not.
        can_propose_schedules: whether the environment can propose schedules.
        is_scheduled: whether a schedule asks, and nobody waits for an answer.
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
    can_ask: bool = False
    can_install: bool = False
    tool_index: ports.ToolIndex | None = None
    be_steered: Callable[[], Awaitable[None]] | None = None
    propose_note: ports.ProposeNote | None = None
    longest_run: float = 0.0
    can_propose_schedules: bool = False
    is_scheduled: bool = False


async def run(spec: TurnSpec, *, stop: asyncio.Event | None = None) -> Outcome:
    """Run one turn to its outcome.

    Args:
        spec: the turn.
        stop: set when the person wants it to end; the model's stream is closed and running code
            interrupted before this returns. Cancelling does the same, and raises.
    """
    turn = _Turn(spec)
    end = await cancellation.run_until_stopped(
        turn.run(), stop=stop, seconds=spec.budget.seconds_left
    )
    if end is cancellation.EarlyEnd.STOPPED:
        return turn.outcome(OutcomeKind.STOPPED, "Stopped.")
    if isinstance(end, cancellation.EarlyEnd):
        return turn.outcome(OutcomeKind.OUT_OF_BUDGET, spec.budget.time_is_up_sentence)
    return end


class _EndedError(Exception):
    """The turn is over without an answer."""

    def __init__(self, ending: OutcomeKind, sentence: str) -> None:
        super().__init__(sentence)
        self.ending = ending
        self.sentence = sentence


class _Turn:
    def __init__(self, spec: TurnSpec) -> None:
        self._spec = spec
        self._transcript = spec.transcript
        self._guard = tool_execution.RepetitionDetector()
        offered = tools.offered(
            can_see_images=spec.model.can_see_images,
            can_install=spec.can_install,
            can_find_tools=spec.tool_index is not None,
            can_ask=spec.can_ask,
            can_propose_notes=spec.propose_note is not None,
            longest_run=spec.longest_run,
            can_propose_schedules=spec.can_propose_schedules,
            is_scheduled=spec.is_scheduled,
        )
        self._tool_runner = tool_execution.ToolRunner(
            spec.environment,
            spec.emit,
            repetition_detector=self._guard,
            can_see_images=spec.model.can_see_images,
            offered=offered,
            approve=spec.approve,
            tool_index=spec.tool_index,
            answers=tool_execution.answers_of_person(spec.transcript.entries),
            propose_note=spec.propose_note,
        )
        self._model_call = model_calls.ModelCall(
            spec.llm,
            spec.model,
            budget=spec.budget,
            emit=spec.emit,
            offered=offered,
            cache_key=spec.cache_key,
        )
        self._texts: list[str] = []
        self._doubted_answer = ""
        self._missing_files: tuple[str, ...] = ()
        self._may_go_on = True
        self._cuts = 0
        self._empty_replies = 0

    def outcome(self, ending: OutcomeKind, sentence: str = "") -> Outcome:
        text = "".join([*self._texts, self._model_call.text]).strip() or self._doubted_answer
        return Outcome(ending, text, sentence, self._spec.budget.spent, self._missing_files)

    async def run(self) -> Outcome:
        try:
            # Those of a turn that another process had begun.
            await self._run_calls(self._transcript.unanswered_calls)
            while not self._tool_runner.has_nothing_to_report:
                if self._spec.be_steered is not None and not self._texts:
                    await self._spec.be_steered()
                reply = await self._ask()
                if self._is_answer(reply):
                    if await self._is_grounded():
                        return self.outcome(OutcomeKind.ANSWERED)
                    continue
                await self._run_calls(reply.calls)
            return self.outcome(OutcomeKind.NOTHING_TO_REPORT)
        except _EndedError as over:
            return self.outcome(over.ending, over.sentence)
        except model_errors.RefusedError as error:
            return self.outcome(OutcomeKind.REFUSED, str(error))
        except model_errors.ModelError as error:
            return self.outcome(OutcomeKind.UNREACHABLE, str(error))
        finally:
            self._transcript.add_reply(self._model_call.text)
            # Only the first of them can have been running.
            self._transcript.answer_open_calls(
                self._tool_runner.unfinished(), note_for_others=tool_execution.NOT_RUN
            )

    async def _ask(self) -> chat_messages.ModelReply:
        """Call the model; a reply that was cut or empty is returned without an end."""
        must_answer = self._guard.refusals >= _MAX_REFUSALS
        if must_answer and not self._guard.has_succeeded:
            # Without the output to answer from it would invent one.
            raise _EndedError(
                OutcomeKind.STUCK,
                model_words.keeps_failing(self._guard.last_failure),
            )
        setbacks = self._guard.setbacks + self._empty_replies + self._cuts
        call = await self._model_call.ask(
            self._spec.system, self._transcript, must_answer=must_answer, setbacks=setbacks
        )
        if isinstance(call, budgets.Refusal):
            raise _EndedError(OutcomeKind.OUT_OF_BUDGET, call.sentence)
        reply = call.reply
        if reply.finish is chat_messages.Finish.FILTERED:
            raise _EndedError(OutcomeKind.REFUSED, model_errors.RefusedError.__doc__ or "")
        self._model_call.text = ""
        self._may_go_on = call.may_call and not call.is_last
        if reply.is_reasoning_refused:
            self._transcript.forget_reasoning()
        if reply.are_pictures_refused:
            self._transcript.forget_pictures()
        if call.is_cut or reply.finish is chat_messages.Finish.LENGTH:
            return self._keep_cut_reply(reply, is_lost=call.is_cut)
        if not call.may_call and (reply.calls or reply.unreadable_call) and not reply.text.strip():
            self._end_without_answer(call.is_last)
        calls = reply.calls if call.may_call else ()
        if reply.unreadable_call:
            return self._note_misread_call(reply)
        self._transcript.add_reply(reply.text, calls, reply.reasoning)
        # Words before a call stand by themselves; only words that go on belong together.
        self._texts = [] if calls else [*self._texts, reply.text]
        return dataclasses.replace(reply, calls=calls)

    def _is_answer(self, reply: chat_messages.ModelReply) -> bool:
        if reply.calls or reply.unreadable_call or reply.finish is chat_messages.Finish.LENGTH:
            return False
        if "".join(self._texts).strip():
            return True
        self._empty_replies += 1
        if self._empty_replies >= _MAX_EMPTY_REPLIES:
            raise _EndedError(OutcomeKind.EMPTY, model_words.NO_ANSWER)
        self._transcript.add_note(_SAY_SOMETHING)
        return False

    async def _is_grounded(self) -> bool:
        """Return whether an answer may be the last; files that do not exist are objected to."""
        text = "".join(self._texts)
        self._missing_files = await self._find_missing_files(text)
        if not self._missing_files or self._doubted_answer or not self._may_go_on:
            return True
        self._doubted_answer, self._texts = text.strip(), []
        self._transcript.add_note(file_references.write_objection(self._missing_files))
        self._spec.emit(events.NoticeShown(model_words.ANSWER_CHECKED))
        return False

    async def _find_missing_files(self, text: str) -> tuple[str, ...]:
        if not file_references.may_refer_to_files(text):
            return ()
        try:
            existing = [info.name for info in await self._spec.environment.list_files()]
        except errors.WorkspaceError as error:
            _log.info("files of the workspace cannot be listed", exc_info=error)
            return ()
        entries = tuple(self._transcript.entries)
        return await asyncio.to_thread(file_references.find_missing_files, text, existing, entries)

    def _note_misread_call(self, reply: chat_messages.ModelReply) -> chat_messages.ModelReply:
        """Tell the model that its attempted call was not run."""
        self._transcript.add_reply(f"{reply.text}{reply.unreadable_call}", (), reply.reasoning)
        self._texts = []
        self._guard.note_misread()
        self._check_misreadings()
        self._transcript.add_note(_NOT_RUN)
        return reply

    def _check_misreadings(self) -> None:
        if self._guard.misreadings >= _MAX_EQUAL_FAILURES:
            raise _EndedError(OutcomeKind.MALFORMED, model_words.CODE_MISREAD)

    def _keep_cut_reply(
        self, reply: chat_messages.ModelReply, *, is_lost: bool
    ) -> chat_messages.ModelReply:
        """Keep the text of an answer that broke off, and let the model continue."""
        self._transcript.add_reply(reply.text)
        self._texts.append(reply.text)
        self._cuts += 1
        if self._cuts >= _MAX_CUTS:
            sentence = model_words.ANSWER_LOST if is_lost else model_words.ANSWER_TOO_LONG
            raise _EndedError(OutcomeKind.CUT, sentence)
        why = "by a lost connection" if is_lost else "at its longest"
        self._transcript.add_note(_CONTINUE.fill(why=why))
        return chat_messages.ModelReply(text=reply.text, finish=chat_messages.Finish.LENGTH)

    def _end_without_answer(self, is_last: bool) -> None:
        if is_last:
            sentence = model_words.out_of_steps(self._spec.limits.steps)
            raise _EndedError(OutcomeKind.OUT_OF_BUDGET, sentence)
        raise _EndedError(OutcomeKind.STUCK, model_words.SAME_CODE)

    async def _run_calls(self, calls: tuple[chat_messages.Call, ...]) -> None:
        for call in calls[:_MAX_CALLS_AT_ONCE]:
            text, pictures = await self._tool_runner.answer(call)
            self._transcript.add_tool_result(call, text, pictures)
            if self._guard.failures >= _MAX_EQUAL_FAILURES:
                sentence = model_words.same_error(_MAX_EQUAL_FAILURES, self._guard.last_failure)
                raise _EndedError(OutcomeKind.STUCK, sentence)
            self._check_misreadings()
            if self._guard.setbacks >= _MAX_SETBACKS:
                raise _EndedError(OutcomeKind.STUCK, model_words.no_progress(_MAX_SETBACKS))
        self._transcript.answer_open_calls(_TOO_MANY)
