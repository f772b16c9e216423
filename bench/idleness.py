"""What hundreds of idle kernels cost: the bot with its watch over them, and they themselves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from bench import measured_bots, metrics, sample_sizes

# Every session is frozen long before it ends.
_SETTLE_SECONDS = 30.0
_FREEZE_SECONDS = 1.0
_LOOKS = 5
_THAWED = 20


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it in bots of their own, with control groups where there are any, and without."""
    measures = []
    for groups, how in (("auto", "control groups"), ("off", "watched")):
        told = await measured_bots.apart(
            "bench.idleness", effort.frozen, effort.idle_seconds, groups
        )
        # Where there are no groups, both are the same.
        how = how if told["has_groups"] else "watched"
        measures.append(
            metrics.Measure(
                f"{effort.frozen} idle kernels, {how}: processor of bot and kernels",
                "% of a core",
                told["used"],
                bar=0.5,
                notes={"thawing_ms": told["thawing_ms"], "is_root": os.geteuid() == 0},
            )
        )
    return measures


async def _be_bot(count: int, seconds: float, groups: str) -> dict[str, Any]:
    told: dict[str, Any] = {"used": [], "thawing_ms": []}
    kernels = {"concurrent": count + 10, "spares": 2, "freeze_seconds": _FREEZE_SECONDS}
    async with measured_bots.pool(groups=groups, **kernels) as pool:
        for number in range(count):
            await measured_bots.execute(await pool.take(str(number)), measured_bots.STACK)
        everyone = [launched.provisioner.usage() for launched in pool.live.values()]
        told["has_groups"] = everyone[0].counted_bytes() is not None
        await asyncio.sleep(_SETTLE_SECONDS)
        for _ in range(_LOOKS):
            before = sum(one.cpu_seconds() for one in everyone)
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(seconds / _LOOKS)
            used, took = time.process_time() - used, time.monotonic() - began
            used += sum(one.cpu_seconds() for one in everyone) - before
            told["used"].append(100 * used / took)
        for launched in list(pool.live.values())[:_THAWED]:
            frozen, usual = [await measured_bots.trip(launched.kernel) for _ in range(2)]
            told["thawing_ms"].append(round(frozen - usual, 2))
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_be_bot(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))))
