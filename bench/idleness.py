"""What a hundred kernels cost that run nothing: the bot, with its watch over them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from bench import bots, efforts, figures

_SETTLE_SECONDS = 5.0
_LOOKS = 5


async def run(effort: efforts.Effort) -> list[figures.Measure]:
    """Measure it in bots of their own, with control groups where there are any, and without."""
    measures = []
    for groups, how in (("auto", "control groups"), ("off", "watched")):
        told = await bots.apart("bench.idleness", effort.sessions, effort.idle_seconds, groups)
        # Where there are no groups, both are the same.
        how = how if told["has_groups"] else "watched"
        measures.append(
            figures.Measure(
                f"{effort.sessions} idle kernels, {how}: processor of the bot",
                "% of a core",
                told["bot"],
                bar=1.0,
                notes={"kernels_seconds": told["kernels_seconds"], "is_root": os.geteuid() == 0},
            )
        )
    return measures


async def _be_bot(count: int, seconds: float, groups: str) -> dict[str, Any]:
    told: dict[str, Any] = {"bot": []}
    async with bots.pool(groups=groups, concurrent=count + 10, spares=2) as pool:
        for number in range(count):
            await bots.execute(await pool.take(str(number)), bots.STACK)
        everyone = [launched.provisioner for launched in pool.live.values()]
        told["has_groups"] = everyone[0].memory_bytes() is not None
        await asyncio.sleep(_SETTLE_SECONDS)
        before = sum(one.cpu_seconds() for one in everyone)
        for _ in range(_LOOKS):
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(seconds / _LOOKS)
            used, took = time.process_time() - used, time.monotonic() - began
            told["bot"].append(100 * used / took)
        told["kernels_seconds"] = sum(one.cpu_seconds() for one in everyone) - before
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_be_bot(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))))
