"""What a person with one busy session gets of the processors beside another with eight."""

from __future__ import annotations

import asyncio
from typing import Literal

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot.kernels import pools

_SESSIONS = 8
_BUSY = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure it with control groups, where there are any, and without."""
    name = f"{_SESSIONS} busy sessions of one person, one of another: what the one gets"
    even = [100 / (_SESSIONS + 1)]
    grouped, alone = [await _share(groups, effort) for groups in ("auto", "off")]
    return [
        metrics.Measure(name, "%", [grouped], alternative=metrics.Alternative("by sessions", even)),
        metrics.Measure(f"({name}, without control groups)", "%", [alone]),
    ]


async def _share(groups: Literal["auto", "off"], effort: sample_sizes.Effort) -> float:
    people = {f"many {number}": "many" for number in range(_SESSIONS)} | {"one": "one"}
    async with measured_bots.open_pool(
        groups=groups, preload=(), spares=0, per_person=0, concurrent=2 * _SESSIONS
    ) as pool:
        await asyncio.gather(*(_use(pool, key, person, "1") for key, person in people.items()))
        before = {key: _cpu_seconds(pool, key) for key in people}
        code = _BUSY.format(seconds=effort.computing_seconds)
        tasks = [asyncio.create_task(_use(pool, *item, code)) for item in people.items()]
        await asyncio.sleep(0.8 * effort.computing_seconds)
        used = {key: _cpu_seconds(pool, key) - before[key] for key in people}
        await asyncio.gather(*tasks)
    return 100 * used["one"] / sum(used.values())


async def _use(pool: pools.Pool, key: str, person: str, code: str) -> None:
    async with pool.lease(key, person=person) as lease:
        await measured_bots.execute(await lease.kernel(), code)


def _cpu_seconds(pool: pools.Pool, key: str) -> float:
    return pool.kernels[key].provisioner.usage().cpu_seconds()
