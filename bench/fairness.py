"""The processor share of a person with one busy session, beside a person with eight."""

from __future__ import annotations

import asyncio
from typing import Literal

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot.kernels import pools

_SESSIONS = 8
_BUSY_CODE = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure with control groups, if the machine has any, and without."""
    name = f"{_SESSIONS} busy sessions of one person, one of another: what the one gets"
    equal_share = [100 / (_SESSIONS + 1)]
    share_with_groups, share_without_groups = [
        await _measure_share(groups, effort) for groups in ("auto", "off")
    ]
    return [
        metrics.Measure(
            name,
            "%",
            [share_with_groups],
            alternative=metrics.Alternative("by sessions", equal_share),
        ),
        metrics.Measure(f"({name}, without control groups)", "%", [share_without_groups]),
    ]


async def _measure_share(groups: Literal["auto", "off"], effort: sample_sizes.Effort) -> float:
    people = {f"many {number}": "many" for number in range(_SESSIONS)} | {"one": "one"}
    async with measured_bots.open_pool(
        groups=groups, preload=(), spares=0, per_person=0, concurrent=2 * _SESSIONS
    ) as pool:
        await asyncio.gather(*(_use(pool, key, person, "1") for key, person in people.items()))
        cpu_before = {key: _cpu_seconds(pool, key) for key in people}
        code = _BUSY_CODE.format(seconds=effort.computing_seconds)
        tasks = [asyncio.create_task(_use(pool, *session, code)) for session in people.items()]
        await asyncio.sleep(0.8 * effort.computing_seconds)
        cpu_seconds = {key: _cpu_seconds(pool, key) - cpu_before[key] for key in people}
        await asyncio.gather(*tasks)
    return 100 * cpu_seconds["one"] / sum(cpu_seconds.values())


async def _use(pool: pools.Pool, key: str, person: str, code: str) -> None:
    async with pool.lease(key, person=person) as lease:
        await measured_bots.execute(await lease.kernel(), code)


def _cpu_seconds(pool: pools.Pool, key: str) -> float:
    return pool.kernels[key].provisioner.meter().cpu_seconds()
