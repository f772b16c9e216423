"""A hundred live sessions, and what they cost the bot while eight of them compute."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot import values
from interpreter_bot.kernels import pools

_COMPUTING = 8
_DESCRIBE = "import pandas as pd; pd.DataFrame({'a':[1,2,3]}).describe()"
_COMPUTE = """
import time, numpy as np
end = time.monotonic() + {seconds}
a = np.random.default_rng().random((300, 300))
while time.monotonic() < end:
    (a @ a).sum()
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it in a bot of its own."""
    figures = await measured_bots.run_in_own_process(
        "bench.many_sessions", effort.sessions, effort.computing_seconds
    )
    sessions = f"{effort.sessions} sessions"
    return [
        metrics.Measure(
            f"{sessions}: without an answer",
            "",
            [figures["unanswered"]],
            bar=0.0,
            notes={"answers_ms": figures["answers"], "all_started_ms": figures["all_started"]},
        ),
        metrics.Measure(
            f"{sessions}: memory of the bot",
            "MB",
            figures["sizes"],
            "most",
            bar=250.0,
            notes={"before": figures["size_before"], "by_step": figures["size_by_step"]},
        ),
        metrics.Measure(
            f"{sessions}, {_COMPUTING} computing: loop lag",
            "ms",
            figures["lags"],
            "p99",
            bar=50.0,
            alternative=metrics.Alternative("nobody computing", figures["lags_idle"]),
            notes={"computed": figures["computed"]},
        ),
        metrics.Measure(
            f"({sessions}, {_COMPUTING} computing: 1+1 of another)", "ms", figures["trips"]
        ),
    ]


async def _run_bot(count: int, seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {
        name: [] for name in ("sizes", "lags", "lags_idle", "answers", "trips")
    }
    figures["size_before"] = measured_bots.resident_megabytes()
    by_step = figures["size_by_step"] = {}
    async with measured_bots.open_pool(concurrent=count + 10, spares=2) as pool:
        by_step["pool open"] = measured_bots.resident_megabytes()
        async with measured_bots.running_meanwhile(measured_bots.record_sizes(figures["sizes"])):
            started = time.perf_counter()
            answered = await asyncio.gather(
                *(_ask(pool, f"session {number}", figures["answers"]) for number in range(count))
            )
            figures["all_started"] = measured_bots.milliseconds(started)
            figures["unanswered"] = answered.count(False)
            by_step["all live"] = measured_bots.resident_megabytes()
            if len(pool.kernels) != count:
                raise RuntimeError(f"{len(pool.kernels)} sessions are alive")
            async with measured_bots.running_meanwhile(
                measured_bots.record_lags(figures["lags_idle"])
            ):
                await asyncio.sleep(seconds / 2)
            async with measured_bots.running_meanwhile(measured_bots.record_lags(figures["lags"])):
                figures["computed"] = await _compute(pool, seconds, figures["trips"])
            by_step["computed"] = measured_bots.resident_megabytes()
    return figures


async def _ask(pool: pools.Pool, key: str, taken: list[float]) -> bool:
    """Start a session and let it use pandas; says whether the table came."""
    shown: list[values.Output] = []
    started = time.perf_counter()
    async with pool.lease(key) as lease:
        finished = await (await lease.kernel()).execute(_DESCRIBE, show=shown.append)
    taken.append(measured_bots.milliseconds(started))
    has_table = any(isinstance(output, values.Table) for output in shown)
    return finished.ending is values.Ending.OK and has_table


async def _compute(pool: pools.Pool, seconds: float, trips: list[float]) -> list[str]:
    """Let some compute and another one answer meanwhile; says how the former ended."""
    code = _COMPUTE.format(seconds=seconds)
    async with contextlib.AsyncExitStack() as held:
        keys = [f"session {number}" for number in range(_COMPUTING + 1)]
        leases = [await held.enter_async_context(pool.lease(key)) for key in keys]
        *kernels, other = [await lease.kernel() for lease in leases]
        computing = asyncio.gather(*(kernel.execute(code, show=print) for kernel in kernels))
        while not computing.done():
            trips.append(await measured_bots.time_trip(other))
            await asyncio.sleep(0.1)
        return [finished.ending.value for finished in await computing]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1]), float(sys.argv[2])))))
