"""Kill -9 of the bot in a cell that prints, and its restart: how soon people see what they missed.

The clock runs from the start of the next bot's process to the first line that its page shows and
the page of the killed one had not: in between lie the imports, the store, the host that went on,
the tab that connects again. Each line must be there once, in order, shown and recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable

from bench import bot_processes, metrics, page_visitors, sample_sizes
from interpreter_bot import settings
from interpreter_bot.store import engines

_SEEN_FIRST = 3
_PATIENCE_SECONDS = 60.0
# No turn asks it anything.
_MODEL = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
_PRINTING = """
import time
kept = globals().get('kept', 0) + 1
for line in range({lines}):
    print('line', line, flush=True)
    time.sleep({seconds})
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Kill and start again some times; the whole session is one bot's after the other."""
    seconds, wrong = [], []
    async with Restarts.opened() as restarts:
        for _ in range(effort.restarts):
            taken, faults = await restarts.restart()
            seconds.append(taken)
            wrong += faults
    return [
        metrics.Measure(
            "kill -9 of the bot in a cell that prints each 0.5 s: start to first caught-up line",
            "s",
            seconds,
            bar=2.0,
        ),
        metrics.Measure(
            f"there: lines lost, twice or in disorder, variables gone, in {effort.restarts} kills",
            "",
            [len(wrong)],
            bar=0.0,
            notes={"wrong": wrong},
        ),
    ]


class Restarts:
    """A session on the page, whose bot is killed in each of its turns. Use `opened`."""

    def __init__(self, bot: bot_processes.BotProcess) -> None:
        self._bot = bot
        self._visitor = page_visitors.Visitor("session-of-restarts", lambda prompt: prompt)
        self._visitor.on_event = lambda _: self._news.set()
        self._news = asyncio.Event()
        self._turns = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls) -> AsyncIterator[Restarts]:
        """Open one, and leave nothing of it."""
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
            bot = bot_processes.BotProcess(pathlib.Path(name), _MODEL, "none")
            restarts = cls(bot)
            async with bot.running(restarts._move), restarts._visitor:
                yield restarts

    def _move(self, address: str) -> None:
        self._visitor.address = address

    async def restart(self, *, lines: int = 12, seconds: float = 0.5) -> tuple[float, list[str]]:
        """Kill the bot in the middle of a cell.

        Returns:
            Seconds from the start of the next one to the first line that was missed, and all that
            is wrong with the turn.
        """
        self._turns += 1
        name = f"request-of-restarts-{self._turns}"
        code = _PRINTING.format(lines=lines, seconds=seconds)
        await self._visitor.say(name, code, is_code=True)
        await self._until(lambda: len(self._lines(name)) >= _SEEN_FIRST)
        self._bot.kill()
        seen = len(self._lines(name))
        await self._until(lambda: len(self._lines(name)) > seen)
        taken = time.monotonic() - self._bot.started
        await self._until(lambda: self._has(name, "over"))
        after = f"{name}-after"
        await self._visitor.say(after, "print(kept)", is_code=True)
        await self._until(lambda: self._has(after, "over"))
        # The end is shown before it is recorded; by now it is.
        wanted = [f"line {line}" for line in range(lines)]
        faults = [
            f"turn {self._turns}: {what} is {found}, not {wanted}"
            for what, found in (("shown", self._lines(name)), ("recorded", self._recorded(name)))
            if found != wanted
        ]
        if self._lines(after) != [f"{self._turns}"]:
            faults.append(f"turn {self._turns}: variables are {self._lines(after)}")
        return taken, faults

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    def _lines(self, name: str) -> list[str]:
        return page_visitors.printed(self._visitor.shown.get(name, []))

    def _has(self, name: str, kind: str) -> bool:
        return any(event["type"] == kind for event in self._visitor.shown.get(name, ()))

    def _recorded(self, name: str) -> list[str]:
        file = engines.database_file(engines.parse(engines.default_url(self._bot.paths.data)))
        query = (
            "select parts.output from parts join turns on turns.id = parts.turn_id "
            "where turns.request_id = ? and parts.output is not null order by parts.id"
        )
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            outputs = [json.loads(output) for (output,) in database.execute(query, (name,))]
        return "".join(one["text"] for one in outputs if one["type"] == "text").splitlines()
