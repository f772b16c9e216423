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
_SECONDS = 4.0
_ROUNDS = 7
_HOST = "a" * 32


async def placements(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Let several processes, as bots are, place new sessions in one database that syncs."""
    rounds = _ROUNDS if effort == sample_sizes.FULL else 1
    with servers.Server.run(fsync="on") as server, server.database() as address:
        await asyncio.to_thread(databases.upgrade, engines.parse(address))
        told = [await _round(address, number) for number in range(rounds)]
    placed, found = zip(*told, strict=True)
    name = f"{_BOTS} bots, one PostgreSQL: of one"
    notes = {
        "placements a second": [round(1000 / each) for each in placed],
        "reads a second": [round(1000 / each) for each in found],
    }
    return [
        metrics.Measure(f"{name} new placement", "ms", placed, bar=1.0, notes=notes),
        metrics.Measure(f"{name} read of a placement", "ms", found),
    ]


async def _round(address: str, number: int) -> tuple[float, float]:
    """Let all bots work for a while; return the milliseconds for each placement and each read."""
    bots = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.fleets", address, f"{number} {bot}"),
            stdout=asyncio.subprocess.PIPE,
        )
        for bot in range(_BOTS)
    ]
    told = [json.loads((await bot.communicate())[0]) for bot in bots]
    placed, found = (1000 * _SECONDS / sum(each) for each in zip(*told, strict=True))
    return placed, found


async def place(url: str, name: str) -> tuple[int, int]:
    """Place new sessions as `placed_hosts` does, then look them up; return both counts."""
    with tempfile.TemporaryDirectory() as kept:
        opening = databases.Database.open(
            url, blobs_directory=pathlib.Path(kept), takes_orphans=False
        )
        async with opening as database:
            counts = [0, 0]

            async def placed(number: int, end: float) -> None:
                while time.monotonic() < end:
                    counts[0] += 1
                    key = f"{name} {number} {counts[0]}"
                    assert await database.placements.find(key) is None
                    await database.placements.put(key, _HOST, former_epoch=0)

            async def found(number: int, end: float) -> None:
                while time.monotonic() < end:
                    counts[1] += 1
                    await database.placements.find(f"{name} {number} {counts[1]}")

            for each in (placed, found):
                end = time.monotonic() + _SECONDS
                await asyncio.gather(*(each(number, end) for number in range(_AT_ONCE)))
    return counts[0], counts[1]


async def simulation(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Simulate an hour."""
    is_full = effort == sample_sizes.FULL
    shape = fleet_simulation.Shape() if is_full else fleet_simulation.SMALL
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
    print(json.dumps(asyncio.run(place(*sys.argv[1:]))))
