"""What it takes to save variables of real sessions, and to bring them back, beside cloudpickle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Final

from bench import measured_bots, metrics, sample_sizes, snapshot_edge_cases
from interpreter_bot import values
from interpreter_bot.kernels import live_kernels, pools, session_forks

_FRAME: Final = """
import numpy, pandas
frame = pandas.DataFrame(numpy.random.default_rng(1).random(({rows}, 4)), columns=list("abcd"))
threshold = 0.5
def above(): return frame[frame.a > threshold]
"""
_MODELS: Final = """
import numpy, pandas
from sklearn import ensemble
numbers = numpy.random.default_rng(1).random(({rows}, 10))
table = pandas.DataFrame(numbers, columns=list("abcdefghij"))
del numbers
part = table.iloc[:2000]
models = {{
    n: ensemble.RandomForestRegressor(20, random_state=n).fit(part[list("bcd")], part.a)
    for n in range(6)
}}
best = models[0]
"""
_DUMP: Final = """
import cloudpickle, os, time
begun = time.perf_counter()
with open("/mnt/data/all.pickle", "wb") as file:
    cloudpickle.dump({"table": table, "part": part, "models": models, "best": best}, file, 5)
    file.flush()
    os.fsync(file.fileno())
print(time.perf_counter() - begun)
"""
_LOAD: Final = """
import cloudpickle, time
begun = time.perf_counter()
with open("/mnt/data/all.pickle", "rb") as file: globals().update(cloudpickle.load(file))
print(time.perf_counter() - begun)
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it with sessions of 328 MB, and of a million rows with six models."""
    rows = effort.rows
    saved, back, nothing, waits, noted = [], [], [], [], []
    theirs_saved, theirs_back = [], []
    models_saved, models_back, models_restored = [], [], []
    async with measured_bots.open_pool(spares=2) as pool:
        for turn in range(effort.snapshots):
            key = f"frame {turn}"
            kernel = await pool.take(key)
            await measured_bots.execute(kernel, _FRAME.format(rows=10 * rows))
            waits.append(await _wait_while_saving(pool, key))
            saved.append(await _save(pool, key))
            nothing.append(await _cpu_of_saving(pool, key))
            noted.append(await _wait_for_checkpoint(pool, key))
            back.append(await _bring_back(pool, key, "frame.iat[0, 0] > threshold"))
            key = f"models {turn}"
            kernel = await pool.take(key)
            await measured_bots.execute(kernel, _MODELS.format(rows=rows))
            models_saved.append(await _save(pool, key))
            theirs_saved.append(1000 * float(await _printed(kernel, _DUMP)))
            with _timed_restore(pool, models_restored):
                models_back.append(await _bring_back(pool, key, "best is models[0]"))
            other = await pool.take(f"theirs {turn}")
            async with (await pool.workspace(key)).read("all.pickle") as content:
                await (await pool.workspace(f"theirs {turn}")).put("all.pickle", content)
            theirs_back.append(1000 * float(await _printed(other, _LOAD)))
            for name in (key, f"frame {turn}", f"theirs {turn}"):
                await pool.forget(name)
    size = f"{32 * 10 * rows / measured_bots.MEGABYTE:.0f} MB"
    models = f"{rows:,} rows and 6 models"
    return [
        await _odd(),
        metrics.Measure(f"{size}: saved", "ms", saved, bar=1000.0),
        metrics.Measure(f"{size}: checkpoint with nothing new", "CPU ms", nothing, bar=300.0),
        metrics.Measure(f"{size}: who comes then waits to have it noted", "ms", noted, bar=20.0),
        metrics.Measure(f"{size}: back in another kernel", "ms", back, bar=100.0),
        metrics.Measure(f"{size}: who comes while it is saved waits", "ms", waits, bar=20.0),
        metrics.Measure(
            f"{models}: saved and read back to check",
            "ms",
            models_saved,
            alternative=metrics.Alternative("cloudpickle, not checked", theirs_saved),
            least_ratio=1 / 1.5,
        ),
        metrics.Measure(
            f"{models}: loaded",
            "ms",
            models_restored,
            alternative=metrics.Alternative("cloudpickle", theirs_back),
            least_ratio=1 / 0.5,
        ),
        metrics.Measure(f"{models}: back in another kernel", "ms", models_back),
    ]


async def _odd() -> metrics.Measure:
    """Count the odd objects that do not come back in a real kernel, each with its reason."""
    async with measured_bots.open_pool(spares=2) as pool:
        await measured_bots.execute(await pool.take("odd"), snapshot_edge_cases.CODE)
        await _save(pool, "odd")
        await _bring_back(pool, "odd", "Plain")
        saved = pool.kernels["odd"].restored
    assert saved is not None, "nothing came back"
    lost = {name: why for name, why in saved.lost if name in snapshot_edge_cases.NAMES}
    every = len(snapshot_edge_cases.NAMES)
    name = f"{every} odd objects: lost, each with its reason"
    return metrics.Measure(name, "objects", [len(lost)], bar=every - 86, notes={"lost": lost})


async def _save(pool: pools.Pool, key: str) -> float:
    """Save a session; milliseconds."""
    begun = time.perf_counter()
    await pool.save_variables(key)
    return measured_bots.milliseconds(begun)


async def _cpu_of_saving(pool: pools.Pool, key: str) -> float:
    """Milliseconds of processor time that it takes to save a session where nothing is new."""
    kernel = pool.kernels[key]
    usage = kernel.provisioner.usage()
    # What saved it before is waited for with the next code, and counts then.
    await measured_bots.time_trip(kernel)
    before = await asyncio.to_thread(usage.cpu_seconds)
    await pool.save_variables(key)
    await measured_bots.time_trip(kernel)
    return 1000 * (await asyncio.to_thread(usage.cpu_seconds) - before)


async def _wait_for_checkpoint(pool: pools.Pool, key: str) -> float:
    """Milliseconds that the first code of a turn waits until what is saved is noted."""
    await pool.save_variables(key)
    begun = time.perf_counter()
    await session_forks.SessionForks(pool).create_checkpoint(key, "1")
    return measured_bots.milliseconds(begun)


async def _wait_while_saving(pool: pools.Pool, key: str) -> float:
    """Milliseconds that an execution takes longer while its session is saved."""
    kernel = pool.kernels[key]
    saving = asyncio.create_task(pool.save_variables(key))
    await asyncio.sleep(0.2)
    during, usual = [await measured_bots.time_trip(kernel) for _ in range(2)]
    await saving
    return during - usual


async def _bring_back(pool: pools.Pool, key: str, code: str) -> float:
    """Milliseconds from a kernel's start to the first result with old variables."""
    pool.kernels[key].kill_with_reason(values.Ending.STOPPED, "It is lost.")
    await pool.kernels[key].provisioner.ended.wait()
    await measured_bots.wait_for_spares(pool, 2)
    begun = time.perf_counter()
    await measured_bots.execute(await pool.take(key), code)
    return measured_bots.milliseconds(begun)


@contextlib.contextmanager
def _timed_restore(pool: pools.Pool, into: list[float]) -> Iterator[None]:
    """Note how many milliseconds a kernel that is there already takes to have variables back."""
    restore = pool.snapshots.restore

    async def timed(kernel: live_kernels.Kernel) -> bool:
        begun = time.perf_counter()
        try:
            return await restore(kernel)
        finally:
            into.append(measured_bots.milliseconds(begun))

    pool.snapshots.restore = timed
    try:
        yield
    finally:
        del pool.snapshots.restore


async def _printed(kernel: live_kernels.Kernel, code: str) -> str:
    shown: list[values.Output] = []
    await kernel.execute(code, show=shown.append)
    return shown[0].plain
