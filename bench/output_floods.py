"""A cell that prints without end: the bot's memory, and the delay of another session."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot import values

_FLOODS = {
    "print": "while True: print('x' * 80)",
    "print, flushed": "while True: print('x' * 80, flush=True)",
    "descriptor 1": "import os\nwhile True: os.write(1, b'x' * 80)",
}
_IDLE_TRIPS = 200
_BETWEEN_TRIPS_SECONDS = 0.01


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure each kind of flood in a bot of its own."""
    measures = []
    for name in _FLOODS:
        figures = await measured_bots.run_in_own_process(
            "bench.output_floods", name, effort.flood_seconds
        )
        notes = {key: figures[key] for key in ("ending", "shown_bytes", "shown", "bot_cpu_share")}
        growth = [size - figures["size_before"] for size in figures["sizes"]]
        idle = metrics.Alternative("the same session before", figures["idle"])
        measures += [
            metrics.Measure(f"flood ({name}): the bot grows", "MB", growth, "most", 32.0, None),
            metrics.Measure(
                f"flood ({name}): 1+1 of another",
                "ms",
                figures["during"],
                alternative=idle,
                least_ratio=1 / 3,
                notes=notes,
            ),
            metrics.Measure(f"(flood ({name}): loop lag)", "ms", figures["lags"], "p99"),
        ]
    return measures


async def _run_bot(code: str, seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {name: [] for name in ("sizes", "lags", "idle", "during")}
    output_sizes: list[int] = []

    def show(output: values.Output) -> None:
        output_sizes.append(len(output.plain))

    async with (
        measured_bots.open_pool() as pool,
        pool.lease("flooding") as flood_lease,
        pool.lease("other") as other_lease,
    ):
        flood_kernel, other_kernel = await flood_lease.kernel(), await other_lease.kernel()
        await measured_bots.execute(flood_kernel, "print('x' * 80)")
        await measured_bots.wait_for_spares(pool, 2)
        for _ in range(_IDLE_TRIPS):
            figures["idle"].append(await measured_bots.time_trip(other_kernel))
            await asyncio.sleep(_BETWEEN_TRIPS_SECONDS)
        figures["size_before"] = measured_bots.read_resident_megabytes()
        cpu_before = sum(os.times()[:2])
        async with measured_bots.running_meanwhile(
            measured_bots.record_sizes(figures["sizes"]), measured_bots.record_lags(figures["lags"])
        ):
            flood = asyncio.create_task(flood_kernel.execute(code, show=show, seconds=seconds))
            while not flood.done():
                figures["during"].append(await measured_bots.time_trip(other_kernel))
                await asyncio.sleep(_BETWEEN_TRIPS_SECONDS)
        finished = await flood
        figures["bot_cpu_share"] = (sum(os.times()[:2]) - cpu_before) / finished.seconds
        figures["ending"] = f"{finished.ending} after {finished.seconds:.2f} s. {finished.reason}"
        figures["shown"], figures["shown_bytes"] = len(output_sizes), sum(output_sizes)
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run_bot(_FLOODS[sys.argv[1]], float(sys.argv[2])))))
