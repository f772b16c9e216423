"""The real conversations, in which a script of the test replaces the model and the kernel.

    async def script(turn):
        turn.reply.step(1)
        turn.reply.text("Hello")
        return "Hello"

    async with conversations.opened(tmp_path, script) as service: …

Lanes, stops, recording, history, files, choices and ends are the real ones of `sessions`, with a
store and workspaces below `tmp_path`. A script acts as the agent does: it reports to a
`TurnStream`, in an order that is checked; it is cancelled when its turn is stopped; and it runs no
code that could not be recorded.
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
from interpreter_bot.store import databases, engines, records, transactions
from tests.fakes import pools

_empty_database = []
"""The bytes of an empty database, kept from the first one: copying is faster than making it."""


async def echo(turn):
    """Answer with the text of the request, in pieces, as a model would."""
    answer = f"echo: {turn.request.text}"
    turn.reply.step(1)
    for start in range(0, len(answer), 5):
        turn.reply.text(answer[start : start + 5])
    return answer


def finished_well(seconds=0.2, **fields):
    """An execution that ended well."""
    return values.Finished(values.Ending.OK, seconds, **fields)


class Events:
    """Methods by which a script reports events, with short names; the order is checked."""

    def __init__(self, stream):
        self._stream = stream
        self._is_running = False
        self._steps = 0
        self._questions = 0
        self.step_text = ""

    def emit(self, event):
        self._stream.emit(event)

    def step(self, number):
        assert (number, self._is_running) == (self._steps + 1, False)
        self._steps, self.step_text = number, ""
        self._stream.emit(events.StepStarted(number))

    def text(self, delta):
        self.step_text += delta
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

    def follow(self, execution):
        self._stream.follow_code(execution)
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
        # With choices, running code asks to call something outside; for some subjects the bot asks.
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
        reply: takes the script's events.
        service: the conversations.
        approval: the mode of approval in effect.
        directory: the workspace's directory.
        queries: queries that code sent to data connections, to be recorded.
    """

    request: object
    reply: Events
    service: object
    approval: str
    directory: object
    queries: tuple = ()

    @property
    def files(self):
        """Contents of the workspace's files, by path."""
        return read_files(self.directory)

    def done(self, text="", **more):
        """Return the end of a successful turn."""
        return events.TurnEnded(status=values.TurnStatus.DONE, text=text, **more)

    async def run(self, cell, code, *outputs, ending=values.Ending.OK, seconds=0.25, **fields):
        """Report the execution of code with these outputs; strings are printed text."""
        await self.reply.code(cell, code)
        for output in outputs:
            shown = values.Text("stdout", output) if isinstance(output, str) else output
            self.reply.output(cell, shown)
            await asyncio.sleep(0)
        self.reply.finished(cell, values.Finished(ending, seconds, **fields))

    async def follow(self):
        """Follow the code that a former bot began."""
        database = self.service.services.database
        [execution] = await database.executions.list_for_turn(self.request.resumed_turn_id)
        self.reply.follow(execution)

    def make(self, cell, name, data):
        """Report a file that code made, as the collector does."""
        digest = hashlib.sha256(data).hexdigest()
        self.reply.artifact(cell, values.Artifact(name, len(data), digest), data)


class _ScriptedWork(turns._Work):
    """A turn in which the script replaces model and kernel; the rest is real."""

    async def _run_request(self, environment, stop):
        services, request = self._services, self._request
        reply = Events(self.stream)
        directory = environment.workspace.directory
        turn = Turn(request, reply, services.service, environment.approval, directory)
        with services.service.track_turn(turn):
            end = await cancellation.run_until_stopped(
                self._play_script(turn, environment), stop=stop, seconds=self._seconds_left
            )
        self._recorder.record_queries(turn.queries)
        if isinstance(end, cancellation.EarlyEnd):
            return dataclasses.replace(self._early_end(end), text=reply.step_text)
        return end

    async def _play_script(self, turn, environment):
        limits, service = self._services.config.limits, self._services.service
        stored = await turn_inputs.store_request_attachments(
            turn.request, environment, self.stream, limits
        )
        for info in stored.infos:
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
        await super().release(key)
        self.kernels.pop(key, None)

    async def run_without_kernel(self, key, work):
        await self.release(key)
        await work(await self.workspace(key))

    def _start(self, key):
        super()._start(key)
        self.kernels[key] = self._live[key]


class Conversations(session_service.SessionService):
    """See the module.

    Attributes:
        script: the script of turns that begin from now on.
        requests: all requests, in order.
        ends: ends of requests, in order.
        turns: turns that have begun, in order.
        running: turns that have not ended.
        taken: attachments of requests, by name.
        claimed: events that were claimed first here, each with the fields of its claim.
        claim_seconds: a delay before each claim.
        calls: calls that concern sessions, such as ("reset", key, files).
        tables: tables that kernels would save, as CSV, by handle.
        chosen: choices, by scope.
        titles: titles that people gave, by session.
        models: models that people chose, by session.
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

        async def slow_claim(*event, **fields):
            await asyncio.sleep(self.claim_seconds)
            is_first = await claim(*event, **fields)
            if is_first:
                self.claimed.append((event, fields))
            return is_first

        self.events.claim = slow_claim
        choose = self.places.choose

        async def note_choice(scope, name, value, **fields):
            await choose(scope, name, value, **fields)
            self.chosen[scope].pop(name, None)
            if value is not None:
                self.chosen[scope][name] = value

        self.places.choose = note_choice
        self.calls = []
        self.tables = {}
        self.chosen = collections.defaultdict(dict)
        self.titles = {}
        self.models = {}

    @property
    def handled_requests(self):
        """Requests whose turns have begun."""
        return [turn.request for turn in self.turns]

    @contextlib.contextmanager
    def track_turn(self, turn):
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

    async def save_table(self, key, handle, person, suffix="csv"):
        name = f"table-{handle}.{suffix}"
        code = kernel_calls.save_table(handle, name)
        step = pools.Step(code)
        if (data := self.tables.get(handle)) is not None:
            step.outputs = (values.Json(json='"true"'),)
            step.action = lambda directory: (directory / name).write_bytes(data)
        self.services.hosts.pool.steps[:] = [step]
        return await super().save_table(key, handle, person, suffix)

    async def add_turn(self, key, text, *, answer="", person="U1", spent=None):
        """Store a turn that has ended."""
        database = self.services.database
        session = await database.sessions.open(key)
        turn = await database.turns.start(session.id, person=person, text=text)
        await database.turns.finish(turn.id, values.TurnStatus.DONE, answer=answer)
        await database.usage.add(turn.id, spent or values.Usage(), model="")

    async def die_before_beginning(self):
        """Make the store look as if the bot had died after it claimed the last message.

        The next bot then finds the message and begins its turn.
        """
        fields = await self._disown_last_event()
        assert fields["content"] == json.loads(json.dumps(fields["content"]))
        database = self.services.database
        request = next(request for request in self.requests if request.id == fields["request_id"])
        session = await database.sessions.find(request.key)
        (turn,) = await database.turns.list_for_session(session.id, limit=1)
        await database.turns.delete(turn.id)
        lost_turn = await database.turns.start(
            session.id, person=request.person.id, text=request.text, request_id=request.id
        )
        await self._disown_turn(records.Turn.id == lost_turn.id)
        assert await database.turns.take_orphans() == ()
        assert await self.events.handle_lost_events() == ()

    async def die_before_showing(self):
        """Make the store look as if the bot had died before the last answer was posted in full.

        The next bot then shows the rest of the answer; return once it has.
        """
        fields = await self._disown_last_event()
        await self._disown_turn(records.Turn.request_id == fields["request_id"])
        unshown = await self.services.database.turns.list_unshown()
        assert [turn.request_id for turn in unshown] == [fields["request_id"]]
        await maintenance.Maintenance(self.services, self).take_over((), unshown)
        await self.resumptions.close()

    async def _disown_last_event(self):
        """Let a dead bot have the last event, once that is settled; return its claim's fields."""
        (platform, event_id), fields = next(
            claim for claim in reversed(self.claimed) if "key" in claim[1]
        )
        statements = transactions.Transactions(self.services.database.engine)
        events = records.ClaimedEvent
        conditions = events.event_id == event_id, events.platform == platform
        async with asyncio.timeout(60):
            while True:
                select = sqlalchemy.select(events).where(*conditions)
                (event,) = await statements.all(select)
                if event.address == "":
                    break
                await asyncio.sleep(0.01)
        assert event.content is None
        columns = {"owner": "0" * 32, "address": values.format_key(fields["key"])}
        update = sqlalchemy.update(events).where(*conditions)
        await statements.change(update.values(content=fields.get("content"), **columns))
        return fields

    async def _disown_turn(self, condition):
        statements = transactions.Transactions(self.services.database.engine)
        update = sqlalchemy.update(records.Turn).where(condition)
        await statements.change(update.values(owner="0" * 32))

    async def go_on(self, key, text, *, person, request_id, is_job=False):
        """Go on with a turn of a bot that is gone, or with a job; its code had printed a line."""
        progress = suspended_turns.Progress(is_code=True, is_job=is_job)
        turn = await self._start_lost_turn(key, text, person, request_id, progress.document())
        self.resumptions.add(progress.request(turn, key))

    async def interrupt(self, key, text, *, person, request_id, question=None):
        """Take over a turn of a bot that is gone, with which no bot can go on."""
        turn = await self._start_lost_turn(key, text, person, request_id, None)
        if question is not None:
            document = questions.to_document(question)
            await self.services.database.questions.put(turn.id, question.id, document)
        await maintenance.Maintenance(self.services, self).take_over((turn,))

    async def _start_lost_turn(self, key, text, person, request_id, progress):
        database = self.services.database
        session = await database.sessions.open(key)
        turn = await database.turns.start(
            session.id, person=person, text=text, request_id=request_id
        )
        execution = await database.executions.start(turn.id, text, progress=progress)
        output = {"output": values.Text("stdout", "before\n"), "execution_id": execution}
        await database.parts.add(
            turn.id,
            records.NewPart(kind=records.PartKind.CODE, text=text, execution_id=execution),
            records.NewPart(kind=records.PartKind.OUTPUT, **output),
        )
        return turn

    async def spend(self, key, person, spent):
        """Count usage in a turn that has ended."""
        await self.add_turn(key, "", person=person, spent=spent)

    async def note_files(self, key, sentence):
        """Store a sentence about the files of a session, which is created if needed."""
        session = await self.services.database.sessions.open(key)
        await self.services.database.sessions.note_files(session.id, {"warned": sentence})

    async def wait_until_idle(self):
        """Wait until no turn runs, which is a little after people see its end."""
        await self._lanes.wait_idle()

    async def wait_until_recorded(self, key):
        """Wait until an event of the running turn is in the store."""
        for _ in range(1000):
            if len((await self.queries.history(key))[-1].events) > 1:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("nothing was recorded")

    def directory(self, key):
        """Return the directory of a session's workspace, for tests to look into."""
        name = workspaces.Workspaces.name_of(values.format_key(key))
        path = self.services.hosts.pool.directory / name / "data"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def contents(self, key):
        """Return the contents of a session's files, by path."""
        return read_files(self.directory(key))


def read_files(directory):
    """Return the contents of all files below a directory, by path."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


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
    """Open conversations; a second time in the same directory acts as a restart of the bot.

    Args:
        directory: a directory for the store and the files.
        script: the function that turns run.
        models: titles of the models.
        notice: a sentence about models, for people.
        sandbox_level: the level of the kernels' sandbox.
        tools: the broker of MCP servers' tools.
        doorkeeper: decides what code may reach outside.
        groups: groups of the settings.
    """
    data = directory / "data"
    config = settings.Settings(
        paths=settings.Paths(data=data),
        models=tuple(settings.Model(name=name, base_url="http://127.0.0.1:9") for name in models),
        **{"sessions": settings.Sessions(model_titles=False), **groups},
    )
    catalogue = catalogues.Catalogue(config.models, keys={}, patience=config.patience)
    url = await prepare_database(data)
    async with databases.Database.open(url, blobs_directory=data / "kept") as database:
        pool = _Pool(directory / "workspaces", config.limits, sandbox_level)
        service = Conversations(
            script,
            notice,
            config=config,
            hosts=local_host.LocalHost(pool, doorkeeper=doorkeeper),
            database=database,
            questions=questions.Questions(database.questions),
            jobs=jobs.Jobs(config),
            catalogue=catalogue,
            tools=tools,
            skills=accepted_skills.AcceptedSkills(config.skills.directories, data),
        )
        service.closing_seconds = 0.5
        with mock.patch.object(turns, "_Work", _ScriptedWork):
            try:
                yield service
            finally:
                await service.drain()
                await service.resumptions.close()


async def prepare_database(data):
    """Make a database with all tables in a bot's directory, unless it has one; returns its URL."""
    data.mkdir(parents=True, exist_ok=True)
    url = engines.default_url(data)
    file = engines.database_file(engines.parse(url))
    if not _empty_database:
        await asyncio.to_thread(databases.upgrade, engines.parse(url))
        _empty_database.append(file.read_bytes())
    elif not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(_empty_database[0])
    return url
