"""Memory and lag of a bot with a hundred live sessions, of which eight compute."""

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

_COMPUTING_SESSIONS = 8
_DESCRIBE_CODE = "import pandas as pd; pd.DataFrame({'a':[1,2,3]}).describe()"
_COMPUTE_CODE = """
import time, numpy as np
end = time.monotonic() + {seconds}
a = np.random.default_rng().random((300, 300))
while time.monotonic() < end:
    (a @ a).sum()
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure in a bot of its own."""
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
            f"{sessions}, {_COMPUTING_SESSIONS} computing: loop lag",
            "ms",
            figures["lags"],
            "p99",
            bar=50.0,
            alternative=metrics.Alternative("nobody computing", figures["lags_idle"]),
            notes={"computed": figures["computed"]},
        ),
        metrics.Measure(
            f"({sessions}, {_COMPUTING_SESSIONS} computing: 1+1 of another)", "ms", figures["trips"]
        ),
    ]


async def _run_bot(count: int, seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {
        name: [] for name in ("sizes", "lags", "lags_idle", "answers", "trips")
    }
    figures["size_before"] = measured_bots.read_resident_megabytes()
    size_by_step = figures["size_by_step"] = {}
    async with measured_bots.open_pool(concurrent=count + 10, spares=2) as pool:
        size_by_step["pool open"] = measured_bots.read_resident_megabytes()
        async with measured_bots.running_meanwhile(measured_bots.record_sizes(figures["sizes"])):
            start_time = time.perf_counter()
            outcomes = await asyncio.gather(
                *(_ask(pool, f"session {number}", figures["answers"]) for number in range(count))
            )
            figures["all_started"] = measured_bots.milliseconds_since(start_time)
            figures["unanswered"] = outcomes.count(False)
            size_by_step["all live"] = measured_bots.read_resident_megabytes()
            if len(pool.kernels) != count:
                raise RuntimeError(f"{len(pool.kernels)} sessions are alive")
            async with measured_bots.running_meanwhile(
                measured_bots.record_lags(figures["lags_idle"])
            ):
                await asyncio.sleep(seconds / 2)
            async with measured_bots.running_meanwhile(measured_bots.record_lags(figures["lags"])):
                figures["computed"] = await _compute(pool, seconds, figures["trips"])
            size_by_step["computed"] = measured_bots.read_resident_megabytes()
    return figures


async def _ask(pool: pools.Pool, key: str, times: list[float]) -> bool:
    """Start a session and use pandas in it; return whether the table came."""
    outputs: list[values.Output] = []
    start_time = time.perf_counter()
    async with pool.lease(key) as lease:
        finished = await (await lease.kernel()).execute(_DESCRIBE_CODE, show=outputs.append)
    times.append(measured_bots.milliseconds_since(start_time))
    has_table = any(isinstance(output, values.Table) for output in outputs)
    return finished.ending is values.Ending.OK and has_table


async def _compute(pool: pools.Pool, seconds: float, trips: list[float]) -> list[str]:
    """Let some sessions compute while another one answers; return the endings of the former."""
    code = _COMPUTE_CODE.format(seconds=seconds)
    async with contextlib.AsyncExitStack() as stack:
        keys = [f"session {number}" for number in range(_COMPUTING_SESSIONS + 1)]
        leases = [await stack.enter_async_context(pool.lease(key)) for key in keys]
        *kernels, other_kernel = [await lease.kernel() for lease in leases]
        executions = asyncio.gather(*(kernel.execute(code, show=print) for kernel in kernels))
        while not executions.done():
            trips.append(await measured_bots.time_trip(other_kernel))
            await asyncio.sleep(0.1)
        return [finished.ending.value for finished in await executions]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1]), float(sys.argv[2])))))
