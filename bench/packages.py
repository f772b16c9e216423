"""Installation into a live kernel: cached packages, and new ones compared with uv alone."""

from __future__ import annotations

import asyncio
import os
import pathlib
import sysconfig
import tempfile
import time

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot import settings, values
from interpreter_bot.kernels import live_kernels, pools
from tests.fakes import package_indexes

_MODULES = 200
_UV = os.path.join(sysconfig.get_path("scripts"), "uv")


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Install packages with one dependency and many modules from an index on loopback."""
    new_times: list[float] = []
    uv_times: list[float] = []
    cached_times: list[float] = []
    with package_indexes.serving() as index, tempfile.TemporaryDirectory(prefix="b-") as directory:
        config = _make_settings(directory, index.url)
        async with pools.Pool.open(config) as pool:
            for number in range(effort.starts + 1):
                name = f"made{number}"
                files = {
                    f"{name}/m{module}.py": f"v = {module}\n" * 50 for module in range(_MODULES)
                }
                index.add(f"{name}-base")
                index.add(
                    name, files={f"{name}/__init__.py": ""} | files, requirements=[f"{name}-base"]
                )
                async with pool.lease("a") as first_lease, pool.lease("b") as second_lease:
                    new_time = await _time_install(await first_lease.kernel(), name)
                    cached_time = await _time_install(await second_lease.kernel(), name)
                uv_time = await _time_uv(name, index.url, pathlib.Path(directory) / name)
                if number:  # The first fills caches.
                    new_times.append(new_time)
                    cached_times.append(cached_time)
                    uv_times.append(uv_time)
    return [
        metrics.Measure("cached packages into a live kernel", "ms", cached_times, bar=150.0),
        metrics.Measure(
            "new packages into a live kernel",
            "ms",
            new_times,
            alternative=metrics.Alternative("uv's own", uv_times),
        ),
        metrics.Measure(
            "what it takes beyond uv",
            "ms",
            [bot_time - uv_time for bot_time, uv_time in zip(new_times, uv_times, strict=True)],
            bar=300.0,
        ),
    ]


async def _time_install(kernel: live_kernels.Kernel, name: str) -> float:
    outputs: list[values.Output] = []
    start_time = time.perf_counter()
    await kernel.execute(f"%pip install {name}", show=outputs.append)
    milliseconds = measured_bots.milliseconds_since(start_time)
    finished = await kernel.execute(f"import {name}.m1", show=outputs.append)
    if finished.ending is not values.Ending.OK:
        raise RuntimeError(f"{name} was not installed: {outputs}")
    return milliseconds


async def _time_uv(name: str, url: str, directory: pathlib.Path) -> float:
    """Resolve and install with uv alone, without the bot's sandbox, checks and constraints."""
    await asyncio.to_thread(directory.mkdir)
    await asyncio.to_thread((directory / "wanted.in").write_text, f"{name}\n")
    common = ["--no-config", "--quiet", "--default-index", url, "--only-binary", ":all:"]
    start_time = time.perf_counter()
    for command in (
        ["pip", "compile", "wanted.in", "--generate-hashes", "--output-file", "lock.txt"],
        ["pip", "install", "--target", "made", "--requirements", "lock.txt", "--no-deps"],
    ):
        process = await asyncio.create_subprocess_exec(
            *(_UV, *command, *common, "--cache-dir", "cache"), cwd=directory
        )
        if await process.wait():
            raise RuntimeError("uv failed")
    return measured_bots.milliseconds_since(start_time)


def _make_settings(path: str, url: str) -> settings.Settings:
    directory = pathlib.Path(path)
    return settings.Settings(
        kernels=settings.Kernels(spares=0, preload=()),
        paths=settings.Paths(data=directory / "d", runtime=directory / "r"),
        package_index=settings.PackageIndex(url=url),
    )
