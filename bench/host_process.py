"""What a kernel costs in a process of its own: each trip against the same in this process."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import tempfile
import time
import uuid
from collections.abc import AsyncIterator

from bench import bots, efforts, figures
from interpreter_bot import settings, values
from interpreter_bot.hosts import host_processes, local_host, ports

_SPARES = 2
_SETTLE_SECONDS = 0.2
_FIRST = "import pandas as pd; pd.DataFrame({'a': [1, 2]}).sum()"


async def run(effort: efforts.Effort) -> list[figures.Measure]:
    """Measure both in turns, so that they meet the same machine."""
    async with _opened() as (inside, apart):
        async with inside.lease("trips") as ours, apart.lease("trips") as theirs:
            near, far = await ours.kernel(), await theirs.kernel()
            trips: tuple[list[float], list[float]] = [], []
            for number in range(effort.trips + 10):
                for kernel, taken in zip((near, far), trips, strict=True):
                    began = time.perf_counter()
                    await _execute(kernel, "1+1")
                    if number >= 10:
                        taken.append(bots.milliseconds(began))
        firsts: tuple[list[float], list[float]] = [], []
        for number in range(effort.starts + 1):
            for host, taken in zip((inside, apart), firsts, strict=True):
                await asyncio.sleep(_SETTLE_SECONDS)
                key = f"session {number}"
                began = time.perf_counter()
                async with host.lease(key) as lease:
                    await _execute(await lease.kernel(), _FIRST)
                    if number:
                        taken.append(bots.milliseconds(began))
                await host.forget(key)
    more = [far - near for near, far in zip(*trips, strict=True)]
    return [
        figures.Measure(
            "(1+1 in a host process)",
            "ms",
            trips[1],
            alternative=figures.Alternative("in the bot's", trips[0]),
        ),
        figures.Measure("what the process costs of that", "ms", more, bar=0.8),
        figures.Measure(
            "spare → first pandas, in a host process",
            "ms",
            firsts[1],
            bar=15.0,
            alternative=figures.Alternative("in the bot's", firsts[0]),
        ),
    ]


async def _execute(kernel: ports.Kernel, code: str) -> None:
    end = await kernel.execute(code, execution_id=uuid.uuid4().hex, show=lambda *_: None)
    if end.finished.ending is not values.Ending.OK:
        raise RuntimeError(f"it ended {end}")


@contextlib.asynccontextmanager
async def _opened() -> AsyncIterator[tuple[ports.Hosts, ports.Hosts]]:
    """Open a host in this process and one in another."""
    with (
        tempfile.TemporaryDirectory(prefix="b-") as near,
        tempfile.TemporaryDirectory(prefix="b-") as far,
    ):
        async with (
            local_host.LocalHost.open(_config(near)) as inside,
            host_processes.open_host(_config(far), may_start=True) as apart,
        ):
            yield inside, apart


def _config(directory: str) -> settings.Settings:
    place = pathlib.Path(directory)
    return settings.Settings(
        kernels=settings.Kernels(spares=_SPARES),
        paths=settings.Paths(data=place / "d", runtime=place / "r"),
    )
