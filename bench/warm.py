"""From asking for a session to its first result, and from code to result in a live kernel."""

from __future__ import annotations

import asyncio
import time

from bench import bots, cold, efforts, figures
from interpreter_bot.kernels import pools

_SPARES = 2
_SETTLE_SECONDS = 0.2


async def run(effort: efforts.Effort) -> list[figures.Measure]:
    """Measure ours and the alternative in turns, so that both meet the same machine."""
    async with bots.pool(spares=_SPARES) as ready, bots.pool(spares=0) as forking:
        starts = await _starts(effort.starts, ready, forking)
        trips = await _trips(effort.trips, ready)
    return [*starts, *trips]


async def _starts(count: int, ready: pools.Pool, forking: pools.Pool) -> list[figures.Measure]:
    plain, lean, spare, forked = [], [], [], []
    # The first of each kind finds files on disk that the others find in memory: it is not told.
    for number in range(count + 1):
        plain.append(await cold.start(bots.STACK))
        lean.append(await cold.start(bots.STACK, is_lean=True))
        await asyncio.sleep(_SETTLE_SECONDS)
        forked.append(await _start(forking, f"session {number}"))
        await bots.spares(ready, _SPARES)
        await asyncio.sleep(_SETTLE_SECONDS)
        spare.append(await _start(ready, f"session {number}"))
    alternative = figures.Alternative("cold ipykernel", plain[1:])
    wanted = "session wanted → stack imported"
    return [
        figures.Measure(f"{wanted}, spare", "ms", spare[1:], bar=15.0, alternative=alternative),
        figures.Measure(
            f"{wanted}, no spare",
            "ms",
            forked[1:],
            bar=60.0,
            alternative=alternative,
            least_ratio=20.0,
        ),
        figures.Measure(
            "(cold ipykernel, not waiting for silence)", "ms", lean[1:], alternative=alternative
        ),
    ]


async def _start(pool: pools.Pool, key: str) -> float:
    started = time.perf_counter()
    async with pool.lease(key) as lease:
        await bots.execute(await lease.kernel(), bots.STACK)
        taken = bots.milliseconds(started)
    await pool.forget(key)
    return taken


async def _trips(count: int, pool: pools.Pool) -> list[figures.Measure]:
    ours, raw = [], []
    async with cold.kernel() as client, pool.lease("round trips") as lease:
        kernel = await lease.kernel()
        await bots.spares(pool, _SPARES)
        for _ in range(10):
            await cold.trip(client)
            await bots.trip(kernel)
        for _ in range(count):
            raw.append(await cold.trip(client))
            ours.append(await bots.trip(kernel))
    alternative = figures.Alternative("raw execute_interactive", raw)
    name = "1+1 round trip"
    return [figures.Measure(name, "ms", ours, alternative=alternative, least_ratio=1.0)]
