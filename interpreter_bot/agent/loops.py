"""The model loop: ask the model, run its code, give it the outputs, until it answers in words.

Every turn ends in an `Outcome`. Even after a cancellation, the transcript then has all messages,
and a result for every call.
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

# In one turn.
_MAX_CUT_REPLIES: Final = 3
# In a row: the same error, or calls that cannot be read.
_MAX_EQUAL_FAILURES: Final = 4
_MAX_SETBACKS: Final = 8
_MAX_EMPTY_REPLIES: Final = 3
_MAX_REPETITION_REFUSALS: Final = 2
_MAX_CALLS_AT_ONCE: Final = 8

_CONTINUE_NOTE: Final = chat_messages.Note(
    "[Your last message was cut off {why}. Go on exactly where it stopped, without repeating it. "
    "A call that you had begun has to be made again.]"
)
_UNREADABLE_CALL_NOTE: Final = chat_messages.Note(
    "[Your last message was meant as a call, in a form that cannot be read here, so nothing was "
    "run. Call run_code as a tool, or answer the person.]"
)
_TOO_MANY_CALLS_NOTE: Final = chat_messages.Note("[Not run: too many calls at once. Call again.]")
_EMPTY_REPLY_NOTE: Final = chat_messages.Note(
    "[Your last message was empty. Call run_code, or answer the person.]"
)


class OutcomeKind(enum.StrEnum):
    """How a turn ended."""

    ANSWERED = "answered"
    STOPPED = "stopped"
    """The person stopped it; files and variables stay."""
    OUT_OF_BUDGET = "out of budget"
    """Steps, tokens, time or money were used up."""
    REFUSED = "refused"
    """The model or its provider refused."""
    UNREACHABLE = "unreachable"
    """The model's server could not be used; the sentence says why."""
    CUT = "cut"
    """The model's answer broke off repeatedly."""
    EMPTY = "empty"
    """The model's replies were empty repeatedly."""
    MALFORMED = "malformed"
    """The model's calls could not be read repeatedly."""
    STUCK = "stuck"
    """The model repeated the same code or the same error."""
    NOTHING_TO_REPORT = "nothing to report"
    """A scheduled run ended without a message to people."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn.

    Attributes:
        kind: how the turn ended.
        text: the model's answer, or the part that was received.
        sentence: the reason, for people; empty if `kind` is ANSWERED.
        usage: the turn's tokens and cost.
        missing_files: files that `text` links to and that do not exist, even after an objection.
    """

    kind: OutcomeKind
    text: str
    sentence: str
    usage: values.Usage
    missing_files: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnSpec:
    """One turn: the model, the transcript and what the turn needs.

    Attributes:
        llm: the model.
        model: its settings.
        limits: what the turn may use.
        system: the system prompt.
        transcript: ends in the request, or in the middle of a resumed turn; the turn extends it.
        environment: where code runs.
        emit: receives the events.
        budget: the budget of this turn.
        cache_key: see `chat_messages.Prompt`.
        approve: asks a person whether code may run; None if code runs without approval.
        can_ask: whether the model can ask the person.
        add_steering_messages: adds to the transcript what the person wrote since the turn began;
            None if the person cannot write then.
        propose_note: asks a person whether to remember a note; None if notes cannot be proposed.
        max_background_seconds: how long code may run in the background; 0 if it may not.
        can_propose_schedules: whether the environment can propose schedules.
        is_scheduled: whether this is a scheduled run, so that nobody waits for an answer.
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
    approve: ports.RequestApproval | None = None
    can_ask: bool = False
    add_steering_messages: Callable[[], Awaitable[None]] | None = None
    propose_note: ports.ProposeNote | None = None
    max_background_seconds: float = 0.0
    can_propose_schedules: bool = False
    is_scheduled: bool = False


async def run(spec: TurnSpec, *, stop: asyncio.Event | None = None) -> Outcome:
    """Run one turn to its outcome.

    Args:
        spec: the turn.
        stop: set when the person stops the turn. The model's stream is then closed, and running
            code interrupted, before this returns. Cancelling does the same, and raises.
    """
    turn = _Turn(spec)
    end = await cancellation.run_until_stopped(
        turn.run(), stop=stop, seconds=spec.budget.seconds_left
    )
    if end is cancellation.EarlyEnd.STOPPED:
        return turn.make_outcome(OutcomeKind.STOPPED, "Stopped.")
    if isinstance(end, cancellation.EarlyEnd):
        return turn.make_outcome(OutcomeKind.OUT_OF_BUDGET, spec.budget.time_is_up_sentence)
    return end


class _TurnEndedError(Exception):
    """The turn has ended without an answer."""

    def __init__(self, kind: OutcomeKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence


class _Turn:
    def __init__(self, spec: TurnSpec) -> None:
        self._spec = spec
        self._transcript = spec.transcript
        self._repetition_detector = tool_execution.RepetitionDetector()
        offered_tools = tools.select_tools(
            can_see_images=spec.model.can_see_images,
            can_ask=spec.can_ask,
            can_propose_notes=spec.propose_note is not None,
            max_background_seconds=spec.max_background_seconds,
            can_propose_schedules=spec.can_propose_schedules,
            is_scheduled=spec.is_scheduled,
        )
        self._tool_runner = tool_execution.ToolRunner(
            spec.environment,
            spec.emit,
            repetition_detector=self._repetition_detector,
            can_see_images=spec.model.can_see_images,
            offered_tools=offered_tools,
            approve=spec.approve,
            propose_note=spec.propose_note,
        )
        self._model_caller = model_calls.ModelCaller(
            spec.llm,
            spec.model,
            budget=spec.budget,
            emit=spec.emit,
            offered_tools=offered_tools,
            cache_key=spec.cache_key,
        )
        self._texts: list[str] = []
        self._rejected_answer = ""
        self._missing_files: tuple[str, ...] = ()
        self._may_continue = True
        self._cut_replies = 0
        self._empty_replies = 0

    def make_outcome(self, kind: OutcomeKind, sentence: str = "") -> Outcome:
        text = "".join([*self._texts, self._model_caller.text]).strip() or self._rejected_answer
        return Outcome(kind, text, sentence, self._spec.budget.usage, self._missing_files)

    async def run(self) -> Outcome:
        try:
            # A resumed turn may have calls that another process did not finish.
            await self._run_calls(self._transcript.unanswered_calls)
            while not self._tool_runner.has_nothing_to_report:
                if self._spec.add_steering_messages is not None and not self._texts:
                    await self._spec.add_steering_messages()
                reply = await self._ask_model()
                if self._is_answer(reply):
                    if await self._accept_or_object():
                        return self.make_outcome(OutcomeKind.ANSWERED)
                    continue
                await self._run_calls(reply.calls)
            return self.make_outcome(OutcomeKind.NOTHING_TO_REPORT)
        except _TurnEndedError as end:
            return self.make_outcome(end.kind, end.sentence)
        except model_errors.RefusedError as error:
            return self.make_outcome(OutcomeKind.REFUSED, str(error))
        except model_errors.ModelError as error:
            return self.make_outcome(OutcomeKind.UNREACHABLE, str(error))
        finally:
            self._transcript.add_reply(self._model_caller.text)
            # Only the first open call can have been running.
            self._transcript.answer_open_calls(
                self._tool_runner.describe_unfinished(), note_for_others=tool_execution.NOT_RUN
            )

    async def _ask_model(self) -> chat_messages.ModelReply:
        """Call the model once, and add its reply to the transcript.

        A cut reply has `finish` LENGTH.

        Raises:
            _TurnEndedError: the turn cannot continue.
            ModelError: the model could not be used.
        """
        must_answer = self._repetition_detector.refusals >= _MAX_REPETITION_REFUSALS
        if must_answer and not self._repetition_detector.has_succeeded:
            # Without any output to answer from, the model would invent an answer.
            raise _TurnEndedError(
                OutcomeKind.STUCK,
                model_words.keeps_failing(self._repetition_detector.last_failure),
            )
        setbacks = self._repetition_detector.setbacks + self._empty_replies + self._cut_replies
        call = await self._model_caller.ask(
            self._spec.system,
            self._transcript,
            must_answer=must_answer,
            continues_text=any(self._texts),
            setbacks=setbacks,
        )
        if isinstance(call, budgets.Refusal):
            raise _TurnEndedError(OutcomeKind.OUT_OF_BUDGET, call.sentence)
        reply = call.reply
        if reply.finish is chat_messages.Finish.FILTERED:
            raise _TurnEndedError(OutcomeKind.REFUSED, model_errors.RefusedError.__doc__ or "")
        self._model_caller.text = ""
        self._may_continue = call.may_call and not call.is_last
        if reply.is_reasoning_refused:
            self._transcript.forget_reasoning()
        if reply.are_pictures_refused:
            self._transcript.forget_pictures()
        if call.is_cut or reply.finish is chat_messages.Finish.LENGTH:
            return self._keep_cut_reply(reply, is_connection_lost=call.is_cut)
        if not call.may_call and (reply.calls or reply.unreadable_call) and not reply.text.strip():
            self._end_without_answer(call.is_last)
        calls = reply.calls if call.may_call else ()
        if reply.unreadable_call:
            return self._keep_unreadable_call(reply)
        self._transcript.add_reply(reply.text, calls, reply.reasoning)
        # Words before a call are no part of the answer; those of cut replies are joined.
        self._texts = [] if calls else [*self._texts, reply.text]
        return dataclasses.replace(reply, calls=calls)

    def _is_answer(self, reply: chat_messages.ModelReply) -> bool:
        if reply.calls or reply.unreadable_call or reply.finish is chat_messages.Finish.LENGTH:
            return False
        if "".join(self._texts).strip():
            return True
        self._empty_replies += 1
        if self._empty_replies >= _MAX_EMPTY_REPLIES:
            raise _TurnEndedError(OutcomeKind.EMPTY, model_words.NO_ANSWER)
        self._transcript.add_note(_EMPTY_REPLY_NOTE)
        return False

    async def _accept_or_object(self) -> bool:
        """Return whether an answer is final; if it links to missing files, object to it once."""
        text = "".join(self._texts)
        self._missing_files = await self._find_missing_files(text)
        if not self._missing_files or self._rejected_answer or not self._may_continue:
            return True
        self._rejected_answer, self._texts = text.strip(), []
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
        return await asyncio.to_thread(file_references.find_missing_files, text, existing)

    def _keep_unreadable_call(self, reply: chat_messages.ModelReply) -> chat_messages.ModelReply:
        """Keep a reply whose call cannot be read, and tell the model that nothing was run."""
        self._transcript.add_reply(f"{reply.text}{reply.unreadable_call}", (), reply.reasoning)
        self._texts = []
        self._repetition_detector.record_unreadable_call()
        self._stop_after_unreadable_calls()
        self._transcript.add_note(_UNREADABLE_CALL_NOTE)
        return reply

    def _stop_after_unreadable_calls(self) -> None:
        if self._repetition_detector.unreadable_calls >= _MAX_EQUAL_FAILURES:
            raise _TurnEndedError(OutcomeKind.MALFORMED, model_words.CODE_MISREAD)

    def _keep_cut_reply(
        self, reply: chat_messages.ModelReply, *, is_connection_lost: bool
    ) -> chat_messages.ModelReply:
        """Keep the text of a reply that broke off, and let the model continue."""
        self._transcript.add_reply(reply.text)
        self._texts.append(reply.text)
        self._cut_replies += 1
        if self._cut_replies >= _MAX_CUT_REPLIES:
            sentence = (
                model_words.ANSWER_LOST if is_connection_lost else model_words.ANSWER_TOO_LONG
            )
            raise _TurnEndedError(OutcomeKind.CUT, sentence)
        why = "by a lost connection" if is_connection_lost else "at its longest"
        self._transcript.add_note(_CONTINUE_NOTE.fill(why=why))
        return chat_messages.ModelReply(text=reply.text, finish=chat_messages.Finish.LENGTH)

    def _end_without_answer(self, is_last: bool) -> None:
        if is_last:
            sentence = model_words.out_of_steps(self._spec.limits.steps)
            raise _TurnEndedError(OutcomeKind.OUT_OF_BUDGET, sentence)
        raise _TurnEndedError(OutcomeKind.STUCK, model_words.SAME_CODE)

    async def _run_calls(self, calls: tuple[chat_messages.Call, ...]) -> None:
        for call in calls[:_MAX_CALLS_AT_ONCE]:
            text, pictures = await self._tool_runner.run_call(call)
            self._transcript.add_tool_result(call, text, pictures)
            if self._repetition_detector.failures >= _MAX_EQUAL_FAILURES:
                sentence = model_words.same_error(
                    _MAX_EQUAL_FAILURES, self._repetition_detector.last_failure
                )
                raise _TurnEndedError(OutcomeKind.STUCK, sentence)
            self._stop_after_unreadable_calls()
            if self._repetition_detector.setbacks >= _MAX_SETBACKS:
                raise _TurnEndedError(OutcomeKind.STUCK, model_words.no_progress(_MAX_SETBACKS))
        self._transcript.answer_open_calls(_TOO_MANY_CALLS_NOTE)
