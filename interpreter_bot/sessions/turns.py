"""Run a turn: one request to its recorded end.

start taking a kernel -> attachments into the workspace, described -> the agent's loop, or the
person's own code -> what changed in the workspace -> links fixed -> recorded

It is long because all ways in which a turn can end meet here.

Above 300 lines: the way of one request to its recorded end, in the order in which it is gone.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
import time
import uuid
from collections.abc import Awaitable
from typing import Final

from interpreter_bot import concurrency, errors, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    claims,
    links,
    loops,
    prompt_texts,
    transcripts,
)
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.kernels import pools
from interpreter_bot.sessions import (
    approval_policy,
    ports,
    quotas,
    requests,
    stop_signals,
    transcript_memory,
    turn_environments,
    turn_events,
    turn_inputs,
    turn_recording,
    variable_losses,
)
from interpreter_bot.store import databases

_log = logging.getLogger(__name__)

_FAULT: Final = "Something went wrong inside the bot. What was made until then is kept."
_BEHIND: Final = (
    "The database cannot be used right now. What is said here may be missing from the history "
    "later, and the model may not remember it."
)
_STATUSES: Final = {
    loops.OutcomeKind.ANSWERED: values.TurnStatus.DONE,
    loops.OutcomeKind.STOPPED: values.TurnStatus.STOPPED,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnServices:
    """What all turns share: made once, by `app`.

    Attributes:
        id: of this process of the bot.
        daily_usage: usage of running turns.
        write_retries: failed writes.
    """

    config: settings.Settings
    pool: pools.Pool
    database: databases.Database
    catalogue: catalogues.Catalogue
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    daily_usage: quotas.DailyUsage = dataclasses.field(default_factory=quotas.DailyUsage)
    write_retries: turn_recording.WriteRetries = dataclasses.field(
        default_factory=turn_recording.WriteRetries
    )


async def run_turn(
    services: TurnServices,
    request: requests.Request,
    reply: ports.Reply,
    *,
    stop: stop_signals.StopSignal,
) -> ports.End:
    """Run a request to its end.

    Args:
        services: shared by all turns.
        request: what is wanted.
        reply: gets all events. The end is shown before it is recorded.
        stop: set when the turn is to end now.
    """
    started = time.monotonic()
    recorder = turn_recording.Recorder(services.database)
    work = _Work(services, request, turn_events.TurnEvents(reply, recorder), recorder)
    try:
        end = await _catch_all(work.run(stop))
        if end.status is values.TurnStatus.STOPPED:
            end = stop.end(end.text, last=work.events.last)
    except BaseException:
        # Not before: it is known only now whether the bot itself ends.
        end = stop.end()
        raise
    finally:
        seconds = time.monotonic() - started
        end = dataclasses.replace(end, seconds=seconds, turn_id=recorder.turn_id)
        try:
            if recorder.is_behind:
                reply.announcement(max(work.events.cell, 0), _BEHIND)
            reply.ended(end)
        finally:
            writing = _record_end(services, recorder, end)
            await concurrency.shielded(_catch_all(writing))
    return end


async def _catch_all(work: Awaitable[ports.End]) -> ports.End:
    """Turn any exception into a failed End; the only broad `except` of a turn."""
    try:
        return await work
    except errors.BotError as error:
        _log.info("a turn failed", exc_info=error)
        return ports.End(status=values.TurnStatus.FAILED, sentence=str(error))
    except Exception:
        _log.exception("a turn fell")
        return ports.End(status=values.TurnStatus.FAILED, sentence=_FAULT)


async def _record_end(
    services: TurnServices, recorder: turn_recording.Recorder, end: ports.End
) -> ports.End:
    """Record how a turn ended; a failed write goes into the retry queue."""
    await recorder.close()
    if recorder.turn_id:
        status = values.TurnStatus(end.status.value)
        answer = end.sentence if end.status is values.TurnStatus.FAILED else end.text
        write = functools.partial(recorder.end, status, answer=answer)
        if not await write():
            services.write_retries.add(write)
        services.daily_usage.close(recorder.turn_id)
    return end


class _Work:
    """The work of one turn.

    Attributes:
        events: gets all events.
    """

    def __init__(
        self,
        services: TurnServices,
        request: requests.Request,
        events: turn_events.TurnEvents,
        recorder: turn_recording.Recorder,
    ) -> None:
        self._services = services
        self._request = request
        self.events = events
        self._recorder = recorder
        self._unfounded = claims.NOTHING
        self._loss: variable_losses.VariableLoss | None = None
        self._until = time.monotonic() + services.config.turn.seconds

    async def run(self, stop: stop_signals.StopSignal) -> ports.End:
        """Run the turn.

        Raises:
            BotError: it could not be done; the sentence says why.
        """
        services = self._services
        self.events.started()
        # Shielded from cancellation, or else the store would keep a turn that runs nowhere.
        session = await concurrency.shielded(self._recorder.begin(self._request))
        await services.write_retries.write()
        key = values.text(self._request.key)
        held = variable_losses.Variables(session.kernel, services.id, self._recorder.kernel)
        former = services.pool.live.get(key)
        self._loss = held.lost(former.kernel if former is not None else None)
        if self._loss is not None:
            self.events.notice(self._loss.sentence)
        async with services.pool.lease(key) as lease:
            environment = turn_environments.SessionEnvironment(
                lease,
                await services.pool.workspace(key),
                self.events,
                held=held,
                approval=await self._approval(),
                is_sandboxed=services.pool.is_sandboxed,
            )
            try:
                end = await self._done(environment, stop)
            finally:
                await concurrency.shielded(environment.collect(services.config.limits))
            return await self._mended(end, environment)

    async def _approval(self) -> requests.Approval:
        request = self._request
        if request.is_code:
            # Code that a person wrote is what they want to run: no approval.
            return "never"
        where = (request.key.platform, request.key.workspace, request.key.channel)
        scope = values.Scope(*where, request.person.id)
        wanted = self._services.config.sessions.approval
        return await approval_policy.in_effect(
            scope, self._services.database, wanted, request.approval
        )

    async def _done(
        self, environment: turn_environments.SessionEnvironment, stop: stop_signals.StopSignal
    ) -> ports.End:
        question = await concurrency.run_until_stopped(
            self._prepared(environment), stop=stop, seconds=self._seconds_left
        )
        if isinstance(question, concurrency.EarlyEnd):
            return self._interrupted(question)
        if question is None:
            return await self._run_code(environment, stop)
        return await self._ask(environment, question, stop)

    async def _prepared(
        self, environment: turn_environments.SessionEnvironment
    ) -> turn_inputs.TurnQuestion | None:
        """Store the attachments; return the question to the model, or None for code to be run."""
        services, request = self._services, self._request
        stored = await turn_inputs.store_request_attachments(
            request, environment, self.events, services.config.limits
        )
        if request.is_code:
            return None
        title = await turn_inputs.model_title(request, services.database, services.catalogue.titles)
        model = services.catalogue.model(title)
        infos = await turn_inputs.request_files(request, stored, environment)
        return turn_inputs.TurnQuestion(
            model=model,
            earlier=await transcript_memory.load(services.database, before=self._recorder.turn_id),
            told=await turn_inputs.question_text(request, stored, infos, environment),
            seen=await environment.look(infos, services.config.turn.pictures)
            if model.can_see
            else (),
        )

    async def _run_code(
        self, environment: turn_environments.SessionEnvironment, stop: stop_signals.StopSignal
    ) -> ports.End:
        """Run the person's own code, without a model."""
        shown: list[values.Output] = []

        def show(output: values.Output) -> None:
            shown.append(output)
            self.events.output(output)

        finished = await concurrency.run_until_stopped(
            environment.run(self._request.text, show=show), stop=stop, seconds=self._seconds_left
        )
        end = ports.End(status=values.TurnStatus.DONE)
        if isinstance(finished, concurrency.EarlyEnd):
            end = self._interrupted(finished)
            finished = self.events.last or values.Finished(values.Ending.STOPPED, 0.0, end.sentence)
        most = self._services.config.turn.output_characters
        earlier = (
            []
            if self._loss is None
            else [chat_messages.UserMessage(self._loss.remark, is_ours=True)]
        )
        entries = earlier + transcript_memory.of_code(self._request.text, shown, finished, most)
        told = [chat_messages.to_dict(one) for one in entries]
        self._recorder.memory({"messages": told, "is_whole": False})
        return end

    async def _ask(
        self,
        environment: turn_environments.SessionEnvironment,
        question: turn_inputs.TurnQuestion,
        stop: stop_signals.StopSignal,
    ) -> ports.End:
        """Let a model answer."""
        services, model = self._services, question.model
        transcript = transcripts.Transcript(question.earlier)
        count = len(transcript.entries)
        # In the same message: it must not be dropped when older messages become too long.
        lost = [self._loss.remark] if self._loss is not None else []
        transcript.add_user_message("\n\n".join([*lost, question.told]), question.seen)
        self._recorder.model = model.title
        limits = await quotas.limits_of(
            services.config.allowance_on(self._request.key.platform),
            self._request.key,
            self._request.person,
            services.database,
        )
        reservation = services.daily_usage.open(
            self._recorder.turn_id, self._request, limits=limits
        )
        allowance = reservation.allowance(services.database)
        reservation.budget = budgets.Budget(services.config.turn, model, allowance=allowance)
        today = datetime.datetime.now(datetime.UTC).date()
        job = loops.TurnSpec(
            llm=services.catalogue.llm(model.title),
            model=model,
            limits=services.config.turn,
            system=prompt_texts.system(
                services.config.limits,
                today=today,
                packages=services.pool.packages,
                note=services.config.agent.note,
                is_planned=environment.approval == "plan",
                is_small=model.is_small,
            ),
            transcript=transcript,
            environment=environment,
            observer=self.events,
            budget=reservation.budget,
            cache_key=values.cache_key(self._request.key),
            approve=environment.approved,
        )
        try:
            outcome = await loops.run(job, stop=stop)
        finally:
            is_whole = transcript.entries[:count] != tuple(question.earlier[:count])
            self._recorder.memory(
                transcript_memory.detail(count, transcript, is_whole=is_whole),
                transcript_memory.shown_pictures(count, transcript, is_whole=is_whole),
            )
        self._unfounded = outcome.unfounded
        status = _STATUSES.get(outcome.ending, values.TurnStatus.FAILED)
        return ports.End(status=status, text=outcome.text, sentence=outcome.sentence)

    async def _mended(
        self, end: ports.End, environment: turn_environments.SessionEnvironment
    ) -> ports.End:
        """Fix the links of the answer, and name the files it only claims."""
        rewritten = links.rewrite(end.text, ())
        files: tuple[str, ...] = ()
        if rewritten.missing:
            try:
                names = [info.name for info in await environment.list_files()]
                files = links.rewrite(end.text, names).missing
            except errors.WorkspaceError as error:
                # It is unknown which of them exist; the answer is worth more than that.
                _log.info("the links of an answer could not be looked into", exc_info=error)
        claimed = self._unfounded
        files = tuple(dict.fromkeys([*files, *claimed.files]))
        for sentence in dataclasses.replace(claimed, files=files).sentences:
            self.events.notice(sentence)
        return dataclasses.replace(end, text=rewritten.text)

    @property
    def _seconds_left(self) -> float:
        return self._until - time.monotonic()

    def _interrupted(self, interruption: concurrency.EarlyEnd) -> ports.End:
        if interruption is concurrency.EarlyEnd.STOPPED:
            return ports.End(status=values.TurnStatus.STOPPED)
        sentence = budgets.time_is_up(self._services.config.turn.seconds)
        return ports.End(status=values.TurnStatus.FAILED, sentence=sentence)
