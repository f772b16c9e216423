"""Turns that the next bot resumes.

While a turn runs on a host that outlives the bot, its row holds its progress: the model's messages
and the state of its code. The next bot finds the turn without an owner, follows the running
execution, or repeats the last model call, and continues the turn from there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, events, values
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import (
    artifact_collection,
    jobs,
    lanes,
    past_turns,
    ports,
    requests,
    session_dependencies,
    stored_transcripts,
    turn_environments,
    turn_log,
    turn_recording,
    turn_streams,
)
from interpreter_bot.store import databases, records
from interpreter_bot.wording import file_words, job_words, session_words

_log = logging.getLogger(__name__)

_MAX_REPLY_CHARACTERS: Final = 3000
_CUT_NOTICE: Final = f"\n{session_words.REST_IN_HISTORY}"
_FENCE: Final = "```\n{}\n```"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a running turn, as stored in its row.

    Attributes:
        is_code: it runs a person's own code, without a model.
        model: title of the model that is asked.
        memory: `stored_transcripts.TurnMemory.detail` until now.
        mark: of the files before its first code; empty if no code ran.
        kernel_id: of the kernel that ran its code; empty if no code ran.
        approval: whether a person is asked before its code runs.
        step: number of the latest model call.
        is_asking: its next code waits for approval, or the model for an answer.
        is_job: it follows code in the background.
        is_handed_over: its latest code became a job, which a turn of its own follows.
    """

    is_code: bool
    model: str = ""
    memory: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mark: str = ""
    kernel_id: str = ""
    approval: requests.Approval = "never"
    step: int = 0
    is_asking: bool = False
    is_job: bool = False
    is_handed_over: bool = False

    def document(self) -> dict[str, Any]:
        """Return the progress as it is stored."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, turn: records.Turn) -> Progress | None:
        """Read a turn's progress; None if there is none, or if another release wrote it."""
        try:
            return cls(**turn.progress) if turn.progress else None
        except TypeError:
            _log.warning("the progress of turn %d cannot be read", turn.id, exc_info=True)
            return None

    def request(self, turn: records.Turn, key: values.SessionKey) -> requests.Request:
        """Return the request that resumes the turn."""
        return requests.Request(
            key=key,
            person=requests.Person(turn.person),
            text=turn.request,
            is_code=self.is_code,
            id=turn.request_id,
            model=self.model,
            resumed_turn_id=turn.id,
            elapsed_seconds=(datetime.datetime.now(datetime.UTC) - turn.started).total_seconds(),
            approval=self.approval,
            is_job=self.is_job,
            schedule_run_id=turn.schedule_run_id,
        )

    async def take_over(
        self,
        environment: turn_environments.SessionEnvironment,
        database: databases.Database,
        recorder: turn_recording.Recorder,
        stream: turn_streams.TurnStream,
        *,
        session_id: int,
    ) -> stored_transcripts.TurnMemory | None:
        """Let an environment follow the running code; return the memory of a model's turn."""
        environment.mark = self.mark or None
        environment.kernel_id = self.kernel_id
        memory = None
        if not self.is_code:
            memory = await stored_transcripts.restore_memory(
                database, session_id, self.memory, before=recorder.turn_id
            )
        is_asked_again = memory is not None and not memory.transcript.unanswered_calls
        await recorder.continue_steps(self.step, is_asked_again=is_asked_again)
        executions = list(await database.executions.list_for_turn(recorder.turn_id))
        environment.is_asking = self.is_asking
        environment.is_handed_over = self.is_handed_over
        if not (is_asked_again or self.is_asking or self.is_handed_over):
            # The progress was written with the execution, in one transaction.
            environment.resumed = executions.pop()
        stream.cell = len(executions) - 1
        return memory


async def load(database: databases.Database, turn_id: int) -> tuple[records.Turn, Progress]:
    """Load a turn that another bot began.

    Raises:
        StoreError: the turn is gone, or has no progress.
    """
    turn = await database.turns.get(turn_id)
    progress = Progress.of(turn) if turn is not None else None
    if turn is None or progress is None:
        raise errors.StoreError
    return turn, progress


async def show_again(
    database: databases.Database,
    reply: ports.Reply,
    *,
    turn_id: int,
    resumed: int | None,
) -> bool:
    """Replay the recorded events of a turn to a reply, as the former bot's reply received them.

    Args:
        reply: replaces the former bot's reply.
        resumed: number of the execution that will be followed, so that its end comes from its host.

    Returns:
        Whether the code of that execution was replayed.

    Raises:
        StoreError: the record cannot be read.
    """
    is_shown = False
    for event in await past_turns.load_events(database, turn_id):
        match event:
            case events.CodeStarted(cell=cell):
                is_shown = cell == resumed
                reply.emit(event)
            case events.CodeFinished(cell=cell) if cell == resumed:
                pass
            case events.StoredDisplayShown(cell=cell, output=display):
                if (output := await _load_display(database, display)) is not None:
                    reply.emit(events.OutputShown(cell, output))
            case events.Started():
                pass
            case events.NoticeShown(text=session_words.KEPT_RUNNING):
                # The notice of an earlier takeover. A chat's reply takes this notice as the end
                # of the replay, so it is emitted once, afterwards.
                pass
            case _:
                reply.emit(event)
    return is_shown


async def show_ended(
    services: session_dependencies.SessionDependencies,
    request: requests.Request,
    reply: ports.Reply,
) -> events.TurnEnded | None:
    """Show the recorded events of a turn that has ended; None for any other request.

    They are emitted all at once, so that the reply never shows less than the former bot did.
    """
    database, turn_id = services.database, request.resumed_turn_id
    turn = await database.turns.get(turn_id) if turn_id else None
    if turn is None or turn.status is values.TurnStatus.RUNNING:
        return None
    replayed: list[events.TurnEvent] = []
    pictures: set[str] = set()
    for event in await past_turns.load_events(database, turn.id):
        match event:
            case events.Started():
                pass
            case events.StoredDisplayShown(cell=cell, output=display):
                if (output := await _load_display(database, display)) is not None:
                    replayed.append(events.OutputShown(cell, output))
                if isinstance(output, values.Image):
                    pictures.add(display.sha256)
            case events.FileMade(artifact=artifact) if artifact.sha256 in pictures:
                shown_artifact = dataclasses.replace(artifact, is_shown=True)
                replayed.append(dataclasses.replace(event, artifact=shown_artifact))
            case events.FileMade() if reply.spool is not None:
                replayed.append(await _copy_again(services, request.key, reply, event))
            case events.CodeStarted() if request.is_job:
                # Not recorded, see `turns`.
                replayed += [event, events.NoticeShown(job_words.JOB_WENT_ON, 0)]
            case _:
                replayed.append(event)
    for event in replayed:
        reply.emit(event)
    return next(event for event in replayed if isinstance(event, events.TurnEnded))


async def _copy_again(
    services: session_dependencies.SessionDependencies,
    key: values.SessionKey,
    reply: ports.Reply,
    recorded: events.FileMade,
) -> events.FileMade:
    """Copy a recorded file into the spool of a reply, unless it has changed or cannot be read."""
    try:
        collector = artifact_collection.ArtifactCollector(
            await services.hosts.workspace(values.format_key(key)),
            emit=reply.emit,
            spool=reply.spool,
            limits=services.config.limits,
        )
        return await collector.copy_again(recorded)
    except (errors.BotError, OSError) as error:
        _log.info("a recorded file cannot be copied", exc_info=error)
        return recorded


async def _load_display(
    database: databases.Database, display: values.StoredDisplay
) -> values.Output | None:
    """Return a display with its content; None if that is gone."""
    data = await database.blobs.load(display.sha256)
    if data is None:
        return None
    display_fields: dict[str, Any] = {
        field.name: getattr(display, field.name) for field in dataclasses.fields(values.Display)
    }
    if display.mime == "text/html":
        return values.Html(html=data, **display_fields)
    return values.Image(mime=display.mime, data=data, **display_fields)


def provide_progress(
    hosts: host_ports.Hosts,
    recorder: turn_recording.Recorder,
    environment: turn_environments.SessionEnvironment,
    memory: stored_transcripts.TurnMemory | None,
    *,
    is_job: bool = False,
) -> None:
    """Record a turn's progress from now on, if another bot can resume it.

    Args:
        memory: of the model; None for a job, and for a person's own code.
        is_job: see `Progress`.
    """

    def progress() -> dict[str, Any]:
        return Progress(
            is_code=memory is None,
            model=recorder.model,
            memory=memory.detail() if memory is not None else {},
            mark=environment.mark or "",
            kernel_id=environment.kernel_id,
            approval=environment.approval,
            step=recorder.step_number,
            is_asking=environment.is_asking,
            is_job=is_job,
            is_handed_over=environment.is_handed_over,
        ).document()

    if hosts.outlives_bot:
        recorder.progress = progress


GoOn: TypeAlias = Callable[[requests.Request], Awaitable[None]]
"""Handles a request that resumes a turn, as if the request had just arrived."""


class Resumptions:
    """Resumes turns of dead bots.

    Each waits until its platform is open, so that people see it. Meanwhile no other turn of its
    session begins, as its code may still run.
    """

    def __init__(
        self,
        all_lanes: lanes.Lanes,
        all_jobs: jobs.Jobs,
        handle: Callable[[requests.Request, ports.Reply], Awaitable[object]],
        notify: Callable[[values.SessionKey, str], Awaitable[object]],
    ) -> None:
        self._lanes = all_lanes
        self._jobs = all_jobs
        self._handle = handle
        self._notify = notify
        self._platforms: dict[str, GoOn] = {}
        self._pending: list[requests.Request] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def resume_on(self, platform: str, go_on: GoOn | None) -> None:
        """Resume turns of a platform from now on; None only notifies people of each outcome."""
        self._platforms[platform] = go_on or self._go_on_unseen
        if go_on is not None:
            self._jobs.platforms.add(platform)
        pending_requests, self._pending = self._pending, []
        for request in pending_requests:
            self.add(request)

    def add(self, request: requests.Request) -> None:
        """Resume a turn as soon as its platform is open; a job runs beside other turns."""
        if request.is_job:
            started_at = time.time() - request.elapsed_seconds
            self._jobs.move_to_background(request.key, request.person_key, started_at)
        else:
            self._lanes.expect(request.key, request.id)
        go_on = self._platforms.get(request.key.platform)
        if go_on is None:
            self._pending.append(request)
            return
        resumption = self._log_failures(go_on, request)
        task = asyncio.create_task(resumption, name=f"go on with turn {request.resumed_turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for the turns that were resumed; pending ones are left to the next bot."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _go_on_unseen(self, request: requests.Request) -> None:
        reply = LateReply()
        await self._handle(dataclasses.replace(request, is_attended=False), reply)
        await self._notify(request.key, reply.text())

    async def _log_failures(self, go_on: GoOn, request: requests.Request) -> None:
        try:
            try:
                await go_on(request)
            except errors.BotError as error:
                # Some networks allow only answers to recent messages.
                _log.info("a turn cannot be shown in its messages", exc_info=error)
                await self._go_on_unseen(request)
        except Exception:
            # The next bot tries this turn again.
            _log.exception("turn %d was not resumed", request.resumed_turn_id)
        finally:
            if request.is_job:
                self._jobs.end(request.key)
            else:
                self._lanes.stop_expecting(request.key)


class LateReply(ports.Reply):
    """A reply without a message to edit: people get one notification at the end."""

    def __init__(self) -> None:
        self._log = turn_log.TurnLog()

    def _show(self, event: events.TurnEvent) -> None:
        self._log.apply(event)

    def text(self) -> str:
        """Return the outcome of the turn; if it is long, outputs are shortened first."""
        log, parts, last_parts = self._log, [], []
        for part in log.parts:
            match part:
                case events.NoticeShown(text=text):
                    parts.append(text)
                case turn_log.Cell(finished=values.Finished(reason=reason)):
                    parts.append(reason)
        if log.files:
            last_parts.append(file_words.files_made(", ".join(log.files)))
        if log.last_words is not None:
            last_parts.append(log.last_words.text)
        if log.end is not None:
            last_parts.append(log.end.sentence)
        # Only the last cell's output is shown, as earlier output was for the model.
        outputs = log.cells[-1].screen.outputs if log.cells else ()
        output_text = "".join(output.plain for output in outputs).strip().replace("```", "` ` `")
        max_output_characters = max(
            _MAX_REPLY_CHARACTERS - len("\n\n".join([*parts, *last_parts, _FENCE])), 0
        )
        if shown_output := output_text[:max_output_characters]:
            parts.append(_FENCE.format(shown_output))
        text = "\n\n".join(filter(None, [*parts, *last_parts]))
        is_whole = len(text) <= _MAX_REPLY_CHARACTERS and shown_output == output_text
        return text if is_whole else text[:_MAX_REPLY_CHARACTERS] + _CUT_NOTICE
