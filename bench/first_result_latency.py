"""Latency of the first result of a new session, and of a round trip in a live kernel."""

from __future__ import annotations

import asyncio
import time

from bench import measured_bots, metrics, sample_sizes, stock_jupyter
from interpreter_bot.kernels import pools

_SPARES = 2
_SETTLE_SECONDS = 0.2


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure the bot and the alternative alternately, so that the machine's load is the same."""
    async with (
        measured_bots.open_pool(spares=_SPARES) as spare_pool,
        measured_bots.open_pool(spares=0) as forking_pool,
    ):
        starts = await _measure_starts(effort.starts, spare_pool, forking_pool)
        trips = await _measure_trips(effort.trips, spare_pool)
    return [*starts, *trips]


async def _measure_starts(
    count: int, spare_pool: pools.Pool, forking_pool: pools.Pool
) -> list[metrics.Measure]:
    stock_times, lean_stock_times, spare_times, forked_times = [], [], [], []
    # The first sample of each kind reads files from disk that the others find in memory, so it is
    # left out.
    for number in range(count + 1):
        stock_times.append(await stock_jupyter.time_start(measured_bots.IMPORT_STACK_CODE))
        lean_stock_times.append(
            await stock_jupyter.time_start(measured_bots.IMPORT_STACK_CODE, is_lean=True)
        )
        await asyncio.sleep(_SETTLE_SECONDS)
        forked_times.append(await _time_start(forking_pool, f"session {number}"))
        await measured_bots.wait_for_spares(spare_pool, _SPARES)
        await asyncio.sleep(_SETTLE_SECONDS)
        spare_times.append(await _time_start(spare_pool, f"session {number}"))
    alternative = metrics.Alternative("cold ipykernel", stock_times[1:])
    interval = "session wanted → stack imported"
    return [
        metrics.Measure(
            f"{interval}, spare",
            "ms",
            spare_times[1:],
            bar=20.0,
            alternative=alternative,
            least_ratio=60.0,
        ),
        metrics.Measure(
            f"{interval}, no spare",
            "ms",
            forked_times[1:],
            bar=70.0,
            alternative=alternative,
            least_ratio=20.0,
        ),
        metrics.Measure(
            "(cold ipykernel, not waiting for silence)",
            "ms",
            lean_stock_times[1:],
            alternative=alternative,
        ),
    ]


async def _time_start(pool: pools.Pool, key: str) -> float:
    start_time = time.perf_counter()
    async with pool.lease(key) as lease:
        await measured_bots.execute(await lease.kernel(), measured_bots.IMPORT_STACK_CODE)
        milliseconds = measured_bots.milliseconds_since(start_time)
    await pool.forget(key)
    return milliseconds


async def _measure_trips(count: int, pool: pools.Pool) -> list[metrics.Measure]:
    pool_times, stock_times = [], []
    async with stock_jupyter.open_kernel() as client, pool.lease("round trips") as lease:
        kernel = await lease.kernel()
        await measured_bots.wait_for_spares(pool, _SPARES)
        for _ in range(10):
            await stock_jupyter.time_trip(client)
            await measured_bots.time_trip(kernel)
        for _ in range(count):
            stock_times.append(await stock_jupyter.time_trip(client))
            pool_times.append(await measured_bots.time_trip(kernel))
    alternative = metrics.Alternative("raw execute_interactive", stock_times)
    name = "1+1 round trip"
    return [metrics.Measure(name, "ms", pool_times, alternative=alternative, least_ratio=1.0)]
