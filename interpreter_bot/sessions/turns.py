"""A turn: one request taken to its end, whatever that is, and remembered.

start taking a kernel -> attachments into the workspace, described -> the agent's loop, or the
person's own code -> what changed in the workspace -> links mended -> recorded

It is long because all ways in which a turn can end meet here.
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

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import (
    budgets,
    claims,
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
    approvals,
    arrears,
    finishing,
    memories,
    ports,
    preparing,
    recording,
    requests,
    stages,
    stops,
    variables,
    workbenches,
)
from interpreter_bot.store import databases, records

_log = logging.getLogger(__name__)

_FAULT: Final = "Something went wrong inside the bot. What was made until then is kept."
_BEHIND: Final = (
    "The database cannot be used right now. What is said here may be missing from the history "
    "later, and the model may not remember it."
)
_STATUSES: Final = {
    endings.Ending.ANSWERED: ports.Status.DONE,
    endings.Ending.STOPPED: ports.Status.STOPPED,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What turns are taken with: made once, by `app`.

    Attributes:
        id: which process of the bot this is.
        ledger: what running turns use.
        arrears: what could not be recorded yet.
    """

    bot: settings.Settings
    pool: pools.Pool
    database: databases.Database
    catalogue: catalogues.Catalogue
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    ledger: allowances.Ledger = dataclasses.field(default_factory=allowances.Ledger)
    arrears: arrears.Arrears = dataclasses.field(default_factory=arrears.Arrears)


async def take(
    means: Means, request: requests.Request, reply: ports.Reply, *, stop: stops.Stop
) -> ports.End:
    """Take a request to its end.

    Args:
        means: what it takes.
        request: what is wanted.
        reply: who is shown everything. The end is shown before it is written down.
        stop: set when the turn is to end now.
    """
    started = time.monotonic()
    recorder = recording.Recorder(means.database)
    work = _Work(means, request, stages.Stage(reply, recorder), recorder)
    try:
        end = await _kept_from_falling(work.run(stop))
        if end.status is ports.Status.STOPPED:
            end = stop.end(end.text, last=work.stage.last)
    except BaseException:
        # Not before: it is known only now whether the bot itself ends.
        end = stop.end()
        raise
    finally:
        seconds = time.monotonic() - started
        end = dataclasses.replace(end, seconds=seconds, turn_id=recorder.turn_id)
        try:
            if recorder.is_behind:
                reply.announcement(max(work.stage.cell, 0), _BEHIND)
            reply.over(end)
        finally:
            writing = _written_down(means, recorder, end)
            await finishing.to_the_end(_kept_from_falling(writing))
    return end


async def _kept_from_falling(work: Awaitable[ports.End]) -> ports.End:
    """Do work; this is the one net for whatever nobody foresaw."""
    try:
        return await work
    except errors.BotError as error:
        _log.info("a turn failed", exc_info=error)
        return ports.End(status=ports.Status.FAILED, sentence=str(error))
    except Exception:
        _log.exception("a turn fell")
        return ports.End(status=ports.Status.FAILED, sentence=_FAULT)


async def _written_down(means: Means, recorder: recording.Recorder, end: ports.End) -> ports.End:
    """Write down how a turn ended; what cannot be written now is left to the arrears."""
    await recorder.close()
    if recorder.turn_id:
        status = records.TurnStatus(end.status.value)
        answer = end.sentence if end.status is ports.Status.FAILED else end.text
        write = functools.partial(recorder.end, status, answer=answer)
        if not await write():
            means.arrears.add(write)
        means.ledger.close(recorder.turn_id)
    return end


class _Work:
    """What is done in one turn.

    Attributes:
        stage: where all of it can be seen.
    """

    def __init__(
        self,
        means: Means,
        request: requests.Request,
        stage: stages.Stage,
        recorder: recording.Recorder,
    ) -> None:
        self._means = means
        self._request = request
        self.stage = stage
        self._recorder = recorder
        self._unfounded = claims.NOTHING
        self._loss: variables.Loss | None = None
        self._until = time.monotonic() + means.bot.turn.seconds

    async def run(self, stop: stops.Stop) -> ports.End:
        """Do it.

        Raises:
            BotError: it could not be done; the sentence says why.
        """
        means = self._means
        self.stage.begun()
        # Seen to its end, or else a turn were left behind that runs in the store and nowhere else.
        session = await finishing.to_the_end(self._recorder.begin(self._request))
        await means.arrears.write()
        key = addresses.text(self._request.key)
        held = variables.Variables(session.kernel, means.id, self._recorder.kernel)
        former = means.pool.live.get(key)
        self._loss = held.lost(former.kernel if former is not None else None)
        if self._loss is not None:
            self.stage.notice(self._loss.sentence)
        async with means.pool.lease(key) as lease:
            bench = workbenches.Workbench(
                lease,
                await means.pool.workspace(key),
                self.stage,
                held=held,
                approval=await self._approval(),
                is_sandboxed=means.pool.is_sandboxed,
            )
            try:
                end = await self._done(bench, stop)
            finally:
                await finishing.to_the_end(bench.collect(means.bot.limits))
            return await self._mended(end, bench)

    async def _approval(self) -> requests.Approval:
        request = self._request
        if request.is_code:
            # Who wrote it wants it run.
            return "never"
        where = (request.key.platform, request.key.workspace, request.key.channel)
        scope = values.Scope(*where, request.person.id)
        wanted = self._means.bot.sessions.approval
        return await approvals.holding(scope, self._means.database, wanted, request.approval)

    async def _done(self, bench: workbenches.Workbench, stop: stops.Stop) -> ports.End:
        question = await stopping.ended_early(
            self._prepared(bench), stop=stop, seconds=self._seconds_left
        )
        if isinstance(question, stopping.Interruption):
            return self._interrupted(question)
        if question is None:
            return await self._run_code(bench, stop)
        return await self._ask(bench, question, stop)

    async def _prepared(self, bench: workbenches.Workbench) -> preparing.Question | None:
        """Take what came along; then there is a question, or None: code that is to be run."""
        means, request = self._means, self._request
        stored = await preparing.stored(request, bench, self.stage, means.bot.limits)
        if request.is_code:
            return None
        title = await preparing.title(request, means.database, means.catalogue.titles)
        model = means.catalogue.model(title)
        infos = await preparing.files(request, stored, bench)
        return preparing.Question(
            model=model,
            earlier=await memories.load(means.database, before=self._recorder.turn_id),
            told=await preparing.told(request, stored, infos, bench),
            seen=await bench.look(infos, means.bot.turn.pictures) if model.can_see else (),
        )

    async def _run_code(self, bench: workbenches.Workbench, stop: stops.Stop) -> ports.End:
        """Run the person's own code, without a model."""
        shown: list[values.Output] = []

        def show(output: values.Output) -> None:
            shown.append(output)
            self.stage.output(output)

        finished = await stopping.ended_early(
            bench.run(self._request.text, show=show), stop=stop, seconds=self._seconds_left
        )
        end = ports.End(status=ports.Status.DONE)
        if isinstance(finished, stopping.Interruption):
            end = self._interrupted(finished)
            finished = self.stage.last or values.Finished(values.Ending.STOPPED, 0.0, end.sentence)
        most = self._means.bot.turn.output_characters
        earlier = [] if self._loss is None else [messages.Told(self._loss.remark, is_ours=True)]
        entries = earlier + memories.of_code(self._request.text, shown, finished, most)
        told = [messages.to_dict(one) for one in entries]
        self._recorder.memory({"messages": told, "is_whole": False})
        return end

    async def _ask(
        self, bench: workbenches.Workbench, question: preparing.Question, stop: stops.Stop
    ) -> ports.End:
        """Let a model answer."""
        means, model = self._means, question.model
        transcript = transcripts.Transcript(question.earlier)
        count = len(transcript.entries)
        # In the same message: it must not go when what was said before becomes too long.
        lost = [self._loss.remark] if self._loss is not None else []
        transcript.tell("\n\n".join([*lost, question.told]), question.seen)
        self._recorder.model = model.title
        limits = await allowances.holding(
            means.bot.allowance_on(self._request.key.platform),
            self._request.key,
            self._request.person,
            means.database,
        )
        tab = means.ledger.open(self._recorder.turn_id, self._request, limits=limits)
        allowance = tab.allowance(means.database)
        tab.budget = budgets.Budget(means.bot.turn, model, allowance=allowance)
        today = datetime.datetime.now(datetime.UTC).date()
        job = loops.Job(
            llm=means.catalogue.llm(model.title),
            model=model,
            limits=means.bot.turn,
            system=prompting.system(
                means.bot.limits,
                today=today,
                packages=means.pool.packages,
                note=means.bot.agent.note,
                is_planned=bench.approval == "plan",
                is_small=model.is_small,
            ),
            transcript=transcript,
            workbench=bench,
            watcher=self.stage,
            budget=tab.budget,
            cache_key=addresses.cache_key(self._request.key),
            approve=bench.approved,
        )
        try:
            outcome = await loops.run(job, stop=stop)
        finally:
            is_whole = transcript.entries[:count] != tuple(question.earlier[:count])
            self._recorder.memory(
                memories.detail(count, transcript, is_whole=is_whole),
                memories.shown(count, transcript, is_whole=is_whole),
            )
        self._unfounded = outcome.unfounded
        status = _STATUSES.get(outcome.ending, ports.Status.FAILED)
        return ports.End(status=status, text=outcome.text, sentence=outcome.sentence)

    async def _mended(self, end: ports.End, bench: workbenches.Workbench) -> ports.End:
        """Mend the links of the answer, and say which files it only claims."""
        rewritten = links.rewritten(end.text, ())
        files: tuple[str, ...] = ()
        if rewritten.missing:
            try:
                names = [info.name for info in await bench.list_files()]
                files = links.rewritten(end.text, names).missing
            except errors.WorkspaceError as error:
                # Nobody knows which of them exist; the answer is worth more than that.
                _log.info("the links of an answer could not be looked into", exc_info=error)
        claimed = self._unfounded
        files = tuple(dict.fromkeys([*files, *claimed.files]))
        for sentence in dataclasses.replace(claimed, files=files).sentences:
            self.stage.notice(sentence)
        return dataclasses.replace(end, text=rewritten.text)

    @property
    def _seconds_left(self) -> float:
        return self._until - time.monotonic()

    def _interrupted(self, interruption: stopping.Interruption) -> ports.End:
        if interruption is stopping.Interruption.STOPPED:
            return ports.End(status=ports.Status.STOPPED)
        sentence = budgets.time_is_up(self._means.bot.turn.seconds)
        return ports.End(status=ports.Status.FAILED, sentence=sentence)
