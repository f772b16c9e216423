"""Run a turn: one request to its recorded end.

start taking a kernel -> attachments into the workspace, described -> the agent's loop, or the
person's own code -> what changed in the workspace -> links fixed -> recorded
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from interpreter_bot import cancellation, errors, events, settings, values
from interpreter_bot.agent import (
    budgets,
    chat_messages,
    file_references,
    loops,
    picture_selection,
    tool_execution,
    transcripts,
)
from interpreter_bot.sessions import (
    approval_policy,
    approvals,
    jobs,
    lanes,
    note_proposals,
    ports,
    quotas,
    requests,
    schedule_proposals,
    schedule_texts,
    scheduled_turns,
    session_dependencies,
    stored_transcripts,
    suspended_turns,
    turn_environments,
    turn_inputs,
    turn_recording,
    turn_stops,
    turn_streams,
    variable_losses,
)
from interpreter_bot.store import preferences, records
from interpreter_bot.wording import job_words, model_words, session_words, variable_words

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
FindSteering: TypeAlias = Callable[[], Sequence[lanes.Steering]]

_STATUSES: Final = {
    loops.OutcomeKind.ANSWERED: values.TurnStatus.DONE,
    loops.OutcomeKind.STOPPED: values.TurnStatus.STOPPED,
    loops.OutcomeKind.NOTHING_TO_REPORT: values.TurnStatus.DONE,
}


async def run_turn(
    services: session_dependencies.SessionDependencies,
    request: requests.Request,
    reply: ports.Reply,
    find_steering: FindSteering,
    *,
    stop: turn_stops.StopSignal,
) -> events.TurnEnded:
    """Run a request to its end.

    Args:
        reply: receives all events; it receives the end before that is recorded.
        find_steering: returns the waiting messages that the turn may answer, too.
        stop: set to end the turn now.
    """
    started_at = time.monotonic() - request.elapsed_seconds
    recorder = turn_recording.Recorder(services.database, services.hosts.acknowledge)
    stream = turn_streams.TurnStream(
        request, reply, recorder, all_questions=services.questions, stop=stop
    )
    work = _Work(services, request, stream, recorder, find_steering)
    try:
        end = await _catch_all(work.run(stop))
        if end.status is values.TurnStatus.STOPPED:
            end = stop.end(end.text, last_finished=work.stream.last_finished)
    except BaseException:
        # A cancelled turn is suspended if the bot itself ends, and stopped otherwise.
        stop.suspend()
        end = stop.end()
        raise
    finally:
        seconds, queries = time.monotonic() - started_at, recorder.asked_queries
        end = dataclasses.replace(end, seconds=seconds, turn_id=recorder.turn_id, queries=queries)
        try:
            if recorder.is_behind:
                reply.emit(events.NoticeShown(session_words.NO_DATABASE, max(work.stream.cell, 0)))
            reply.emit(end)
        finally:
            writing = _record_end(services, request, recorder, end, is_suspended=stop.is_suspended)
            await cancellation.shielded(_catch_all(writing))
    return end


async def _catch_all(work: Awaitable[_T]) -> _T | events.TurnEnded:
    """Turn any exception into a failed end; the only broad `except` of a turn."""
    try:
        return await work
    except errors.BotError as error:
        _log.info("a turn failed", exc_info=error)
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=str(error))
    except Exception:
        _log.exception("a turn failed unexpectedly")
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=session_words.BOT_FAULT)


async def _record_end(
    services: session_dependencies.SessionDependencies,
    request: requests.Request,
    recorder: turn_recording.Recorder,
    end: events.TurnEnded,
    *,
    is_suspended: bool,
) -> events.TurnEnded:
    """Record how a turn ended; a failed write goes into the retry queue."""
    await recorder.close()
    if is_suspended:
        # No end is recorded, so that the next bot finds the turn and resumes it.
        await recorder.flush()
        services.daily_usage.close(recorder.turn_id)
    elif recorder.turn_id:
        keeps_question = services.questions.forget(recorder.turn_id)
        database, turn_id = services.database, recorder.turn_id
        answer = end.sentence if end.status is values.TurnStatus.FAILED else end.text
        write_end: Callable[[], Awaitable[object]] = functools.partial(
            database.turns.finish,
            turn_id,
            end.status,
            answer=answer,
            keeps_question=keeps_question,
        )
        if end.is_quiet:
            write_end = functools.partial(
                scheduled_turns.delete_quiet_turn, database, request, turn_id, end
            )
        write = functools.partial(recorder.end, write_end)
        if not await write():
            services.write_retries.add(write)
        services.daily_usage.close(recorder.turn_id)
    return end


class _Work:
    """The work of one turn.

    Attributes:
        stream: receives all events.
    """

    _session: records.Session

    def __init__(
        self,
        services: session_dependencies.SessionDependencies,
        request: requests.Request,
        stream: turn_streams.TurnStream,
        recorder: turn_recording.Recorder,
        find_steering: FindSteering,
    ) -> None:
        self._find_steering = find_steering
        self._services = services
        self._request = request
        self.stream = stream
        self._recorder = recorder
        self._missing_files: tuple[str, ...] = ()
        self._memory: stored_transcripts.TurnMemory | None = None
        self._remarks: list[chat_messages.Note] = []
        """Notes to the model on what the session has lost."""
        self._deadline = time.monotonic() + services.config.turn.seconds
        self._former_progress: suspended_turns.Progress | None = None
        self._choices = preferences.Choices()

    async def run(self, stop: turn_stops.StopSignal) -> events.TurnEnded:
        """Run the turn.

        Raises:
            BotError: the turn failed; the sentence says why.
        """
        services = self._services
        self.stream.emit(events.Started())
        if not self._request.is_job:
            await services.jobs.wait_recorded(self._request.key)
        if self._request.notice:
            self.stream.emit(events.NoticeShown(self._request.notice))
        # Shielded, as cancellation in between would leave a turn in the store that nobody ends.
        session = self._session = await cancellation.shielded(self._begin())
        await services.write_retries.write()
        key = values.format_key(self._request.key)
        person = self._request.person.id
        variables = variable_losses.KernelVariables(
            session.kernel, services.id, self._recorder.record_kernel, person=person
        )
        if self._former_progress is None:
            await self._check_kernel(session, variables)
        if not self._request.is_job and (note := services.jobs.note_for_model(self._request.key)):
            self._remarks.append(note)
        turn_approvals = approvals.Approvals(self.stream, services.database.grants, session.id)
        proposals = None
        is_scheduled = self._request.is_scheduled
        if (
            schedule_proposals.can_propose(services, self._request.key.platform)
            and not is_scheduled
        ):
            proposals = schedule_proposals.Proposals(
                services, turn_approvals, self._request, session
            )
            if self._request.is_code and (text := schedule_texts.parse_command(self._request.text)):
                return await self._propose(proposals, text, stop)
        if services.connections is not None:
            services.connections.note_person(
                key, person, other_people=variables.people, turn_id=self._recorder.turn_id
            )
        async with services.hosts.lease(key, person=self._request.person_key) as lease:
            if not self._request.is_code:
                self._choices = await services.places.choices(self._request.scope)
            environment = turn_environments.SessionEnvironment(
                services,
                self._request,
                self.stream,
                lease=lease,
                workspace=await services.hosts.workspace(key),
                variables=variables,
                approval=approval_policy.approval_for_request(self._request, self._choices),
                all_approvals=turn_approvals,
                stop=stop,
                turn_id=self._recorder.turn_id,
                deadline=self._deadline,
                propose=proposals.propose if proposals is not None else None,
                hand_over=self._hand_over,
            )
            if self._former_progress is not None:
                await self._resume_from(self._former_progress, environment, session)
            try:
                end = await self._run_request(environment, stop)
            finally:
                if services.connections is not None:
                    queries = services.connections.turns.end(key, self._recorder.turn_id)
                    self._recorder.record_queries(queries)
                collecting = _catch_all(environment.collect())
                collected = await cancellation.shielded(collecting)
                if isinstance(collected, events.TurnEnded):
                    # A failure with the files must not cost the answer.
                    self.stream.emit(events.NoticeShown(collected.sentence))
            return await self._link_files(end, environment)

    async def _check_kernel(
        self, session: records.Session, variables: variable_losses.KernelVariables
    ) -> None:
        """Tell people and the model which variables the session has lost since its last turn."""
        hosts, key = self._services.hosts, values.format_key(self._request.key)
        move_notice = variable_words.MACHINE_LOST if await hosts.ensure_placed(key) else ""
        status = (await hosts.statuses({key})).get(key)
        kernel_state = (status.kernel_id, status.loss_reason) if status else ("", move_notice)
        is_gone = variables.has_unannounced_loss(*kernel_state)
        saved = (await hosts.variables(key)).saved if is_gone else None
        await self._report_losses(
            session, variables.take_notice(*kernel_state, saved=saved), move_notice
        )

    async def _resume_from(
        self,
        progress: suspended_turns.Progress,
        environment: turn_environments.SessionEnvironment,
        session: records.Session,
    ) -> None:
        """Take over the turn of another bot, and replay its events to the reply."""
        self._memory = await progress.take_over(
            environment,
            self._services.database,
            self._recorder,
            self.stream,
            session_id=session.id,
        )
        self.stream.is_code_shown = await suspended_turns.show_again(
            self._services.database,
            self.stream.reply,
            turn_id=self._request.resumed_turn_id,
            resumed=self.stream.cell + 1 if environment.resumed else None,
        )
        if self._request.is_job:
            # Not recorded, as each bot that follows the job shows this notice.
            self.stream.reply.emit(events.NoticeShown(job_words.JOB_WENT_ON, 0))
        else:
            self.stream.emit(events.NoticeShown(session_words.KEPT_RUNNING))

    async def _hand_over(self, environment: turn_environments.SessionEnvironment) -> None:
        """Move the running code to a turn of its own, which another bot can resume, too."""
        key, turn_id = self._request.key, self._recorder.turn_id
        progress = suspended_turns.Progress(
            is_code=True,
            mark=environment.mark or "",
            kernel_id=environment.kernel_id,
            approval=environment.approval,
            is_job=True,
        )
        turn = await self._recorder.hand_over(
            progress.document(), jobs.request_id(turn_id, self.stream.cell)
        )
        if self._services.connections is not None:
            # The code may send queries between the two turns, too.
            self._services.connections.turns.begin(values.format_key(key), turn.id)
        request = progress.request(turn, key)
        self._services.jobs.move_to_background(key, request.person_key, time.time(), request)

    async def _begin(self) -> records.Session:
        """Record the beginning of the turn, or take over that of another bot."""
        if not self._request.resumed_turn_id:
            return await self._recorder.begin(self._request)
        turn, self._former_progress = await suspended_turns.load(
            self._services.database, self._request.resumed_turn_id
        )
        return await self._recorder.take_over(turn)

    async def _report_losses(
        self,
        session: records.Session,
        loss: variable_losses.VariableNotice | None,
        move_notice: str,
    ) -> None:
        """Tell people and model which variables or files were lost since the last turn."""
        files_sentence = session.files.get("gone", "") or (
            move_notice and variable_words.FILES_LOST
        )
        if session.files:
            await self._services.database.sessions.note_files(session.id, {})
        if loss is not None:
            loss = dataclasses.replace(loss, files_sentence=files_sentence or loss.files_sentence)
            self.stream.emit(events.NoticeShown(loss.sentence))
            self._remarks.append(loss.note)
        elif files_sentence:
            self.stream.emit(events.NoticeShown(files_sentence))
            self._remarks.append(chat_messages.Note(f"[{files_sentence}]"))

    async def _propose(
        self, proposals: schedule_proposals.Proposals, text: str, stop: turn_stops.StopSignal
    ) -> events.TurnEnded:
        """Ask the person to confirm the schedule that they wrote."""
        if self._former_progress is not None:
            self.stream.emit(events.NoticeShown(session_words.KEPT_RUNNING))
        elif self._services.hosts.outlives_bot:
            self._recorder.progress = suspended_turns.Progress(is_code=True).document
            self._recorder.note_progress()
        outcome = await cancellation.run_until_stopped(
            proposals.propose(text), stop=stop, seconds=self._seconds_left
        )
        if isinstance(outcome, cancellation.EarlyEnd):
            return self._early_end(outcome)
        self.stream.emit(events.NoticeShown(outcome))
        return events.TurnEnded(status=values.TurnStatus.DONE)

    async def _run_request(
        self, environment: turn_environments.SessionEnvironment, stop: turn_stops.StopSignal
    ) -> events.TurnEnded:
        if self._memory is not None and self._former_progress is not None:
            model = self._services.catalogue.find_model(self._former_progress.model)
            return await self._ask(environment, model, self._memory, stop)
        prepared = await cancellation.run_until_stopped(
            self._prepare(environment), stop=stop, seconds=self._seconds_left
        )
        if isinstance(prepared, cancellation.EarlyEnd):
            return self._early_end(prepared)
        if prepared is None:
            return await self._run_code(environment, stop)
        return await self._ask(environment, *prepared, stop)

    async def _prepare(
        self, environment: turn_environments.SessionEnvironment
    ) -> tuple[settings.Model, stored_transcripts.TurnMemory] | None:
        """Store the attachments; return the model and its memory with the question.

        For a person's own code, return None.
        """
        services, request = self._services, self._request
        stored = await turn_inputs.store_request_attachments(
            request, environment, self.stream, services.config.limits
        )
        if request.is_code:
            return None
        title = request.model or turn_inputs.choose_session_model(
            self._session, self._choices, services.catalogue.titles
        )
        model = services.catalogue.find_model(title)
        text, pictures = await self._describe(request, stored, environment, model)
        memory = await stored_transcripts.begin_memory(
            services.database, self._session.id, before=self._recorder.turn_id
        )
        if request.is_scheduled:
            self._remarks.append(scheduled_turns.SCHEDULE_NOTE)
        # The notes are part of the question, so that they are not dropped with older messages.
        text = "\n\n".join([*(note.text for note in self._remarks), text])
        memory.transcript.add_user_message(text, pictures)
        return model, memory

    async def _describe(
        self,
        request: requests.Request,
        stored: turn_inputs.StoredAttachments,
        environment: turn_environments.SessionEnvironment,
        model: settings.Model,
    ) -> tuple[str, Sequence[chat_messages.Picture]]:
        """Return the text of a request for the model, and its pictures."""
        infos = await turn_inputs.list_request_files(request, stored, environment)
        request = await self._drop_known_messages(request)
        text = await turn_inputs.compose_question(request, stored, infos, environment)
        if not model.can_see_images:
            return text, ()
        names = [info.name for info in infos]
        return text, await environment.load_pictures(
            names, picture_selection.MAX_PICTURES_PER_EXECUTION
        )

    async def _add_steering_messages(
        self,
        environment: turn_environments.SessionEnvironment,
        model: settings.Model,
        transcript: transcripts.Transcript,
    ) -> None:
        """Add the person's messages since the turn began to the transcript."""
        steering = []
        for request, take_up in self._find_steering():
            stored = await turn_inputs.store_attachments(
                request.attachments,
                environment.workspace,
                self.stream,
                self._services.config.limits,
            )
            infos = await turn_inputs.list_request_files(request, stored, environment)
            environment.received_files.update(infos)
            message = await self._describe(request, stored, environment, model)
            steering.append((request, message, take_up))
        # Taken up last: if the turn ends before this, the requests get turns of their own.
        taken_up = [(request, message) for request, message, take_up in steering if take_up()]
        for request, message in taken_up:
            self.stream.emit(events.NoticeShown(session_words.taken_up(request.text)))
            transcript.add_user_message(*message)
        if taken_up:
            self._recorder.begin_next_step()
            await self.stream.keep_progress()

    async def _drop_known_messages(self, request: requests.Request) -> requests.Request:
        """Leave out recent messages that the model has already received as requests."""
        ids = {message.id for message in request.recent if message.id}
        if not ids:
            return request
        known_ids = await self._services.database.turns.filter_request_ids(self._session.id, ids)
        recent = tuple(message for message in request.recent if message.id not in known_ids)
        return dataclasses.replace(request, recent=recent)

    async def _run_code(
        self, environment: turn_environments.SessionEnvironment, stop: turn_stops.StopSignal
    ) -> events.TurnEnded:
        """Run the person's own code, without a model."""
        is_job = self._request.is_job
        suspended_turns.provide_progress(
            self._services.hosts, self._recorder, environment, None, is_job=is_job
        )
        job = self._services.jobs.find(self._request.key) if is_job else None
        outputs: list[values.Output] = []

        def show(output: values.Output) -> None:
            outputs.append(output)
            if job is not None:
                job.note_output(output)

        finished = await cancellation.run_until_stopped(
            environment.run(self._request.text, show=show),
            stop=stop,
            seconds=math.inf if is_job else self._seconds_left,
        )
        if job is not None:
            job.has_ended = True
        end = events.TurnEnded(status=values.TurnStatus.DONE)
        if isinstance(finished, cancellation.EarlyEnd):
            end = self._early_end(finished)
            if stop.is_suspended:
                return end
            finished = self.stream.last_finished or values.Finished(
                values.Ending.STOPPED, 0.0, end.sentence
            )
        elif self._request.is_scheduled:
            end = await scheduled_turns.make_code_end(
                self._services.database, self._request, environment, finished
            )
        limit = tool_execution.MAX_OUTPUT_CHARACTERS
        remarks = [chat_messages.UserMessage(note.text, is_from_bot=True) for note in self._remarks]
        entries = remarks + stored_transcripts.describe_code_run(
            self._request.text, outputs, finished, limit, is_job=is_job
        )
        messages = [chat_messages.to_dict(entry) for entry in entries]
        self._recorder.record_memory({"messages": messages, "is_whole": False})
        return end

    async def _ask(
        self,
        environment: turn_environments.SessionEnvironment,
        model: settings.Model,
        memory: stored_transcripts.TurnMemory,
        stop: turn_stops.StopSignal,
    ) -> events.TurnEnded:
        """Let a model answer."""
        services = self._services
        self._recorder.model = model.title
        suspended_turns.provide_progress(services.hosts, self._recorder, environment, memory)
        default_limits = services.config.allowance_on(self._request.key.platform)
        reservation = services.daily_usage.open(
            self._recorder.turn_id,
            self._request,
            limits=quotas.limits_for_person(default_limits, self._choices),
        )
        allowance = reservation.allowance(services.database)
        reservation.budget = budgets.Budget(services.config.turn, model, allowance=allowance)
        can_propose = note_proposals.may_propose_notes(services.places, self._request, model)
        proposals = note_proposals.NoteProposals(
            services.places, self._request, environment, self.stream
        )
        spec = loops.TurnSpec(
            llm=await services.catalogue.open_llm(model.title),
            model=model,
            limits=services.config.turn,
            system=await turn_inputs.build_system_prompt(
                services,
                self._request,
                model,
                environment=environment,
                place=await services.places.prompt(
                    self._request.scope, self._choices, can_propose=can_propose
                ),
            ),
            transcript=memory.transcript,
            environment=environment,
            emit=self.stream.emit,
            budget=reservation.budget,
            cache_key=values.cache_key(self._request.key),
            approve=environment.approve,
            can_ask=self._request.is_attended and model.can_call_tools,
            can_propose_schedules=environment.can_propose_schedules,
            is_scheduled=self._request.is_scheduled,
            # A scheduled turn may end without an answer, and a person who wrote waits for one.
            add_steering_messages=None
            if self._request.is_scheduled
            else functools.partial(
                self._add_steering_messages, environment, model, memory.transcript
            ),
            propose_note=proposals.propose if can_propose else None,
            max_background_seconds=services.jobs.max_seconds(self._request.key)
            if services.hosts.outlives_bot
            else 0.0,
        )
        try:
            outcome = await loops.run(spec, stop=stop)
        finally:
            if not stop.is_suspended:
                self._recorder.record_memory(memory.detail(), memory.list_pictures())
        self._missing_files = outcome.missing_files
        status = _STATUSES.get(outcome.kind, values.TurnStatus.FAILED)
        return events.TurnEnded(
            status=status,
            text=outcome.text,
            sentence=outcome.sentence,
            is_quiet=outcome.kind is loops.OutcomeKind.NOTHING_TO_REPORT,
        )

    async def _link_files(
        self, end: events.TurnEnded, environment: turn_environments.SessionEnvironment
    ) -> events.TurnEnded:
        """Replace links to files by their names, and report files that do not exist."""
        if self._missing_files:
            self.stream.emit(events.NoticeShown(model_words.missing_files(self._missing_files)))
        if not file_references.may_refer_to_files(end.text):
            return end
        names: list[str] = []
        try:
            names = [info.name for info in await environment.list_files()]
        except errors.WorkspaceError as error:
            # Names then stay as the model wrote them.
            _log.info("files of the workspace cannot be listed", exc_info=error)
        text = await asyncio.to_thread(file_references.replace_links, end.text, names)
        return dataclasses.replace(end, text=text)

    @property
    def _seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def _early_end(self, interruption: cancellation.EarlyEnd) -> events.TurnEnded:
        if interruption is cancellation.EarlyEnd.STOPPED:
            return events.TurnEnded(status=values.TurnStatus.STOPPED)
        sentence = model_words.out_of_time(self._services.config.turn.seconds)
        return events.TurnEnded(status=values.TurnStatus.FAILED, sentence=sentence)
