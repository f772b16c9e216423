"""Kill -9 of the bot during a cell that prints, and its restart: time until the page catches up.

The time runs from the start of the next bot's process to the first new line on its page. It covers
the imports, the store, the connection to the host that kept running, and the tab's reconnect. The
page and the database must have each line once, in order.
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

_LINES_BEFORE_KILL = 3
_MAX_WAIT_SECONDS = 60.0
# No turn uses the model.
_MODEL = settings.Model(name="none", base_url="http://127.0.0.1:9/v1", protocol="chat")
_PRINTING_CODE = """
import time
kept = globals().get('kept', 0) + 1
for line in range({lines}):
    print('line', line, flush=True)
    time.sleep({seconds})
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Kill and restart the bot several times during one session."""
    catch_up_times, faults = [], []
    async with Restarts.open() as restarts:
        for _ in range(effort.restarts):
            catch_up_seconds, turn_faults = await restarts.restart()
            catch_up_times.append(catch_up_seconds)
            faults += turn_faults
    return [
        metrics.Measure(
            "kill -9 of the bot in a cell that prints each 0.5 s: start to first caught-up line",
            "s",
            catch_up_times,
            bar=2.0,
        ),
        metrics.Measure(
            f"there: lines lost, twice or in disorder, variables gone, in {effort.restarts} kills",
            "",
            [len(faults)],
            bar=0.0,
            notes={"wrong": faults},
        ),
    ]


class Restarts:
    """A session on the page, whose bot is killed in each of its turns. Use `open`."""

    def __init__(self, bot: bot_processes.BotProcess) -> None:
        self._bot = bot
        self._visitor = page_visitors.Visitor("session-of-restarts", lambda prompt: prompt)
        self._visitor.on_event = lambda _: self._event_arrived.set()
        self._event_arrived = asyncio.Event()
        self._turn_count = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls) -> AsyncIterator[Restarts]:
        """Start the bot and the visitor; remove their files afterwards."""
        with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
            bot = bot_processes.BotProcess(pathlib.Path(name), _MODEL, "none")
            restarts = cls(bot)
            async with bot.running(restarts._set_address), restarts._visitor:
                yield restarts

    def _set_address(self, address: str) -> None:
        self._visitor.address = address

    async def restart(self, *, lines: int = 12, seconds: float = 0.5) -> tuple[float, list[str]]:
        """Kill the bot in the middle of a cell.

        Returns:
            Seconds from the start of the next bot to the first new line, and all faults of the
            turn.
        """
        self._turn_count += 1
        name = f"request-of-restarts-{self._turn_count}"
        code = _PRINTING_CODE.format(lines=lines, seconds=seconds)
        await self._visitor.send_message(name, code, is_code=True)
        await self._wait_until(lambda: len(self._list_lines(name)) >= _LINES_BEFORE_KILL)
        self._bot.kill()
        line_count = len(self._list_lines(name))
        await self._wait_until(lambda: len(self._list_lines(name)) > line_count)
        catch_up_seconds = time.monotonic() - self._bot.start_time
        await self._wait_until(lambda: self._has_event(name, "over"))
        next_name = f"{name}-after"
        await self._visitor.send_message(next_name, "print(kept)", is_code=True)
        await self._wait_until(lambda: self._has_event(next_name, "over"))
        # A turn's end is shown before it is recorded, but by now it is recorded too.
        expected = [f"line {line}" for line in range(lines)]
        faults = [
            f"turn {self._turn_count}: {source} is {found_lines}, not {expected}"
            for source, found_lines in (
                ("shown", self._list_lines(name)),
                ("recorded", self._list_recorded_lines(name)),
            )
            if found_lines != expected
        ]
        if self._list_lines(next_name) != [f"{self._turn_count}"]:
            faults.append(f"turn {self._turn_count}: variables are {self._list_lines(next_name)}")
        return catch_up_seconds, faults

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(_MAX_WAIT_SECONDS):
            while not condition():
                self._event_arrived.clear()
                await self._event_arrived.wait()

    def _list_lines(self, name: str) -> list[str]:
        return page_visitors.list_printed_lines(self._visitor.shown.get(name, []))

    def _has_event(self, name: str, kind: str) -> bool:
        return any(event["type"] == kind for event in self._visitor.shown.get(name, ()))

    def _list_recorded_lines(self, name: str) -> list[str]:
        file = engines.database_file(engines.parse(engines.default_url(self._bot.paths.data)))
        query = (
            "select parts.output from parts join turns on turns.id = parts.turn_id "
            "where turns.request_id = ? and parts.output is not null order by parts.id"
        )
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            outputs = [json.loads(output) for (output,) in database.execute(query, (name,))]
        return "".join(
            output["text"] for output in outputs if output["type"] == "text"
        ).splitlines()
