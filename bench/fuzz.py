"""Lag of the event loop under random hostile input, and under each known hostile message."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot import values
from interpreter_bot.kernels import pools

_IDLE_TRIPS = 200
_BETWEEN_TRIPS_SECONDS = 0.01
_MAX_MESSAGES = 100_000
_MESSAGES_A_KIND = 3
# In addition to the messages of the attack tests.
_FLOODS = {
    "foreign messages, by the thousand": (
        "",
        "sent = session.serialize(session.msg('stream', stream, {'msg_id': 'another'}))\n"
        f"for _ in range({_MAX_MESSAGES}): iopub.send_multipart([b'x', *sent])",
    ),
    "states, by the thousand": (
        "",
        "sent = session.serialize(session.msg('status', {}, parent))\n"
        f"for _ in range({_MAX_MESSAGES}): iopub.send_multipart([b'x', *sent])",
    ),
    "parts without end": ("", "iopub.send_multipart([b'x'] * 1_000_000)"),
}


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Run the fuzz tests, then let a kernel send each hostile message."""
    figures = await measured_bots.run_in_own_process("bench.fuzz", "cases", effort.fuzz_cases)
    notes = {key: figures[key] for key in ("cases", "seconds")}
    measures = [
        metrics.Measure("fuzz: a step of a case", "ms", figures["steps"], "p99", 20.0, notes=notes),
        metrics.Measure("fuzz: the longest step", "ms", figures["longest"], "most", 50.0),
    ]
    figures = await measured_bots.run_in_own_process("bench.fuzz", "messages")
    idle = metrics.Alternative("the same session before", figures["idle"])
    for name, lags in figures["lags"].items():
        during, notes = figures["during"][name], {"ending": figures["endings"][name]}
        measures += [
            metrics.Measure(f"{name}: loop lag", "ms", lags, "p99", 20.0, notes=notes),
            metrics.Measure(f"{name}: longest lag", "ms", [max(lags)], "most", 50.0),
            metrics.Measure(
                f"{name}: 1+1 of another", "ms", during, alternative=idle, least_ratio=1 / 3
            ),
        ]
    return measures


def _run_cases(cases: int) -> dict[str, Any]:
    os.environ["FUZZ_CASES"] = str(cases)
    from tests.unit.kernels import test_outputs_fuzz as test_fuzz

    start_time = time.monotonic()
    for name, check in vars(test_fuzz).items():
        if name.startswith("test_"):
            check()
    steps = sorted(seconds * 1000 for seconds in test_fuzz.SECONDS)
    # All steps would take megabytes, so keep a thousand quantiles and the longest steps.
    return {
        "cases": cases,
        "seconds": time.monotonic() - start_time,
        "steps": steps[:: max(1, len(steps) // 1000)],
        "longest": steps[-10:],
    }


async def _run_bot() -> dict[str, Any]:
    from tests.attacks import test_hostile_kernels

    figures: dict[str, Any] = {"idle": [], "during": {}, "lags": {}, "endings": {}}
    hostile = {
        name: (test_hostile_kernels.LONG, f"for _ in range({_MESSAGES_A_KIND}): raw(iopub, {sent})")
        for name, sent in test_hostile_kernels.HEAVY.items()
    }
    async with measured_bots.open_pool() as pool, pool.lease("other") as other_lease:
        # A full collection would be measured as a delay of the bot's.
        gc.freeze()
        await _send_all(hostile | _FLOODS, pool, other_lease, figures)
    return figures


async def _send_all(
    hostile: dict[str, tuple[str, str]],
    pool: pools.Pool,
    other_lease: pools.Lease,
    figures: dict[str, Any],
) -> None:
    from tests.attacks import raw_messages

    other_kernel = await other_lease.kernel()
    for _ in range(_IDLE_TRIPS):
        figures["idle"].append(await measured_bots.time_trip(other_kernel))
        await asyncio.sleep(_BETWEEN_TRIPS_SECONDS)
    for name, (preparation, attack) in hostile.items():
        during: list[float] = []
        lags: list[float] = []
        outputs: list[values.Output] = []
        async with pool.lease(name) as lease:
            kernel = await lease.kernel()
            await measured_bots.execute(kernel, f"{raw_messages.PRELUDE}{preparation}")
            async with measured_bots.running_meanwhile(measured_bots.record_lags(lags)):
                code = f"{raw_messages.PRELUDE}{attack}"
                execution = asyncio.create_task(
                    kernel.execute(code, show=outputs.append, seconds=20)
                )
                while not execution.done():
                    during.append(await measured_bots.time_trip(other_kernel))
                    await asyncio.sleep(_BETWEEN_TRIPS_SECONDS)
        finished = await execution
        figures["endings"][name] = f"{finished.ending} after {finished.seconds:.2f} s"
        figures["during"][name], figures["lags"][name] = during, lags
        await pool.forget(name)


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        print(json.dumps(_run_cases(int(sys.argv[2]))))
    else:
        print(json.dumps(asyncio.run(_run_bot())))
