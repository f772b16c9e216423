"""A hundred sessions that start at once: the time to the first answer, and to all others."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys
import time
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot import errors
from interpreter_bot.kernels import pools

_LARGER_FACTOR = 2
_ROUNDS = 3


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure each burst in a bot of its own."""
    bursts = [
        await measured_bots.run_in_own_process("bench.bursts", effort.sessions)
        for _ in range(_ROUNDS)
    ]
    larger_burst = await measured_bots.run_in_own_process(
        "bench.bursts", _LARGER_FACTOR * effort.sessions
    )
    sessions = f"{effort.sessions} sessions start at once"
    return [
        metrics.Measure(
            f"{sessions}: the first answer",
            "ms",
            [burst["answers"][0] for burst in bursts],
            "most",
            bar=300.0,
        ),
        metrics.Measure(
            f"{sessions}: an answer",
            "ms",
            [answer for burst in bursts for answer in burst["answers"]],
        ),
        metrics.Measure(
            f"{sessions}: the last answer",
            "ms",
            [burst["answers"][-1] for burst in bursts],
        ),
        metrics.Measure(
            f"{sessions}: processor of the whole machine for each",
            "CPU ms",
            [burst["cpu_ms"] / effort.sessions for burst in bursts],
            bar=60.0,
        ),
        metrics.Measure(
            f"{sessions}: the median as a share of the last",
            "%",
            [_share(burst["answers"]) for burst in bursts],
            bar=55.0,
        ),
        metrics.Measure(
            f"{_LARGER_FACTOR * effort.sessions} sessions start at once: without an answer",
            "",
            [larger_burst["unanswered"]],
            bar=0.0,
            notes={"answers_ms": larger_burst["answers"]},
        ),
    ]


def _share(answers: list[float]) -> float:
    return 100 * metrics.percentile(answers, 0.5) / answers[-1]


async def _run_bot(count: int) -> dict[str, Any]:
    """Start all sessions at once; return the milliseconds to each answer, in order."""
    answers: list[float] = []
    # A spare kernel stands by only once the server that forks kernels has imported the stack.
    async with measured_bots.open_pool(concurrent=count + 10, spares=1) as pool:
        start_time, cpu_before = time.perf_counter(), _machine_cpu_ms()
        sessions = [_ask(pool, str(number), start_time, answers) for number in range(count)]
        unanswered = (await asyncio.gather(*sessions)).count(False)
        cpu_ms = _machine_cpu_ms() - cpu_before
    return {"answers": answers, "unanswered": unanswered, "cpu_ms": cpu_ms}


def _machine_cpu_ms() -> float:
    """Return the busy milliseconds of all cores; nothing else may run on the machine meanwhile."""
    user, nice, system, *_ = map(int, pathlib.Path("/proc/stat").read_text().split()[1:5])
    return 1000 * (user + nice + system) / os.sysconf("SC_CLK_TCK")


async def _ask(pool: pools.Pool, key: str, start_time: float, answers: list[float]) -> bool:
    try:
        async with pool.lease(key) as lease:
            await measured_bots.execute(await lease.kernel(), measured_bots.IMPORT_STACK_CODE)
    except errors.BotError:
        return False
    answers.append(measured_bots.milliseconds_since(start_time))
    return True


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1])))))
