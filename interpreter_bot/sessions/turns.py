"""A turn: one request taken to its end, whatever that is, and remembered.

start taking a kernel -> attachments into the workspace, described -> the agent's loop, or the
person's own code -> what changed in the workspace -> links mended -> recorded
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging
import time
from typing import Final

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import (
    budgets,
    endings,
    links,
    loops,
    messages,
    prompting,
    stopping,
    transcripts,
)
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.kernels import pools
from interpreter_bot.sessions import (
    addresses,
    allowances,
    attaching,
    finishing,
    memories,
    ports,
    recording,
    requests,
    stages,
    workbenches,
)
from interpreter_bot.store import databases, records

_log = logging.getLogger(__name__)

_FAULT: Final = "Something went wrong inside the bot. What was made until then is kept."
STOPPED: Final = ports.End(status=ports.Status.STOPPED, sentence="Stopped.")
"""The end of a turn that somebody stopped before it came to anything."""
_MISSING: Final = "The answer speaks of files that do not exist: {names}."
_STATUSES: Final = {
    endings.Ending.ANSWERED: ports.Status.DONE,
    endings.Ending.STOPPED: ports.Status.STOPPED,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What turns are taken with: made once, by `app`."""

    bot: settings.Settings
    pool: pools.Pool
    database: databases.Database
    catalogue: catalogues.Catalogue


async def take(
    means: Means, request: requests.Request, reply: ports.Reply, *, stop: asyncio.Event
) -> ports.End:
    """Take a request to its end.

    Args:
        means: what it takes.
        request: what is wanted.
        reply: who is shown everything. The end is shown before it is written down.
        stop: set when the turn is to end now.
    """
    started = time.monotonic()
    try:
        reply.begun()
        session = await means.database.sessions.open(request.key)
        turn = await means.database.turns.start(
            session.id,
            person=request.person.id,
            text=request.text,
            request_id=request.id,
            attachments=[*(one.name for one in request.attachments), *request.files],
        )
    except errors.StoreError as error:
        _log.exception("a turn could not be begun")
        end = ports.End(status=ports.Status.FAILED, sentence=str(error))
        reply.over(end)
        return end
    except asyncio.CancelledError:
        reply.over(STOPPED)
        raise
    end = STOPPED
    async with recording.Recorder.open(means.database, turn.id) as recorder:
        work = _Work(means, request, session, turn.id, stages.Stage(reply, recorder), recorder)
        try:
            end = await _kept_from_falling(work, stop)
        finally:
            seconds = time.monotonic() - started
            end = dataclasses.replace(end, seconds=seconds, turn_id=turn.id)
            try:
                reply.over(end)
            finally:
                await finishing.to_the_end(work.record(end))
    return end


async def _kept_from_falling(work: _Work, stop: asyncio.Event) -> ports.End:
    """Do the work; this is the one net for whatever nobody foresaw."""
    try:
        return await work.run(stop)
    except errors.BotError as error:
        _log.info("a turn failed", exc_info=error)
        return ports.End(status=ports.Status.FAILED, sentence=str(error))
    except Exception:
        _log.exception("a turn fell")
        return ports.End(status=ports.Status.FAILED, sentence=_FAULT)


class _Work:
    """What is done in one turn."""

    def __init__(
        self,
        means: Means,
        request: requests.Request,
        session: records.Session,
        turn_id: int,
        stage: stages.Stage,
        recorder: recording.Recorder,
    ) -> None:
        self._means = means
        self._request = request
        self._session = session
        self._turn_id = turn_id
        self._stage = stage
        self._recorder = recorder
        self._artifacts: list[values.Artifact] = []
        self._budget: budgets.Budget | None = None
        self._bench: workbenches.Workbench | None = None
        self._model = ""

    async def run(self, stop: asyncio.Event) -> ports.End:
        """Do it.

        Raises:
            BotError: it could not be done; the sentence says why.
        """
        key = addresses.text(self._request.key)
        async with self._means.pool.lease(key) as lease:
            workspace = await self._means.pool.workspace(key)
            bench = self._bench = workbenches.Workbench(
                lease,
                workspace,
                self._stage,
                approval=self._request.approval,
                is_sandboxed=self._means.pool.is_sandboxed,
            )
            limits = self._means.bot.limits
            storing = attaching.store(self._request.attachments, workspace, self._stage, limits)
            stored = await stopping.ended_early(
                storing, stop=stop, seconds=self._means.bot.turn.seconds
            )
            if isinstance(stored, stopping.Interruption):
                return STOPPED
            try:
                if self._request.is_code:
                    end = await self._run_code(bench, stop)
                else:
                    end = await self._ask(bench, stored, stop)
            finally:
                self._artifacts = await finishing.to_the_end(bench.collect(limits))
            return await self._mended(end, bench)

    async def record(self, end: ports.End) -> None:
        """Write down how it ended, what it made and what it cost."""
        status = records.TurnStatus(end.status.value)
        answer = end.text or ("" if end.status is ports.Status.DONE else end.sentence)
        database = self._means.database
        try:
            await self._recorder.flush()
            await database.artifacts.add(self._turn_id, *self._artifacts)
            spent = self._budget.spent if self._budget is not None else budgets.Spent()
            spending = allowances.spending(spent, self._bench.cpu_seconds if self._bench else 0.0)
            await database.usage.add(self._turn_id, spending, model=self._model)
            await database.turns.finish(self._turn_id, status, answer=answer)
        except errors.StoreError:
            _log.exception("the end of turn %d could not be recorded", self._turn_id)

    async def _run_code(self, bench: workbenches.Workbench, stop: asyncio.Event) -> ports.End:
        """Run the person's own code, without a model."""
        shown: list[values.Output] = []

        def show(output: values.Output) -> None:
            shown.append(output)
            self._stage.output(output)

        seconds = self._means.bot.turn.seconds
        finished = await stopping.ended_early(
            bench.run(self._request.text, show=show), stop=stop, seconds=seconds
        )
        is_early = isinstance(finished, stopping.Interruption)
        if isinstance(finished, stopping.Interruption):
            finished = values.Finished(values.Ending.STOPPED, 0.0, STOPPED.sentence)
        most = self._means.bot.turn.output_characters
        entries = memories.of_code(self._request.text, shown, finished, most)
        told = [messages.to_dict(one) for one in entries]
        self._recorder.memory({"messages": told, "is_whole": False})
        if is_early:
            return STOPPED
        return ports.End(status=ports.Status.DONE)

    async def _ask(
        self,
        bench: workbenches.Workbench,
        stored: list[values.FileInfo],
        stop: asyncio.Event,
    ) -> ports.End:
        """Let a model answer."""
        means = self._means
        title = self._request.model or self._session.model or ""
        model = means.catalogue.model(title)
        earlier = await memories.load(means.database, self._session.id, before=self._turn_id)
        transcript = transcripts.Transcript(earlier)
        count = len(transcript.entries)
        transcript.tell(await self._told(bench, stored))
        allowance = allowances.of(
            means.bot.allowance, self._request.person, self._request.key, means.database
        )
        self._model = model.title
        budget = self._budget = budgets.Budget(means.bot.turn, model, allowance=allowance)
        today = datetime.datetime.now(datetime.UTC).date()
        job = loops.Job(
            llm=means.catalogue.llm(title),
            model=model,
            limits=means.bot.turn,
            system=prompting.system(means.bot.limits, today=today, note=means.bot.agent.note),
            transcript=transcript,
            workbench=bench,
            watcher=self._stage,
            budget=budget,
        )
        try:
            outcome = await loops.run(job, stop=stop)
        finally:
            is_whole = transcript.entries[:count] != tuple(earlier[:count])
            self._recorder.memory(memories.detail(count, transcript, is_whole=is_whole))
        status = _STATUSES.get(outcome.ending, ports.Status.FAILED)
        return ports.End(status=status, text=outcome.text, sentence=outcome.sentence)

    async def _told(self, bench: workbenches.Workbench, stored: list[values.FileInfo]) -> str:
        """Put into words what the person wants, and what came along."""
        wanted = self._request
        if wanted.files:
            named = set(wanted.files)
            stored = [*stored, *(one for one in await bench.list_files() if one.name in named)]
        files = await attaching.described(stored, await bench.kernel()) if stored else ""
        context = f"[Said before in this place, as background:]\n{wanted.context}\n[End of that.]"
        parts = (context if wanted.context else "", files, wanted.text)
        return "\n\n".join(filter(None, parts))

    async def _mended(self, end: ports.End, bench: workbenches.Workbench) -> ports.End:
        """Mend the links of the answer, and say which files it only claims."""
        rewritten = links.rewritten(end.text, ())
        if not rewritten.missing:
            # It speaks of no file.
            return end
        names = [info.name for info in await bench.list_files()]
        rewritten = links.rewritten(end.text, names)
        if rewritten.missing:
            self._stage.notice(_MISSING.format(names=", ".join(rewritten.missing)))
        return dataclasses.replace(end, text=rewritten.text)
