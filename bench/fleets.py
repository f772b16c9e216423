"""A fleet at scale: an hour of it, simulated, and how many placements one PostgreSQL takes."""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys
import tempfile
import time

from bench import fleet_simulation, metrics, sample_sizes
from interpreter_bot.store import databases, engines
from tests.integration.store import servers

_BOTS = 2
_AT_ONCE = 16
_SHORT_SECONDS, _LONG_SECONDS = 2.0, 10.0
_HOST = "a" * 32


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure both."""
    is_full = effort == sample_sizes.FULL
    shape = fleet_simulation.Shape() if is_full else fleet_simulation.SMALL
    seconds = _LONG_SECONDS if is_full else _SHORT_SECONDS
    return [*await _placements(seconds), *_simulated(shape)]


async def _placements(seconds: float) -> list[metrics.Measure]:
    """Let several processes, as bots are, place new sessions in one database that syncs."""
    with servers.Server.run(fsync="on") as server, server.database() as address:
        await asyncio.to_thread(databases.upgrade, engines.parse(address))
        bots = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.fleets", address, str(number), str(seconds)),
                stdout=asyncio.subprocess.PIPE,
            )
            for number in range(_BOTS)
        ]
        told = [json.loads((await bot.communicate())[0]) for bot in bots]
    placed, found = (sum(each) / seconds for each in zip(*told, strict=True))
    name = f"{_BOTS} bots, one PostgreSQL: of one"
    notes = {"placements a second": round(placed), "reads a second": round(found)}
    return [
        metrics.Measure(f"{name} new placement", "ms", [1000 / placed], bar=1.0, notes=notes),
        metrics.Measure(f"{name} read of a placement", "ms", [1000 / found]),
    ]


async def place(url: str, name: str, seconds: float) -> tuple[int, int]:
    """Place new sessions, as `placed_hosts` does, then look them up; return how many of each."""
    with tempfile.TemporaryDirectory() as kept:
        opening = databases.Database.open(url, files=pathlib.Path(kept), takes_orphans=False)
        async with opening as database:
            counts = [0, 0]

            async def placed(number: int, end: float) -> None:
                while time.monotonic() < end:
                    counts[0] += 1
                    key = f"{name} {number} {counts[0]}"
                    assert await database.placements.find(key) is None
                    await database.placements.put(key, _HOST, after=0)

            async def found(number: int, end: float) -> None:
                while time.monotonic() < end:
                    counts[1] += 1
                    await database.placements.find(f"{name} {number} {counts[1]}")

            for each in (placed, found):
                end = time.monotonic() + seconds
                await asyncio.gather(*(each(number, end) for number in range(_AT_ONCE)))
    return counts[0], counts[1]


def _simulated(shape: fleet_simulation.Shape) -> list[metrics.Measure]:
    """Simulate an hour."""
    found = fleet_simulation.Simulation(shape, seed=7).run()
    name = f"{shape.hosts:,} hosts, {shape.sessions:,} sessions in an hour"
    # Of millions, each thousandth by size.
    waits = sorted(found.waits)
    waits = [waits[min(n * len(waits) // 1000, len(waits) - 1)] for n in range(1, 1001)]
    notes = {
        "turns": len(found.waits),
        "events": found.events,
        "executions lost with their host": found.lost,
        "starts with variables": found.restored,
        "kernels that made room": found.evicted,
        "placements": sum(found.puts.values()),
    }
    rates = {
        "reads of placements": found.finds,
        "new placements": found.puts,
        "questions to hosts": found.questions,
    }
    idle = 100 * found.idle / max(1, found.used)
    return [
        metrics.Measure(f"{name}: wait for Python", "s", waits, "p99", notes=notes),
        metrics.Measure(f"{name}: sessions moved to another host", "", [found.moved]),
        metrics.Measure(f"{name}: refused turns", "", [found.refused]),
        metrics.Measure(f"{name}: memory of kernels that five minutes did not use", "%", [idle]),
        metrics.Measure(f"{name}: the fullest host over the mean", "x", found.spread, "most"),
        *(
            metrics.Measure(f"{name}: {what} a second", "", list(each.values()), "most")
            for what, each in rates.items()
        ),
    ]


if __name__ == "__main__":
    _, address, number, seconds = sys.argv
    print(json.dumps(asyncio.run(place(address, number, float(seconds)))))
