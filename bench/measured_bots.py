"""A bot of our own to measure: its pool in a place of its own, and what its process uses."""

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
_SPARES_SECONDS = 60.0
_SETTLING_SECONDS = 3.0

Conversations = session_service.SessionService


@contextlib.asynccontextmanager
async def open_pool(
    *, groups: Literal["auto", "off"] = "auto", **kernels: Any
) -> AsyncIterator[pools.Pool]:
    """Open a pool with the default settings but for these, and leave nothing of it.

    Args:
        groups: whether control groups are used where there are any.
        kernels: the settings of that group.
    """
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        place = pathlib.Path(name)
        bot = settings.Settings(
            limits=settings.Limits(),
            kernels=settings.Kernels(**kernels),
            sandbox=settings.Sandbox(cgroups=groups),
            snapshots=settings.Snapshots(),
            paths=settings.Paths(data=place / "data", runtime=place / "run"),
        )
        async with pools.Pool.open(bot) as opened:
            await wait_for_spares(opened, bot.kernels.spares)
            yield opened


@contextlib.asynccontextmanager
async def open_conversations(model: settings.Model, **kernels: Any) -> AsyncIterator[Conversations]:
    """Hold conversations with the default settings but for `kernels`, and leave nothing of it."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        place = pathlib.Path(name)
        bot = settings.Settings(
            models=(model,),
            kernels=settings.Kernels(**kernels),
            sessions=settings.Sessions(concurrent_turns=1000),
            paths=settings.Paths(data=place / "data", runtime=place / "run"),
        )
        async with app.open_service(bot, {}) as service:
            # The spares come up meanwhile.
            await asyncio.sleep(_SETTLING_SECONDS)
            yield service


async def wait_for_spares(of: pools.Pool, count: int) -> None:
    """Wait until that many kernels stand by."""
    async with asyncio.timeout(_SPARES_SECONDS):
        while of.spare_count < count:  # noqa: ASYNC110 - the pool has no event for it
            await asyncio.sleep(0.02)


async def wait_until_saved(service: Conversations, key: values.SessionKey, runs: int) -> None:
    """Wait until the variables are saved that so much code left; no person comes before that."""
    async with asyncio.timeout(_SPARES_SECONDS):
        while True:
            saved_variables = (await service.queries.variables(key)).saved
            if saved_variables is not None and saved_variables.run_count >= runs:
                return
            await asyncio.sleep(0.05)


async def execute(kernel: live_kernels.Kernel, code: str) -> None:
    """Run code that must end well; what it shows is dropped."""
    finished = await kernel.execute(code, show=_drop)
    if finished.ending is not values.Ending.OK:
        raise RuntimeError(f"{code!r} ended {finished.ending}: {finished.reason}")


async def time_trip(kernel: live_kernels.Kernel) -> float:
    """Milliseconds of one round trip."""
    started = time.perf_counter()
    await execute(kernel, SUM_CODE)
    return milliseconds(started)


def milliseconds(started: float) -> float:
    """Milliseconds since a reading of `time.perf_counter`."""
    return (time.perf_counter() - started) * 1000


def resident_megabytes() -> float:
    """What this process holds in memory."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / MEGABYTE


async def record_lags(into: list[float]) -> None:
    """Note for ever how many milliseconds late the event loop is."""
    pause = 0.005
    while True:
        started = time.perf_counter()
        await asyncio.sleep(pause)
        into.append(milliseconds(started) - pause * 1000)


async def record_sizes(into: list[float]) -> None:
    """Note for ever what this process holds in memory."""
    while True:
        into.append(resident_megabytes())
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running_meanwhile(*notes: Any) -> AsyncIterator[None]:
    """Run coroutines that never end meanwhile."""
    tasks = [asyncio.create_task(note) for note in notes]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_in_own_process(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module of ours as a process of its own; it prints one JSON object.

    What else this process imported and measured then says nothing about the bot's memory.
    """
    words = [sys.executable, "-m", module, *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} exited with {process.returncode}")
    figures: dict[str, Any] = json.loads(output)
    return figures


def _drop(_: values.Output) -> None:
    """Show nobody."""
