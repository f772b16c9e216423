"""A large fleet: one simulated hour, and the placements that one PostgreSQL server can take."""

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
_PARALLEL_TASKS = 16
_SECONDS = 4.0
_ROUNDS = 7
_HOST = "a" * 32


async def measure_placements(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Place new sessions from several processes, as bots do, in one database with fsync on."""
    rounds = _ROUNDS if effort == sample_sizes.FULL else 1
    with servers.Server.run(fsync="on") as server, server.database() as address:
        await asyncio.to_thread(databases.upgrade, engines.parse(address))
        results = [await _run_round(address, number) for number in range(rounds)]
    placement_times, read_times = zip(*results, strict=True)
    name = f"{_BOTS} bots, one PostgreSQL: of one"
    notes = {
        "placements a second": [round(1000 / milliseconds) for milliseconds in placement_times],
        "reads a second": [round(1000 / milliseconds) for milliseconds in read_times],
    }
    return [
        metrics.Measure(f"{name} new placement", "ms", placement_times, bar=1.0, notes=notes),
        metrics.Measure(f"{name} read of a placement", "ms", read_times),
    ]


async def _run_round(address: str, number: int) -> tuple[float, float]:
    """Run all bots for a while; return the mean milliseconds of a placement and of a read."""
    bots = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.fleets", address, f"{number} {bot}"),
            stdout=asyncio.subprocess.PIPE,
        )
        for bot in range(_BOTS)
    ]
    counts = [json.loads((await bot.communicate())[0]) for bot in bots]
    placement_ms, read_ms = (
        1000 * _SECONDS / sum(bot_counts) for bot_counts in zip(*counts, strict=True)
    )
    return placement_ms, read_ms


async def run_bot(url: str, name: str) -> tuple[int, int]:
    """Place new sessions as `placed_hosts` does, then read them; return both counts."""
    with tempfile.TemporaryDirectory() as directory:
        opening = databases.Database.open(
            url, blobs_directory=pathlib.Path(directory), takes_orphans=False
        )
        async with opening as database:
            counts = [0, 0]

            async def place_sessions(number: int, end: float) -> None:
                while time.monotonic() < end:
                    counts[0] += 1
                    key = f"{name} {number} {counts[0]}"
                    assert await database.placements.find(key) is None
                    await database.placements.put(key, _HOST, former_epoch=0)

            async def read_placements(number: int, end: float) -> None:
                while time.monotonic() < end:
                    counts[1] += 1
                    await database.placements.find(f"{name} {number} {counts[1]}")

            for work in (place_sessions, read_placements):
                end = time.monotonic() + _SECONDS
                await asyncio.gather(*(work(number, end) for number in range(_PARALLEL_TASKS)))
    return counts[0], counts[1]


async def simulate_fleet(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Simulate one hour of a fleet."""
    is_full = effort == sample_sizes.FULL
    shape = fleet_simulation.Shape() if is_full else fleet_simulation.SMALL
    figures = fleet_simulation.Simulation(shape, seed=7).run()
    name = f"{shape.hosts:,} hosts, {shape.sessions:,} sessions in an hour"
    # Of millions of values, keep a thousand quantiles.
    waits = sorted(figures.waits)
    waits = [waits[min(n * len(waits) // 1000, len(waits) - 1)] for n in range(1, 1001)]
    notes = {
        "turns": len(figures.waits),
        "events": figures.events,
        "executions lost with their host": figures.lost,
        "starts with variables": figures.restored,
        "kernels that made room": figures.evicted,
        "placements": sum(figures.puts.values()),
    }
    rates = {
        "reads of placements": figures.finds,
        "new placements": figures.puts,
        "questions to hosts": figures.questions,
    }
    idle = 100 * figures.idle_byte_minutes / max(1, figures.used_byte_minutes)
    return [
        metrics.Measure(f"{name}: wait for Python", "s", waits, "p99", notes=notes),
        metrics.Measure(f"{name}: sessions moved to another host", "", [figures.moved]),
        metrics.Measure(f"{name}: refused turns", "", [figures.refused]),
        metrics.Measure(f"{name}: memory of kernels that five minutes did not use", "%", [idle]),
        metrics.Measure(f"{name}: the fullest host over the mean", "x", figures.spread, "most"),
        *(
            metrics.Measure(f"{name}: {title} a second", "", list(counts.values()), "most")
            for title, counts in rates.items()
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run_bot(*sys.argv[1:]))))
