"""Kill -9 of bot, host, fork server and kernel at any moment of a conversation.

One of them is killed in each turn. Afterwards nothing may have run twice or be recorded twice, and
only the loss of a kernel may lose anything, with a notice that says so. The checks read the
database, the workspace, the page and the requests to the model.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import sqlalchemy
from sqlalchemy.ext import asyncio as sa_asyncio

from bench import bot_processes, metrics, page_visitors, sample_sizes, scripted_model
from interpreter_bot import settings
from interpreter_bot.store import engines
from tests.fakes import openai_server
from tests.integration.store import servers

_VICTIMS = ("bot", "host", "fork server", "kernel")
_LOSSLESS_VICTIMS = ("bot", "fork server")
_KILLS_PER_CONVERSATION = 20
_MAX_DELAY_SECONDS = 1.6
_MAX_WAIT_SECONDS = 60.0
_TICKS = 8
_RECORD_RUN_CODE = "with open('ran.txt', 'a') as file: file.write('{number}.{part}\\n')\n"
_PRINTING_CODE = (
    "import time\n"
    + _RECORD_RUN_CODE
    + """count = globals().get('count', 0) + 1
print('count', count, flush=True)
for tick in range({ticks}):
    print('{number} tick', tick, flush=True)
    time.sleep(0.05)
with open('made-{number}.txt', 'w') as file: file.write('{number}')
"""
)
_ASKING_CODE = _RECORD_RUN_CODE + "print('Hello', input('Who of {number}?'), flush=True)\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """When a process is killed, and which one.

    Attributes:
        number: the turn's number, which decides what the turn does.
        victim: the process to kill.
        sign: the event to wait for: "" for the question, "model" for a request to the model, else
            the kind of an event on the page.
        seconds: delay after that event.
    """

    number: int
    victim: str
    sign: str = ""
    seconds: float = 0.0


def choose_moments(seed: int, count: int) -> list[Moment]:
    """Choose moments at random."""
    rng = random.Random(seed)
    victims = [_VICTIMS[number % len(_VICTIMS)] for number in range(count)]
    rng.shuffle(victims)
    return [
        Moment(number, victim, seconds=rng.uniform(0, _MAX_DELAY_SECONDS))
        for number, victim in enumerate(victims)
    ]


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Kill processes in several conversations; report all faults."""
    faults: list[str] = []
    kill_counts: collections.Counter[str] = collections.Counter()
    with servers.Server.run() as server:
        for seed in range(-(-effort.kills // _KILLS_PER_CONVERSATION)):
            # Every other conversation uses PostgreSQL instead of SQLite.
            database = server.database() if seed % 2 else contextlib.nullcontext("")
            with database as url:
                async with Conversation.open(url) as conversation:
                    for moment in choose_moments(seed, _KILLS_PER_CONVERSATION):
                        turn_faults = await conversation.take_turn(moment)
                        faults += [f"{seed}: {moment}: {fault}" for fault in turn_faults]
                    kill_counts += conversation.kill_counts
    return [
        metrics.Measure(
            f"{kill_counts.total()} kills: lost unsaid, or done or recorded twice",
            "",
            [len(faults)],
            bar=0.0,
            notes={"killed": dict(kill_counts), "wrong": faults},
        )
    ]


class Conversation:
    """A conversation on the page, with a scripted model. Use `open`.

    Attributes:
        kill_counts: how often each process was killed.
    """

    def __init__(self, bot: bot_processes.BotProcess, database: str) -> None:
        self.kill_counts: collections.Counter[str] = collections.Counter()
        self._bot = bot
        url = engines.parse(database or engines.default_url(bot.paths.data))
        self._database = sa_asyncio.create_async_engine(url)
        self._signs: dict[str, asyncio.Event] = collections.defaultdict(asyncio.Event)
        self._visitor = page_visitors.Visitor("conversation-of-kills", _answer_prompt)
        self._visitor.on_event = lambda event: self._signs[event["type"]].set()
        self._model_requests: list[list[dict[str, Any]]] = []
        # None after an unfinished turn, whose variables may be there or not.
        self._expected_count: int | None = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, database: str = "") -> AsyncIterator[Conversation]:
        """Open a conversation in a database, by default SQLite; remove its files afterwards."""
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
            async with contextlib.AsyncExitStack() as stack:
                conversations: list[Conversation] = []
                server = openai_server.Server(lambda request: conversations[0]._reply(request))
                await stack.enter_async_context(server)
                model = settings.Model(name="scripted", base_url=server.base_url, protocol="chat")
                bot = bot_processes.BotProcess(pathlib.Path(name), model, server.api_key)
                if database:
                    bot.environment["INTERPRETER_BOT_STORE__URL"] = database
                conversation = cls(bot, database)
                stack.push_async_callback(conversation._database.dispose)
                conversations.append(conversation)
                await stack.enter_async_context(bot.running(conversation._set_address))
                await stack.enter_async_context(conversation._visitor)
                # The page is served before the database has its tables.
                async with asyncio.timeout(_MAX_WAIT_SECONDS):
                    await conversation._visitor.connected.wait()
                yield conversation

    def _set_address(self, address: str) -> None:
        self._visitor.address = address

    def _reply(self, request: openai_server.Request) -> openai_server.Reply:
        """Answer as a model: run the codes of the last question in turn, then write its answer."""
        self._model_requests.append(request.messages)
        self._signs["model"].set()
        question_index = max(
            index
            for index, message in enumerate(request.messages)
            if '"codes"' in _read_text(message)
        )
        script = json.loads(
            _read_text(request.messages[question_index])[
                _read_text(request.messages[question_index]).index("{") :
            ]
        )
        call_count = sum(message["role"] == "tool" for message in request.messages[question_index:])
        if call_count < len(script["codes"]):
            return openai_server.code(
                script["codes"][call_count], "I ", "try. ", delay_seconds=0.05
            )
        return openai_server.text(*re.findall(r"\S+ ?", script["answer"]), delay_seconds=0.05)

    async def take_turn(self, moment: Moment) -> list[str]:
        """Take one turn and kill a process during it; return all faults."""
        number, name = moment.number, f"request-of-kills-{moment.number}"
        is_code = number % 3 == 1
        codes = [_PRINTING_CODE.format(number=number, part=0, ticks=_TICKS)]
        codes += [_ASKING_CODE.format(number=number, part=1)] if number % 3 == 0 else []
        text = codes[0] if is_code else scripted_model.make_question(codes, _make_answer(number))
        self._signs.clear()
        self._model_requests.clear()
        await self._visitor.send_message(name, text, is_code=is_code)
        if moment.sign:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                await self._signs[moment.sign].wait()
        await asyncio.sleep(moment.seconds)
        victim = await self._kill(moment.victim)
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                while not await self._is_over(name):  # noqa: ASYNC110 - a database sends no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return [
                f"it never ended: {await self._read_record(name)}, {self._visitor.shown.get(name)}"
            ]
        self._visitor.shown.clear()
        await self._visitor.watch_session()
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while name not in self._visitor.shown and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if name not in self._visitor.shown:
            return ["the turn is over, but the page does not show it"]
        turn = await self._read_record(name)
        faults = self._find_faults(number, turn, victim, len(codes), is_code=is_code)
        return [f"{victim} was killed: {fault}" for fault in faults]

    async def _kill(self, victim: str) -> str:
        """Kill the victim, or the bot if the victim does not run yet; return the killed one."""
        host = await self._bot.host_pid()
        pid = self._bot.pid if victim == "bot" else host
        if victim in ("fork server", "kernel"):
            pid = bot_processes.find_host_process(host, victim)
        if not pid:
            victim, pid = "bot", self._bot.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.kill_counts[victim] += 1
        return victim

    async def _is_over(self, name: str) -> bool:
        record = await self._read_record(name)
        shown = self._visitor.shown.get(name, ())
        ends = [event["status"] for event in shown if event["type"] == "over"]
        if not record:
            return ends == ["lost"]
        return bool(ends) and record["status"] != "running"

    async def _read_record(self, name: str) -> dict[str, Any]:
        """Return a turn's row with its rows of other tables; empty if there is none."""
        rows = await self._select("select * from turns where request_id = :id", name)
        if not rows:
            return {}
        assert len(rows) == 1, "a request became two turns"
        for table in ("executions", "parts", "artifacts", "usage"):
            query = f"select * from {table} where turn_id = :id order by id"
            rows[0][table] = await self._select(query, rows[0]["id"])
        return rows[0]

    async def _select(self, query: str, id: object) -> list[dict[str, Any]]:
        async with self._database.connect() as connection:
            rows = await connection.execute(sqlalchemy.text(query), {"id": id})
            return [dict(row) for row in rows.mappings()]

    def _find_faults(
        self, number: int, turn: dict[str, Any], victim: str, code_count: int, *, is_code: bool
    ) -> Iterator[str]:
        """Find all faults of a turn that is over."""
        if not turn:
            if victim != "bot":
                yield "it was lost, though the bot lived on"
            return
        yield from self._find_status_faults(turn, victim)
        runs = collections.Counter(self._list_runs())
        yield from (f"ran twice: {part}" for part, times in runs.items() if times > 1)
        shown_lines = page_visitors.list_printed_lines(self._visitor.shown[turn["request_id"]])
        outputs = [json.loads(entry["output"]) for entry in turn["parts"] if entry["output"]]
        lines = "".join(entry["text"] for entry in outputs if entry["type"] == "text").splitlines()
        if shown_lines != lines:
            yield f"the page shows {shown_lines}, recorded is {lines}"
        if turn["status"] == "done":
            yield from self._find_line_faults(number, victim, lines, turn)
            yield from self._find_artifact_faults(number, victim, turn["artifacts"])
            if not is_code:
                yield from self._find_answer_faults(number, turn, code_count)
        else:
            self._expected_count = None

    def _find_status_faults(self, turn: dict[str, Any], victim: str) -> Iterator[str]:
        executions = turn["executions"]
        if turn["status"] == "interrupted":
            if victim != "bot" or executions:
                yield f"interrupted, with {len(executions)} executions"
        elif turn["status"] != "done":
            yield f"{turn['status']}: {turn['answer']}"
        elif any(entry["ending"] is None for entry in executions):
            yield "an execution has no ending"
        recorded_ids = [entry["execution_id"] for entry in turn["parts"] if entry["kind"] == "code"]
        if recorded_ids != [entry["id"] for entry in executions]:
            yield f"code of executions {recorded_ids} is recorded, of {len(executions)}"

    def _list_runs(self) -> Iterable[str]:
        for file in self._bot.paths.data.glob("workspaces/*/data/ran.txt"):
            yield from file.read_text().split()

    def _find_line_faults(
        self, number: int, victim: str, lines: list[str], turn: dict[str, Any]
    ) -> Iterator[str]:
        executions = turn["executions"]
        notices = [entry["text"] for entry in turn["parts"] if entry["kind"] == "notice"]
        expected = [f"{number} tick {tick}" for tick in range(_TICKS)]
        if number % 3 == 0:
            expected.append(f"Hello {_answer_prompt(f'Who of {number}?')}")
        counts = [int(line.split()[1]) for line in lines if line.startswith("count ")]
        other_lines = [line for line in lines if not line.startswith("count ")]
        is_whole = other_lines == expected and len(counts) == 1
        sentences = [entry["reason"] for entry in executions if entry["ending"] != "ok"]
        if not is_whole:
            if victim in _LOSSLESS_VICTIMS:
                yield f"not all is recorded: {lines}"
            if not any(sentences):
                yield f"lost without a sentence: {lines}"
            if [line for line in expected if line in other_lines] != other_lines:
                yield f"recorded in no order, or twice: {lines}"
        if counts and self._expected_count is not None and counts[-1] != self._expected_count + 1:
            output_texts = [
                json.loads(entry["output"] or "{}").get("text", "") for entry in turn["parts"]
            ]
            explanations = " ".join([*notices, *output_texts])
            if victim in _LOSSLESS_VICTIMS and "ariables" not in explanations:
                yield f"variables are gone: {counts[-1]} after {self._expected_count}"
            elif "ariables" not in explanations and "new Python" not in explanations:
                yield f"no notice of lost variables: {counts[-1]} after {self._expected_count}"
        if counts:
            self._expected_count = counts[-1]

    def _find_artifact_faults(
        self, number: int, victim: str, artifacts: list[dict[str, Any]]
    ) -> Iterator[str]:
        names = collections.Counter(artifact["name"] for artifact in artifacts)
        yield from (f"given back twice: {name}" for name, times in names.items() if times > 1)
        if victim in _LOSSLESS_VICTIMS and f"made-{number}.txt" not in names:
            yield f"a file was not given back: {dict(names)}"

    def _find_answer_faults(
        self, number: int, turn: dict[str, Any], code_count: int
    ) -> Iterator[str]:
        recorded_text = "".join(entry["text"] for entry in turn["parts"] if entry["kind"] == "text")
        expected = "I try. " * code_count + _make_answer(number)
        if (turn["answer"].strip(), recorded_text.strip()) != (_make_answer(number), expected):
            yield f"the answer is {turn['answer']!r}, recorded is {recorded_text!r}"
        if len(self._model_requests) > code_count + 2:
            yield f"the model was asked {len(self._model_requests)} times"
        model_answers = [
            _read_text(entry) for entry in self._model_requests[-1] if entry["role"] == "assistant"
        ]
        for answer, times in collections.Counter(model_answers).items():
            if answer.startswith("This is") and times > 1:
                yield f"the model is told twice what it said: {answer}"
        tokens = sum(entry["input_tokens"] for entry in turn["usage"])
        if not 100 * (code_count + 1) <= tokens <= 100 * len(self._model_requests):
            yield f"{tokens} tokens are booked for {len(self._model_requests)} calls"


def _read_text(message: dict[str, Any]) -> str:
    """Return the text of a message of chat completions."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _make_answer(number: int) -> str:
    return f"This is answer {number}."


def _answer_prompt(prompt: str) -> str:
    return "Ada, who was asked: " + prompt
