"""From asking for a session to its first result, and from code to result in a live kernel."""

from __future__ import annotations

import asyncio
import time

from bench import measured_bots, metrics, sample_sizes, stock_jupyter
from interpreter_bot.kernels import pools

_SPARES = 2
_SETTLE_SECONDS = 0.2


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure ours and the alternative in turns, so that both meet the same machine."""
    async with (
        measured_bots.open_pool(spares=_SPARES) as ready,
        measured_bots.open_pool(spares=0) as forking,
    ):
        starts = await _starts(effort.starts, ready, forking)
        trips = await _trips(effort.trips, ready)
    return [*starts, *trips]


async def _starts(count: int, ready: pools.Pool, forking: pools.Pool) -> list[metrics.Measure]:
    plain, lean, spare, forked = [], [], [], []
    # The first of each kind finds files on disk that the others find in memory: it is not told.
    for number in range(count + 1):
        plain.append(await stock_jupyter.time_start(measured_bots.IMPORT_STACK_CODE))
        lean.append(await stock_jupyter.time_start(measured_bots.IMPORT_STACK_CODE, is_lean=True))
        await asyncio.sleep(_SETTLE_SECONDS)
        forked.append(await _start(forking, f"session {number}"))
        await measured_bots.wait_for_spares(ready, _SPARES)
        await asyncio.sleep(_SETTLE_SECONDS)
        spare.append(await _start(ready, f"session {number}"))
    alternative = metrics.Alternative("cold ipykernel", plain[1:])
    wanted = "session wanted → stack imported"
    return [
        metrics.Measure(
            f"{wanted}, spare",
            "ms",
            spare[1:],
            bar=20.0,
            alternative=alternative,
            least_ratio=60.0,
        ),
        metrics.Measure(
            f"{wanted}, no spare",
            "ms",
            forked[1:],
            bar=70.0,
            alternative=alternative,
            least_ratio=20.0,
        ),
        metrics.Measure(
            "(cold ipykernel, not waiting for silence)", "ms", lean[1:], alternative=alternative
        ),
    ]


async def _start(pool: pools.Pool, key: str) -> float:
    started = time.perf_counter()
    async with pool.lease(key) as lease:
        await measured_bots.execute(await lease.kernel(), measured_bots.IMPORT_STACK_CODE)
        taken = measured_bots.milliseconds(started)
    await pool.forget(key)
    return taken


async def _trips(count: int, pool: pools.Pool) -> list[metrics.Measure]:
    ours, raw = [], []
    async with stock_jupyter.open_kernel() as client, pool.lease("round trips") as lease:
        kernel = await lease.kernel()
        await measured_bots.wait_for_spares(pool, _SPARES)
        for _ in range(10):
            await stock_jupyter.time_trip(client)
            await measured_bots.time_trip(kernel)
        for _ in range(count):
            raw.append(await stock_jupyter.time_trip(client))
            ours.append(await measured_bots.time_trip(kernel))
    alternative = metrics.Alternative("raw execute_interactive", raw)
    name = "1+1 round trip"
    return [metrics.Measure(name, "ms", ours, alternative=alternative, least_ratio=1.0)]
