"""Packages into a live kernel: those that others have, and new ones against uv by itself."""

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
    """Install packages of one dependency and many modules from an index on loopback."""
    new: list[float] = []
    own: list[float] = []
    cached: list[float] = []
    with package_indexes.serving() as index, tempfile.TemporaryDirectory(prefix="b-") as directory:
        config = _config(directory, index.url)
        async with pools.Pool.open(config) as pool:
            for number in range(effort.starts + 1):
                name = f"made{number}"
                files = {f"{name}/m{part}.py": f"v = {part}\n" * 50 for part in range(_MODULES)}
                index.add(f"{name}-base")
                index.add(
                    name, files={f"{name}/__init__.py": ""} | files, requirements=[f"{name}-base"]
                )
                async with pool.lease("a") as first, pool.lease("b") as second:
                    taken = await _installed(await first.kernel(), name)
                    again = await _installed(await second.kernel(), name)
                alone = await _by_uv(name, index.url, pathlib.Path(directory) / name)
                if number:  # The first fills caches.
                    new.append(taken)
                    cached.append(again)
                    own.append(alone)
    return [
        metrics.Measure("cached packages into a live kernel", "ms", cached, bar=150.0),
        metrics.Measure(
            "new packages into a live kernel",
            "ms",
            new,
            alternative=metrics.Alternative("uv's own", own),
        ),
        metrics.Measure(
            "what it takes beyond uv",
            "ms",
            [ours - theirs for ours, theirs in zip(new, own, strict=True)],
            bar=300.0,
        ),
    ]


async def _installed(kernel: live_kernels.Kernel, name: str) -> float:
    shown: list[values.Output] = []
    began = time.perf_counter()
    await kernel.execute(f"%pip install {name}", show=shown.append)
    taken = measured_bots.milliseconds(began)
    checked = await kernel.execute(f"import {name}.m1", show=shown.append)
    if checked.ending is not values.Ending.OK:
        raise RuntimeError(f"{name} was not installed: {shown}")
    return taken


async def _by_uv(name: str, url: str, place: pathlib.Path) -> float:
    """Resolve and install by uv alone, without our walls, checks and constraints."""
    await asyncio.to_thread(place.mkdir)
    await asyncio.to_thread((place / "wanted.in").write_text, f"{name}\n")
    common = ["--no-config", "--quiet", "--default-index", url, "--only-binary", ":all:"]
    began = time.perf_counter()
    for command in (
        ["pip", "compile", "wanted.in", "--generate-hashes", "--output-file", "lock.txt"],
        ["pip", "install", "--target", "made", "--requirements", "lock.txt", "--no-deps"],
    ):
        process = await asyncio.create_subprocess_exec(
            *(_UV, *command, *common, "--cache-dir", "cache"), cwd=place
        )
        if await process.wait():
            raise RuntimeError("uv failed")
    return measured_bots.milliseconds(began)


def _config(directory: str, url: str) -> settings.Settings:
    place = pathlib.Path(directory)
    return settings.Settings(
        kernels=settings.Kernels(spares=0, preload=()),
        paths=settings.Paths(data=place / "d", runtime=place / "r"),
        package_index=settings.PackageIndex(url=url),
    )
