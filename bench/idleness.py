"""What hundreds of idle kernels cost: the bot with its watch over them, and they themselves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot.kernels import live_kernels

# Where sessions can be frozen, each is long before this ends.
_SETTLE_SECONDS = 30.0
_FREEZE_SECONDS = 1.0
_LOOKS = 5
_THAWED = 20
_WATCHED = "watched"


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it in bots of their own, with control groups if there are any, and without.

    Only control groups of version 2, perhaps beside those of version 1, freeze idle sessions.
    """
    measures = []
    for groups in ("auto", "off"):
        figures = await measured_bots.run_in_own_process(
            "bench.idleness", effort.unused, effort.idle_seconds, groups
        )
        measures.append(
            metrics.Measure(
                f"{effort.unused} idle kernels, {figures['how']}: processor of bot and kernels",
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
        # Without groups, both are the same.
        if figures["how"] == _WATCHED:
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
        usages = [kernel.provisioner.usage() for kernel in kernels]
        figures["how"] = _how(kernels[0])
        await asyncio.sleep(_SETTLE_SECONDS)
        for _ in range(_LOOKS):
            before = sum(usage.cpu_seconds() for usage in usages)
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(seconds / _LOOKS)
            used, took = time.process_time() - used, time.monotonic() - began
            used += sum(usage.cpu_seconds() for usage in usages) - before
            figures["used"].append(100 * used / took)
        frozen = [kernel for kernel in kernels if kernel.is_frozen]
        figures["frozen"] = len(frozen)
        for kernel in frozen[:_THAWED]:
            thawing, usual = [await measured_bots.time_trip(kernel) for _ in range(2)]
            figures["thawing_ms"].append(round(thawing - usual, 2))
    return figures


def _how(kernel: live_kernels.Kernel) -> str:
    if kernel.provisioner.can_freeze:
        return "control groups"
    is_grouped = kernel.provisioner.usage().is_counted
    return "control groups that cannot freeze" if is_grouped else _WATCHED


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))))
