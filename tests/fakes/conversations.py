"""The real conversations, but what a model and a kernel would do in a turn is a script of the test.

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Hello")
        return "Hello"

    async with conversations.opened(tmp_path, script) as service: …

Lanes, stops, recording, history, files, choices and ends are those of `sessions`, on a store and
workspaces below `tmp_path`. What a script does is what the agent does: it reports to a
`TurnStream`, in an order that is checked; is cancelled when its turn is stopped; and runs
nothing that could not be recorded.
"""

import asyncio
import collections
import contextlib
import dataclasses
import hashlib
import json
import secrets
from unittest import mock

import sqlalchemy

from interpreter_bot import cancellation, events, kernel_calls, settings, values
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.hosts import local_host
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.sessions import (
    jobs,
    maintenance,
    questions,
    session_dependencies,
    session_service,
    suspended_turns,
    turn_inputs,
    turns,
)
from interpreter_bot.skills import accepted_skills
from interpreter_bot.store import databases, engines, records
from tests.fakes import pools

_blank = []
"""The content of an empty database, once there was one: to make it takes longer than to copy it."""


async def echo(turn):
    """Answer in words, as a model would."""
    said = f"echo: {turn.request.text}"
    turn.reply.step(1)
    for start in range(0, len(said), 5):
        turn.reply.text(said[start : start + 5])
    return said


def done(seconds=0.2, **more):
    """An execution that ended well."""
    return values.Finished(values.Ending.OK, seconds, **more)


class Events:
    """What a script reports, by short names; the order is checked."""

    def __init__(self, stream):
        self._stream = stream
        self._is_running = False
        self._steps = 0
        self._questions = 0
        self.said = ""

    def emit(self, event):
        self._stream.emit(event)

    def step(self, number):
        assert (number, self._is_running) == (self._steps + 1, False)
        self._steps, self.said = number, ""
        self._stream.emit(events.StepStarted(number))

    def text(self, delta):
        self.said += delta
        self._stream.emit(events.TextAdded(delta))

    def writing(self, delta):
        self._stream.emit(events.CodeDrafted(delta))

    def progress(self, text, share):
        self._stream.emit(events.ProgressChanged(text, share))

    def usage(self, spent):
        self._stream.emit(events.UsageChanged(spent))

    def announcement(self, cell, text):
        self._stream.emit(events.NoticeShown(text, cell))

    async def code(self, cell, code):
        assert (cell, self._is_running) == (self._stream.cell + 1, False)
        await self._stream.start_code(code)
        self._is_running = True

    def output(self, cell, output):
        self._check(cell)
        self._stream.emit(events.OutputShown(cell, output))

    async def ask(self, cell, request):
        self._check(cell)
        self._questions += 1
        return await self._stream.ask(dataclasses.replace(request, number=self._questions))

    async def ask_for_model(self, question, *choices):
        assert not self._is_running
        return await self._stream.ask_for_model(question, choices)

    async def approve(self, cell, code, *, subject="code", choices=(), is_personal=False):
        # Running code asks for what it calls outside, with choices, or the bot for it.
        by_bot = subject in ("packages", "import", "request")
        assert cell == self._stream.cell + (not by_bot)
        assert self._is_running == bool(choices or by_bot)
        self._questions += self._is_running
        number = self._questions if self._is_running else 0
        subject = "tool" if self._is_running and not by_bot else subject
        answer = await self._stream.ask_approval(
            subject, code, number=number, choices=choices, is_personal=is_personal
        )
        match answer:
            case events.Declined():
                return None
            case events.Approved(scope=scope, edited=edited):
                return scope or (code if edited is None else edited)

    def finished(self, cell, finished):
        self._check(cell)
        self._is_running = False
        self._stream.emit(events.CodeFinished(cell, finished))

    def artifact(self, cell, artifact, data=b""):
        assert not self._is_running
        copy = None
        if (spool := self._stream.reply.spool) is not None:
            copy = spool / f".{secrets.token_hex(8)}.part"
            copy.write_bytes(data)
        self._stream.emit(events.FileMade(cell, artifact, copy))

    def _check(self, cell):
        assert (cell, self._is_running) == (self._stream.cell, True), "it is of code that runs"


@dataclasses.dataclass(eq=False)
class Turn:
    """One turn, for its script.

    Attributes:
        reply: takes what happens.
        service: the conversations.
        approval: in effect.
        directory: of the workspace.
        queries: that code sent to data connections.
    """

    request: object
    reply: Events
    service: object
    approval: str
    directory: object
    queries: tuple = ()

    @property
    def files(self):
        """Names and contents of the files that are there."""
        return contents(self.directory)

    def done(self, text="", **more):
        """End well."""
        return events.TurnEnded(status=values.TurnStatus.DONE, text=text, **more)

    async def run(self, cell, code, *outputs, ending=values.Ending.OK, seconds=0.25, **more):
        """Run code that shows outputs; strings are printed."""
        await self.reply.code(cell, code)
        for output in outputs:
            shown = values.Text("stdout", output) if isinstance(output, str) else output
            self.reply.output(cell, shown)
            await asyncio.sleep(0)
        self.reply.finished(cell, values.Finished(ending, seconds, **more))

    def make(self, cell, name, data):
        """Give a file back, as the collector does."""
        digest = hashlib.sha256(data).hexdigest()
        self.reply.artifact(cell, values.Artifact(name, len(data), digest), data)


class _ScriptedWork(turns._Work):
    """A turn in which the script does what models and kernels do; all around it is real."""

    async def _run_request(self, environment, stop):
        services, request = self._services, self._request
        reply = Events(self.stream)
        directory = environment.workspace.directory
        turn = Turn(request, reply, services.service, environment.approval, directory)
        with services.service.noting(turn):
            end = await cancellation.run_until_stopped(
                self._played(turn, environment), stop=stop, seconds=self._seconds_left
            )
        self._recorder.record_queries(turn.queries)
        if isinstance(end, cancellation.EarlyEnd):
            return dataclasses.replace(self._early_end(end), text=reply.said)
        return end

    async def _played(self, turn, environment):
        limits, service = self._services.config.limits, self._services.service
        came = await turn_inputs.store_request_attachments(
            turn.request, environment, self.stream, limits
        )
        for info in came.infos:
            service.taken[info.name] = (turn.directory / info.name).read_bytes()
        end = await service.script(turn)
        if isinstance(end, events.TurnEnded):
            return end
        return turn.done(end or "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Services(session_dependencies.SessionDependencies):
    service: object = None


class _Pool(pools.Pool):
    """Workspaces, and kernels that can save tables."""

    def __init__(self, directory, limits, sandbox_level):
        super().__init__(directory, limits=limits, sandbox_level=sandbox_level)
        self.kernels = {}
        self.directory = directory

    async def release(self, key):
        self._live.pop(key, None)
        self.kernels.pop(key, None)

    async def forget(self, key):
        await self.release(key)
        await (await self.workspace(key)).remove()

    async def run_without_kernel(self, key, work):
        await self.release(key)
        await work(await self.workspace(key))

    def _start(self, key):
        super()._start(key)
        self.kernels[key] = self._live[key]


class Conversations(session_service.SessionService):
    """See the module.

    Attributes:
        script: of the turns that begin from now on.
        requests: as they came.
        ends: of requests, in the order in which they ended.
        turns: as they began.
        running: those that have not ended.
        taken: what came along with requests, by name.
        claimed: events that were claimed, and what was said of them.
        claim_seconds: what the database takes longer for a claim.
        calls: what was wanted of sessions: ("reset", key, files) and the like.
        tables: by handle, what kernels would save, as CSV.
        chosen: by scope.
        titles: as they were given, by session.
        models: as they were chosen, by session.
    """

    def __init__(self, script, model_notice, **services):
        super().__init__(_Services(service=self, **services), model_notice=model_notice)
        self.script = script
        self.requests = []
        self.ends = []
        self.turns = []
        self.running = []
        self.taken = {}
        self.claim_seconds = 0.0
        self.claimed = []
        claim = self.events.claim

        async def slow_claim(*event, **about):
            await asyncio.sleep(self.claim_seconds)
            self.claimed.append((event, about))
            return await claim(*event, **about)

        self.events.claim = slow_claim
        self.calls = []
        self.tables = {}
        self.chosen = collections.defaultdict(dict)
        self.titles = {}
        self.models = {}

    @property
    def handled(self):
        """Requests that had their turn."""
        return [turn.request for turn in self.turns]

    @contextlib.contextmanager
    def noting(self, turn):
        self.turns.append(turn)
        self.running.append(turn)
        try:
            yield
        finally:
            self.running.remove(turn)

    async def handle(self, request, reply):
        assert request.key.platform
        assert request.person.id
        self.requests.append(request)
        end = await super().handle(request, reply)
        self.ends.append(end)
        return end

    async def stop(self, key):
        self.calls.append(("stop", key))
        return await super().stop(key)

    async def reset(self, key, *, files=False):
        self.calls.append(("reset", key, files))
        await super().reset(key, files=files)

    async def delete(self, key):
        self.calls.append(("delete", key))
        await super().delete(key)

    async def rename(self, key, title):
        self.titles[key] = title
        await super().rename(key, title)

    async def choose_model(self, key, title):
        await super().choose_model(key, title)
        self.models[key] = title

    async def choose(self, scope, name, value, **by):
        await super().choose(scope, name, value, **by)
        self.chosen[scope].pop(name, None)
        if value is not None:
            self.chosen[scope][name] = value

    async def save_table(self, key, handle, person, suffix="csv"):
        name = f"table-{handle}.{suffix}"
        code = kernel_calls.save_table(handle, name)
        step = pools.Step(code)
        if (data := self.tables.get(handle)) is not None:
            step.outputs = (values.Json(json='"true"'),)
            step.does = lambda directory: (directory / name).write_bytes(data)
        self.services.hosts.pool.steps[:] = [step]
        return await super().save_table(key, handle, person, suffix)

    async def add_turn(self, key, text, *, answer="", person="U1", spent=None):
        """Remember a turn that is over."""
        database = self.services.database
        session = await database.sessions.open(key)
        turn = await database.turns.start(session.id, person=person, text=text)
        await database.turns.finish(turn.id, values.TurnStatus.DONE, answer=answer)
        await database.usage.add(turn.id, spent or values.Usage(), model="")

    async def die_before_beginning(self):
        """Let it be as if the bot that claimed the last message had died before it began with it;
        the next one finds that."""
        (platform, event_id), about = next(one for one in reversed(self.claimed) if "key" in one[1])
        assert about["content"] == json.loads(json.dumps(about["content"]))
        database = self.services.database
        events = records.ClaimedEvent
        where = events.event_id == event_id, events.platform == platform
        async with asyncio.timeout(60):
            while True:
                select = sqlalchemy.select(events).where(*where)
                (event,) = await database.events._transactions.all(select)
                if event.address == "":
                    break
                await asyncio.sleep(0.01)
        assert event.content is None
        left = {"owner": "0" * 32, "address": values.format_key(about["key"])}
        update = sqlalchemy.update(events).where(*where)
        await database.events._transactions.change(update.values(content=about["content"], **left))
        request = next(one for one in self.requests if one.id == about["request_id"])
        session = await database.sessions.find(request.key)
        (turn,) = await database.turns.list_for_session(session.id, limit=1)
        await database.turns.delete(turn.id)
        begun = await database.turns.start(
            session.id, person=request.person.id, text=request.text, request_id=request.id
        )
        burying = sqlalchemy.update(records.Turn).where(records.Turn.id == begun.id)
        await database.events._transactions.change(burying.values(owner="0" * 32))
        assert await database.turns.take_orphans() == ()
        assert await self.events.find_lost() == ()

    async def go_on(self, key, text, *, person, request_id, is_job=False):
        """Go on with a turn that a bot began which is gone, or with a job; its code had printed a
        line."""
        progress = suspended_turns.Progress(is_code=True, is_job=is_job)
        turn = await self._begun(key, text, person, request_id, progress.document())
        self.resumptions.add(progress.request(turn, key))

    async def interrupt(self, key, text, *, person, request_id):
        """Find such a turn with which no bot can go on."""
        turn = await self._begun(key, text, person, request_id, None)
        await maintenance.Maintenance(self.services, self).take_over((turn,))

    async def _begun(self, key, text, person, request_id, progress):
        database = self.services.database
        session = await database.sessions.open(key)
        turn = await database.turns.start(
            session.id, person=person, text=text, request_id=request_id
        )
        execution = await database.executions.start(turn.id, text, progress=progress)
        shown = {"output": values.Text("stdout", "before\n"), "execution_id": execution}
        await database.parts.add(
            turn.id,
            records.NewPart(kind=records.PartKind.CODE, text=text, execution_id=execution),
            records.NewPart(kind=records.PartKind.OUTPUT, **shown),
        )
        return turn

    async def spend(self, key, person, spent):
        """Count what was used in a turn."""
        await self.add_turn(key, "", person=person, spent=spent)

    async def note_files(self, key, sentence):
        """Remember a sentence about the files of a session, which may not have begun."""
        session = await self.services.database.sessions.open(key)
        await self.services.database.sessions.note_files(session.id, {"warned": sentence})

    async def idle(self):
        """Wait until no turn runs: what people see as its end comes a little earlier."""
        await self._lanes.wait_idle()

    async def recorded(self, key):
        """Wait until something of the turn that runs is in the store."""
        for _ in range(1000):
            if len((await self.queries.history(key))[-1].events) > 1:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("nothing was recorded")

    def directory(self, key):
        """The workspace of a session, for tests to look into."""
        name = workspaces.Workspaces.name_of(values.format_key(key))
        path = self.services.hosts.pool.directory / name / "data"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def contents(self, key):
        """The files of a session."""
        return contents(self.directory(key))


def contents(directory):
    """All files below a directory."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@contextlib.asynccontextmanager
async def opened(
    directory,
    script=echo,
    *,
    models=("good", "cheap"),
    notice="",
    sandbox_level="full",
    tools=None,
    doorkeeper=None,
    **groups,
):
    """Open conversations; again in the same directory, they are those of a bot that was restarted.

    Args:
        directory: for the store and the files.
        script: what turns do.
        models: titles of those there are.
        notice: about models, for people.
        sandbox_level: what walls code has.
        tools: of MCP servers.
        doorkeeper: of what code reaches outside.
        groups: of the settings.
    """
    data = directory / "data"
    config = settings.Settings(
        paths=settings.Paths(data=data),
        models=tuple(settings.Model(name=name, base_url="http://127.0.0.1:9") for name in models),
        **{"sessions": settings.Sessions(closing_seconds=0.5, model_titles=False), **groups},
    )
    catalogue = catalogues.Catalogue(config.models, keys={}, patience=config.patience)
    url = await prepare_database(data)
    async with databases.Database.open(url, files=data / "kept") as database:
        pool = _Pool(directory / "workspaces", config.limits, sandbox_level)
        service = Conversations(
            script,
            notice,
            config=config,
            hosts=local_host.LocalHost(pool, doorkeeper=doorkeeper),
            database=database,
            questions=questions.Questions(database.questions),
            jobs=jobs.Jobs(config.jobs),
            catalogue=catalogue,
            tools=tools,
            skills=accepted_skills.AcceptedSkills(config.skills.directories, data),
        )
        with mock.patch.object(turns, "_Work", _ScriptedWork):
            try:
                yield service
            finally:
                await service.drain()


async def prepare_database(data):
    """Give a bot's directory a database that has its tables; return the address."""
    data.mkdir(parents=True, exist_ok=True)
    url = engines.default_url(data)
    file = engines.file(engines.parse(url))
    if not _blank:
        await asyncio.to_thread(databases.upgrade, engines.parse(url))
        _blank.append(file.read_bytes())
    elif not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(_blank[0])
    return url
