"""Processor time of hundreds of idle kernels, and of the bot that watches them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot.kernels import live_kernels

# Long enough for each session to be frozen, if sessions can be frozen.
_SETTLE_SECONDS = 30.0
_FREEZE_SECONDS = 1.0
_SAMPLES = 5
_THAWED_KERNELS = 20
_WATCHED = "watched"


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure in separate bots, with control groups if the machine has any, and without.

    Only control groups of version 2, perhaps beside those of version 1, freeze idle sessions.
    """
    measures = []
    name = f"{effort.unused_sessions} idle kernels"
    for groups in ("auto", "off"):
        figures = await measured_bots.run_in_own_process(
            "bench.idleness", effort.unused_sessions, effort.idle_seconds, groups
        )
        measures.append(
            metrics.Measure(
                f"{name}, {figures['mechanism']}: processor of bot and kernels",
                "% of a core",
                figures["used"],
                bar=1.0,
                notes={
                    "frozen": figures["frozen"],
                    "thawing_ms": figures["thawing_ms"],
                    "is_root": os.geteuid() == 0,
                },
            )
        )
        # Without control groups both runs would be the same.
        if figures["mechanism"] == _WATCHED:
            break
    return measures


async def _run_bot(count: int, seconds: float, groups: str) -> dict[str, Any]:
    figures: dict[str, Any] = {"used": [], "thawing_ms": []}
    options = {"concurrent": count + 10, "spares": 2, "freeze_seconds": _FREEZE_SECONDS}
    async with measured_bots.open_pool(groups=groups, **options) as pool:
        for number in range(count):
            await measured_bots.execute(
                await pool.take(str(number)), measured_bots.IMPORT_STACK_CODE
            )
        kernels = list(pool.kernels.values())
        usages = [kernel.provisioner.meter() for kernel in kernels]
        figures["mechanism"] = _describe_mechanism(kernels[0])
        await asyncio.sleep(_SETTLE_SECONDS)
        for _ in range(_SAMPLES):
            cpu_before = sum(usage.cpu_seconds() for usage in usages)
            start_time, cpu_seconds = time.monotonic(), time.process_time()
            await asyncio.sleep(seconds / _SAMPLES)
            cpu_seconds, elapsed = time.process_time() - cpu_seconds, time.monotonic() - start_time
            cpu_seconds += sum(usage.cpu_seconds() for usage in usages) - cpu_before
            figures["used"].append(100 * cpu_seconds / elapsed)
        frozen = [kernel for kernel in kernels if kernel.is_frozen]
        figures["frozen"] = len(frozen)
        for kernel in frozen[:_THAWED_KERNELS]:
            thawing_ms, usual_ms = [await measured_bots.time_trip(kernel) for _ in range(2)]
            figures["thawing_ms"].append(round(thawing_ms - usual_ms, 2))
    return figures


def _describe_mechanism(kernel: live_kernels.Kernel) -> str:
    if kernel.provisioner.can_freeze:
        return "control groups"
    is_grouped = kernel.provisioner.meter().is_counted
    return "control groups that cannot freeze" if is_grouped else _WATCHED


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))))
