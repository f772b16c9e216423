"""Kill -9 of bot, host, fork server and kernel at any moment of a conversation.

Each question is a turn in which one of them is killed. What is left must be whole: nothing ran or
is recorded twice, nothing is lost but with a kernel, and then a sentence says so. It is read from
the database, the workspace, the page and what the model is told, so from all who might remember.
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
_KEEPS_ALL = ("bot", "fork server")
_AT_ONCE = 20
_LONGEST_SECONDS = 1.6
_PATIENCE_SECONDS = 60.0
_TICKS = 8
_RAN = "with open('ran.txt', 'a') as file: file.write('{number}.{part}\\n')\n"
_PRINTING = (
    "import time\n"
    + _RAN
    + """count = globals().get('count', 0) + 1
print('count', count, flush=True)
for tick in range({ticks}):
    print('{number} tick', tick, flush=True)
    time.sleep(0.05)
with open('made-{number}.txt', 'w') as file: file.write('{number}')
"""
)
_ASKING = _RAN + "print('Hello', input('Who of {number}?'), flush=True)\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """When somebody is killed.

    Attributes:
        number: of the turn; decides what it does.
        victim: one of the four.
        sign: what is waited for first: "" for the question, "model" for its call, else the kind of
            an event on the page.
        seconds: after that.
    """

    number: int
    victim: str
    sign: str = ""
    seconds: float = 0.0


def moments(seed: int, count: int) -> list[Moment]:
    """Choose moments at random."""
    chance = random.Random(seed)
    victims = [_VICTIMS[number % len(_VICTIMS)] for number in range(count)]
    chance.shuffle(victims)
    return [
        Moment(number, victim, seconds=chance.uniform(0, _LONGEST_SECONDS))
        for number, victim in enumerate(victims)
    ]


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Kill, in conversations of some turns each; tell all that was wrong."""
    wrong: list[str] = []
    killed: collections.Counter[str] = collections.Counter()
    with servers.Server.run() as server:
        for seed in range(-(-effort.kills // _AT_ONCE)):
            # Every other one with a database that others may use at the same time.
            database = server.database() if seed % 2 else contextlib.nullcontext("")
            with database as url:
                async with Conversation.opened(url) as conversation:
                    for moment in moments(seed, _AT_ONCE):
                        faults = await conversation.turn(moment)
                        wrong += [f"{seed}: {moment}: {fault}" for fault in faults]
                    killed += conversation.killed
    return [
        metrics.Measure(
            f"{killed.total()} kills: lost unsaid, or done or recorded twice",
            "",
            [len(wrong)],
            bar=0.0,
            notes={"killed": dict(killed), "wrong": wrong},
        )
    ]


class Conversation:
    """A conversation on the page, with a model that follows a script. Use `opened`.

    Attributes:
        killed: how often each was killed.
    """

    def __init__(self, bot: bot_processes.BotProcess, database: str) -> None:
        self.killed: collections.Counter[str] = collections.Counter()
        self._bot = bot
        url = engines.parse(database or engines.default_url(bot.paths.data))
        self._database = sa_asyncio.create_async_engine(url)
        self._signs: dict[str, asyncio.Event] = collections.defaultdict(asyncio.Event)
        self._visitor = page_visitors.Visitor("conversation-of-kills", _answer)
        self._visitor.on_event = lambda event: self._signs[event["type"]].set()
        self._asked: list[list[dict[str, Any]]] = []
        # None where an unfinished turn may have said what became of variables.
        self._count: int | None = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, database: str = "") -> AsyncIterator[Conversation]:
        """Open one in a database, by default in a file of its own, and leave nothing of it."""
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
                await stack.enter_async_context(bot.running(conversation._move))
                await stack.enter_async_context(conversation._visitor)
                yield conversation

    def _move(self, address: str) -> None:
        self._visitor.address = address

    def _reply(self, request: openai_server.Request) -> openai_server.Reply:
        """Answer as a model: what the last question wants to be run, then in words."""
        self._asked.append(request.messages)
        self._signs["model"].set()
        last = max(at for at, one in enumerate(request.messages) if '"codes"' in _said(one))
        script = json.loads(
            _said(request.messages[last])[_said(request.messages[last]).index("{") :]
        )
        done = sum(one["role"] == "tool" for one in request.messages[last:])
        if done < len(script["codes"]):
            return openai_server.code(script["codes"][done], "I ", "try. ", delay_seconds=0.05)
        return openai_server.text(*re.findall(r"\S+ ?", script["answer"]), delay_seconds=0.05)

    async def turn(self, moment: Moment) -> list[str]:
        """Take one turn, with a kill in it; return all that is wrong."""
        number, name = moment.number, f"request-of-kills-{moment.number}"
        is_code = number % 3 == 1
        codes = [_PRINTING.format(number=number, part=0, ticks=_TICKS)]
        codes += [_ASKING.format(number=number, part=1)] if number % 3 == 0 else []
        text = codes[0] if is_code else scripted_model.question(codes, _said_at_end(number))
        self._signs.clear()
        self._asked.clear()
        await self._visitor.say(name, text, is_code=is_code)
        if moment.sign:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._signs[moment.sign].wait()
        await asyncio.sleep(moment.seconds)
        victim = await self._kill(moment.victim)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not await self._is_over(name):  # noqa: ASYNC110 - a database tells nobody
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return [f"it never ended: {await self._record(name)}, {self._visitor.shown.get(name)}"]
        self._visitor.shown.clear()
        await self._visitor.look()
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while name not in self._visitor.shown and time.monotonic() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if name not in self._visitor.shown:
            return ["it is over, and the page does not show it"]
        turn = await self._record(name)
        faults = self._faults(number, turn, victim, len(codes), is_code=is_code)
        return [f"{victim} was killed: {fault}" for fault in faults]

    async def _kill(self, victim: str) -> str:
        """Kill somebody, and say whom: who is not there yet cannot be."""
        host = await self._bot.host_pid()
        pid = self._bot.pid if victim == "bot" else host
        if victim in ("fork server", "kernel"):
            pid = bot_processes.found_below(host, victim)
        if not pid:
            victim, pid = "bot", self._bot.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.killed[victim] += 1
        return victim

    async def _is_over(self, name: str) -> bool:
        record = await self._record(name)
        shown = self._visitor.shown.get(name, ())
        ends = [event["status"] for event in shown if event["type"] == "over"]
        if not record:
            return ends == ["lost"]
        return bool(ends) and record["status"] != "running"

    async def _record(self, name: str) -> dict[str, Any]:
        """Return what is recorded of a turn, and in it of what belongs to it."""
        found = await self._select("select * from turns where request_id = :id", name)
        if not found:
            return {}
        assert len(found) == 1, "a request became two turns"
        for table in ("executions", "parts", "artifacts", "usage"):
            query = f"select * from {table} where turn_id = :id order by id"
            found[0][table] = await self._select(query, found[0]["id"])
        return found[0]

    async def _select(self, query: str, id: object) -> list[dict[str, Any]]:
        async with self._database.connect() as connection:
            rows = await connection.execute(sqlalchemy.text(query), {"id": id})
            return [dict(row) for row in rows.mappings()]

    def _faults(
        self, number: int, turn: dict[str, Any], victim: str, codes: int, *, is_code: bool
    ) -> Iterator[str]:
        """Find all that is wrong with a turn that is over."""
        if not turn:
            if victim != "bot":
                yield "it was lost, though the bot lived on"
            return
        yield from self._status_faults(turn, victim)
        ran = collections.Counter(self._ran())
        yield from (f"ran twice: {part}" for part, times in ran.items() if times > 1)
        shown = page_visitors.printed(self._visitor.shown[turn["request_id"]])
        recorded = [json.loads(one["output"]) for one in turn["parts"] if one["output"]]
        lines = "".join(one["text"] for one in recorded if one["type"] == "text").splitlines()
        if shown != lines:
            yield f"the page shows {shown}, recorded is {lines}"
        if turn["status"] == "done":
            yield from self._line_faults(number, victim, lines, turn)
            yield from self._artifact_faults(number, victim, turn["artifacts"])
            if not is_code:
                yield from self._word_faults(number, turn, codes)
        else:
            self._count = None

    def _status_faults(self, turn: dict[str, Any], victim: str) -> Iterator[str]:
        executions = turn["executions"]
        if turn["status"] == "interrupted":
            if victim != "bot" or executions:
                yield f"interrupted, with {len(executions)} executions"
        elif turn["status"] != "done":
            yield f"{turn['status']}: {turn['answer']}"
        elif any(one["ending"] is None for one in executions):
            yield "an execution has no ending"
        codes = [one["execution_id"] for one in turn["parts"] if one["kind"] == "code"]
        if codes != [one["id"] for one in executions]:
            yield f"code of executions {codes} is recorded, of {len(executions)}"

    def _ran(self) -> Iterable[str]:
        for file in self._bot.paths.data.glob("workspaces/*/data/ran.txt"):
            yield from file.read_text().split()

    def _line_faults(
        self, number: int, victim: str, lines: list[str], turn: dict[str, Any]
    ) -> Iterator[str]:
        executions = turn["executions"]
        notices = [one["text"] for one in turn["parts"] if one["kind"] == "notice"]
        wanted = [f"{number} tick {tick}" for tick in range(_TICKS)]
        if number % 3 == 0:
            wanted.append(f"Hello {_answer(f'Who of {number}?')}")
        counts = [int(line.split()[1]) for line in lines if line.startswith("count ")]
        others = [line for line in lines if not line.startswith("count ")]
        is_whole = others == wanted and len(counts) == 1
        sentences = [one["reason"] for one in executions if one["ending"] != "ok"]
        if not is_whole:
            if victim in _KEEPS_ALL:
                yield f"not all is recorded: {lines}"
            if not any(sentences):
                yield f"lost without a sentence: {lines}"
            if [line for line in wanted if line in others] != others:
                yield f"recorded in no order, or twice: {lines}"
        if counts and self._count is not None and counts[-1] != self._count + 1:
            shown = [json.loads(one["output"] or "{}").get("text", "") for one in turn["parts"]]
            told = " ".join([*notices, *shown])
            if victim in _KEEPS_ALL and "ariables" not in told:
                yield f"variables are gone: {counts[-1]} after {self._count}"
            elif "ariables" not in told and "new Python" not in told:
                yield f"variables are gone without a word: {counts[-1]} after {self._count}"
        if counts:
            self._count = counts[-1]

    def _artifact_faults(
        self, number: int, victim: str, artifacts: list[dict[str, Any]]
    ) -> Iterator[str]:
        names = collections.Counter(one["name"] for one in artifacts)
        yield from (f"given back twice: {name}" for name, times in names.items() if times > 1)
        if victim in _KEEPS_ALL and f"made-{number}.txt" not in names:
            yield f"a file was not given back: {dict(names)}"

    def _word_faults(self, number: int, turn: dict[str, Any], codes: int) -> Iterator[str]:
        said = "".join(one["text"] for one in turn["parts"] if one["kind"] == "text")
        wanted = "I try. " * codes + _said_at_end(number)
        if (turn["answer"].strip(), said.strip()) != (_said_at_end(number), wanted):
            yield f"the answer is {turn['answer']!r}, recorded is {said!r}"
        if len(self._asked) > codes + 2:
            yield f"the model was asked {len(self._asked)} times"
        told = [_said(one) for one in self._asked[-1] if one["role"] == "assistant"]
        for words, times in collections.Counter(told).items():
            if words.startswith("This is") and times > 1:
                yield f"the model is told twice what it said: {words}"
        tokens = sum(one["input_tokens"] for one in turn["usage"])
        if not 100 * (codes + 1) <= tokens <= 100 * len(self._asked):
            yield f"{tokens} tokens are booked for {len(self._asked)} calls"


def _said(message: dict[str, Any]) -> str:
    """Return the words of a message, as chat completions have them."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(one["text"] for one in content)


def _said_at_end(number: int) -> str:
    return f"This is answer {number}."


def _answer(prompt: str) -> str:
    return "Ada, who was asked: " + prompt
