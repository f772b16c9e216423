"""Time to save and restore the variables of real sessions, compared with cloudpickle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Final

from bench import measured_bots, metrics, sample_sizes, snapshot_edge_cases
from interpreter_bot import values
from interpreter_bot.kernels import live_kernels, pools, session_forks

_FRAME_CODE: Final = """
import numpy, pandas
frame = pandas.DataFrame(numpy.random.default_rng(1).random(({rows}, 4)), columns=list("abcd"))
threshold = 0.5
def above(): return frame[frame.a > threshold]
"""
_MODELS_CODE: Final = """
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
_DUMP_CODE: Final = """
import cloudpickle, os, time
begun = time.perf_counter()
with open("/mnt/data/all.pickle", "wb") as file:
    cloudpickle.dump({"table": table, "part": part, "models": models, "best": best}, file, 5)
    file.flush()
    os.fsync(file.fileno())
print(time.perf_counter() - begun)
"""
_LOAD_CODE: Final = """
import cloudpickle, time
begun = time.perf_counter()
with open("/mnt/data/all.pickle", "rb") as file: globals().update(cloudpickle.load(file))
print(time.perf_counter() - begun)
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure with a table of ten million rows, and with one of a million rows and six models."""
    rows = effort.rows
    frame_saves, frame_restores, unchanged_saves, execution_waits, checkpoint_waits = (
        [],
        [],
        [],
        [],
        [],
    )
    cloudpickle_saves, cloudpickle_loads = [], []
    model_saves, model_restores, model_loads = [], [], []
    async with measured_bots.open_pool(spares=2) as pool:
        for turn in range(effort.snapshots):
            key = f"frame {turn}"
            kernel = await pool.take(key)
            await measured_bots.execute(kernel, _FRAME_CODE.format(rows=10 * rows))
            execution_waits.append(await _time_wait_for_save(pool, key))
            frame_saves.append(await _time_save(pool, key))
            unchanged_saves.append(await _time_unchanged_save(pool, key))
            checkpoint_waits.append(await _time_checkpoint(pool, key))
            frame_restores.append(await _time_restore(pool, key, "frame.iat[0, 0] > threshold"))
            key = f"models {turn}"
            kernel = await pool.take(key)
            await measured_bots.execute(kernel, _MODELS_CODE.format(rows=rows))
            model_saves.append(await _time_save(pool, key))
            cloudpickle_saves.append(1000 * float(await _run_and_read(kernel, _DUMP_CODE)))
            with _recording_loads(pool, model_loads):
                model_restores.append(await _time_restore(pool, key, "best is models[0]"))
            other_kernel = await pool.take(f"theirs {turn}")
            async with (await pool.workspace(key)).read("all.pickle") as content:
                await (await pool.workspace(f"theirs {turn}")).put("all.pickle", content)
            cloudpickle_loads.append(1000 * float(await _run_and_read(other_kernel, _LOAD_CODE)))
            for name in (key, f"frame {turn}", f"theirs {turn}"):
                await pool.forget(name)
    size = f"{32 * 10 * rows / measured_bots.MEGABYTE:.0f} MB"
    models = f"{rows:,} rows and 6 models"
    return [
        await _measure_odd_objects(),
        metrics.Measure(f"{size}: saved", "ms", frame_saves, bar=1000.0),
        metrics.Measure(
            f"{size}: checkpoint with nothing new", "CPU ms", unchanged_saves, bar=300.0
        ),
        metrics.Measure(
            f"{size}: who comes then waits to have it noted", "ms", checkpoint_waits, bar=20.0
        ),
        metrics.Measure(f"{size}: back in another kernel", "ms", frame_restores, bar=100.0),
        metrics.Measure(
            f"{size}: who comes while it is saved waits", "ms", execution_waits, bar=20.0
        ),
        metrics.Measure(
            f"{models}: saved and read back to check",
            "ms",
            model_saves,
            alternative=metrics.Alternative("cloudpickle, not checked", cloudpickle_saves),
            least_ratio=1 / 1.5,
        ),
        metrics.Measure(
            f"{models}: loaded",
            "ms",
            model_loads,
            alternative=metrics.Alternative("cloudpickle", cloudpickle_loads),
            least_ratio=1 / 0.5,
        ),
        metrics.Measure(f"{models}: back in another kernel", "ms", model_restores),
    ]


async def _measure_odd_objects() -> metrics.Measure:
    """Count the odd objects that a real kernel does not restore."""
    async with measured_bots.open_pool(spares=2) as pool:
        await measured_bots.execute(await pool.take("odd"), snapshot_edge_cases.CODE)
        await _time_save(pool, "odd")
        await _time_restore(pool, "odd", "Plain")
        snapshot = pool.kernels["odd"].restored_variables
    assert snapshot is not None, "nothing came back"
    losses = {name: reason for name, reason in snapshot.lost if name in snapshot_edge_cases.NAMES}
    object_count = len(snapshot_edge_cases.NAMES)
    name = f"{object_count} odd objects: lost, each with its reason"
    return metrics.Measure(
        name, "objects", [len(losses)], bar=object_count - 86, notes={"lost": losses}
    )


async def _time_save(pool: pools.Pool, key: str) -> float:
    """Save a session; return the milliseconds."""
    start_time = time.perf_counter()
    await pool.save_variables(key)
    return measured_bots.milliseconds_since(start_time)


async def _time_unchanged_save(pool: pools.Pool, key: str) -> float:
    """Save a session without changes; return the milliseconds of processor time."""
    kernel = pool.kernels[key]
    usage = kernel.provisioner.meter()
    # The next code waits for the earlier save, whose time must not count here.
    await measured_bots.time_trip(kernel)
    cpu_before = await asyncio.to_thread(usage.cpu_seconds)
    await pool.save_variables(key)
    await measured_bots.time_trip(kernel)
    return 1000 * (await asyncio.to_thread(usage.cpu_seconds) - cpu_before)


async def _time_checkpoint(pool: pools.Pool, key: str) -> float:
    """Save a session; return the milliseconds that its next checkpoint takes."""
    await pool.save_variables(key)
    start_time = time.perf_counter()
    await session_forks.SessionForks(pool).create_checkpoint(key, "1")
    return measured_bots.milliseconds_since(start_time)


async def _time_wait_for_save(pool: pools.Pool, key: str) -> float:
    """Return the milliseconds that an execution takes longer while its session is saved."""
    kernel = pool.kernels[key]
    saving = asyncio.create_task(pool.save_variables(key))
    await asyncio.sleep(0.2)
    slowed_ms, usual_ms = [await measured_bots.time_trip(kernel) for _ in range(2)]
    await saving
    return slowed_ms - usual_ms


async def _time_restore(pool: pools.Pool, key: str, code: str) -> float:
    """Kill a kernel; return the milliseconds from the next one's start to its first result."""
    pool.kernels[key].kill_with_reason(values.Ending.STOPPED, "It is lost.")
    await pool.kernels[key].provisioner.ended.wait()
    await measured_bots.wait_for_spares(pool, 2)
    start_time = time.perf_counter()
    await measured_bots.execute(await pool.take(key), code)
    return measured_bots.milliseconds_since(start_time)


@contextlib.contextmanager
def _recording_loads(pool: pools.Pool, times: list[float]) -> Iterator[None]:
    """Record the milliseconds of each load of variables into a kernel that is already there."""
    restore = pool.snapshots.restore

    async def timed_restore(kernel: live_kernels.Kernel) -> bool:
        start_time = time.perf_counter()
        try:
            return await restore(kernel)
        finally:
            times.append(measured_bots.milliseconds_since(start_time))

    pool.snapshots.restore = timed_restore
    try:
        yield
    finally:
        del pool.snapshots.restore


async def _run_and_read(kernel: live_kernels.Kernel, code: str) -> str:
    outputs: list[values.Output] = []
    await kernel.execute(code, show=outputs.append)
    return outputs[0].plain
