"""Bots to measure: a pool or a service in a temporary directory, and meters of their process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup as app
from interpreter_bot.kernels import live_kernels, pools
from interpreter_bot.sessions import session_service

IMPORT_STACK_CODE = "import numpy, pandas, matplotlib.pyplot"
SUM_CODE = "1+1"
MEGABYTE = 1_000_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAX_WAIT_SECONDS = 60.0
_SETTLING_SECONDS = 3.0

Conversations = session_service.SessionService


@contextlib.asynccontextmanager
async def open_pool(
    *, groups: Literal["auto", "off"] = "auto", **kernels: Any
) -> AsyncIterator[pools.Pool]:
    """Open a pool with the default settings but for these; remove its files afterwards.

    Args:
        groups: whether control groups are used if the machine has any.
        kernels: settings of the group `kernels`.
    """
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        directory, sandbox = pathlib.Path(name), settings.Sandbox()
        config = settings.Settings(
            limits=settings.Limits(),
            kernels=settings.Kernels(**kernels),
            sandbox=sandbox if groups == "auto" else sandbox.without_cgroups(),
            snapshots=settings.Snapshots(),
            paths=settings.Paths(data=directory / "data", runtime=directory / "run"),
        )
        async with pools.Pool.open(config) as pool:
            await wait_for_spares(pool, config.kernels.spares)
            yield pool


@contextlib.asynccontextmanager
async def open_conversations(model: settings.Model, **kernels: Any) -> AsyncIterator[Conversations]:
    """Open a service with the default settings but for these; remove its files afterwards."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        directory = pathlib.Path(name)
        config = settings.Settings(
            models=(model,),
            kernels=settings.Kernels(**kernels),
            sessions=settings.Sessions(concurrent_turns=1000),
            paths=settings.Paths(data=directory / "data", runtime=directory / "run"),
        )
        async with app.open_service(config, {}) as service:
            # Spare kernels start meanwhile.
            await asyncio.sleep(_SETTLING_SECONDS)
            yield service


async def wait_for_spares(pool: pools.Pool, count: int) -> None:
    """Wait until that many spare kernels are ready."""
    async with asyncio.timeout(_MAX_WAIT_SECONDS):
        while pool.spare_count < count:  # noqa: ASYNC110 - the pool has no event for it
            await asyncio.sleep(0.02)


async def wait_until_saved(service: Conversations, key: values.SessionKey, runs: int) -> None:
    """Wait until the variables are saved after that many runs of code, as people come later."""
    async with asyncio.timeout(_MAX_WAIT_SECONDS):
        while True:
            saved_variables = (await service.queries.variables(key)).saved
            if saved_variables is not None and saved_variables.run_count >= runs:
                return
            await asyncio.sleep(0.05)


async def execute(kernel: live_kernels.Kernel, code: str) -> None:
    """Run code that must succeed; drop its output."""
    finished = await kernel.execute(code, show=_drop)
    if finished.ending is not values.Ending.OK:
        raise RuntimeError(f"{code!r} ended {finished.ending}: {finished.reason}")


async def time_trip(kernel: live_kernels.Kernel) -> float:
    """Return the milliseconds of one round trip."""
    start_time = time.perf_counter()
    await execute(kernel, SUM_CODE)
    return milliseconds_since(start_time)


def milliseconds_since(start_time: float) -> float:
    """Return the milliseconds since a reading of `time.perf_counter`."""
    return (time.perf_counter() - start_time) * 1000


def read_resident_megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / MEGABYTE


async def record_lags(lags: list[float]) -> None:
    """Record the lag of the event loop in milliseconds, again and again; never ends."""
    pause = 0.005
    while True:
        start_time = time.perf_counter()
        await asyncio.sleep(pause)
        lags.append(milliseconds_since(start_time) - pause * 1000)


async def record_sizes(sizes: list[float]) -> None:
    """Record the resident memory of this process, again and again; never ends."""
    while True:
        sizes.append(read_resident_megabytes())
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running_meanwhile(*coroutines: Any) -> AsyncIterator[None]:
    """Run coroutines that never end during the block."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_in_own_process(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module of this package in a new process; return the JSON object that it prints.

    So the imports and measurements of this process do not add to the bot's memory.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}")
    figures: dict[str, Any] = json.loads(output)
    return figures


def _drop(_: values.Output) -> None:
    """Ignore the output."""
