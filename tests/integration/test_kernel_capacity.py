"""What people get of a bot that others use, with real kernels."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from interpreter_bot import errors, settings
from interpreter_bot.kernels import kernel_capacity, pools

pytestmark = pytest.mark.kernel

_SECONDS = 1.5
_BUSY = f"import time\nend = time.monotonic() + {_SECONDS}\nwhile time.monotonic() < end: pass"


@pytest.fixture
def opened(tmp_path, short_path):
    """Open a pool whose kernels import nothing."""

    def open_pool(**kernels: object) -> contextlib.AbstractAsyncContextManager[pools.Pool]:
        return pools.Pool.open(
            settings.Settings(
                kernels=settings.Kernels(**{"preload": (), "spares": 0} | kernels),
                paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            )
        )

    return open_pool


async def _use(pool, key, person, code="1"):
    async with pool.lease(key, person=person) as lease:
        return await (await lease.kernel()).execute(code, show=lambda _: None)


async def test_a_persons_next_kernel_takes_the_place_of_their_own_longest_idle(opened):
    async with opened(per_person=2, concurrent=20, spares=1) as pool:
        reasons = {}

        async def lost(key, _kernel, reason):
            reasons[key] = reason

        pool.on_loss = lost
        for key in ("a1", "a2"):
            await _use(pool, key, "a")
        await _use(pool, "b1", "b")
        await _use(pool, "a1", "a")
        await _use(pool, "a3", "a")
        assert set(pool.live) == {"a1", "a3", "b1"}
        assert reasons == {"a2": kernel_capacity._FOR_OWN}
        # A conversation of several is of who asked last.
        await _use(pool, "b1", "a")
        await _use(pool, "a4", "a")
        assert set(pool.live) == {"b1", "a4"}
        async with pool.lease("b1", person="a"), pool.lease("a4", person="a"):
            with pytest.raises(errors.PoolFullError, match="All 2"):
                await _use(pool, "a5", "a")
            await _use(pool, "c1", "c")


async def test_of_a_burst_of_one_person_no_more_live_than_they_may_have(opened):
    async with opened(per_person=2, concurrent=20) as pool:
        done = await asyncio.gather(
            *(_use(pool, f"a{number}", "a") for number in range(6)), return_exceptions=True
        )
        assert sum(one.person == "a" for one in pool.live.values()) == 2
        assert all(isinstance(one, errors.PoolFullError) or not one.kernel_lost for one in done)


async def test_a_person_with_one_busy_session_gets_as_much_as_one_with_several(opened):
    async with opened(per_person=0, concurrent=20) as pool:
        if not pool._host.host_context.groups.version:
            pytest.skip("only control groups divide the processors among people")
        people = {f"a{number}": "a" for number in range(6)} | {"b": "b"}
        await asyncio.gather(*(_use(pool, key, person) for key, person in people.items()))
        # One processor for all: that there are more is no matter here.
        pin = "import os; os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[0]])"
        await asyncio.gather(*(_use(pool, key, person, pin) for key, person in people.items()))
        before = {key: _cpu_seconds(pool, key) for key in people}
        started = time.monotonic()
        await asyncio.gather(*(_use(pool, key, person, _BUSY) for key, person in people.items()))
        assert time.monotonic() - started < 60
        used = {key: _cpu_seconds(pool, key) - before[key] for key in people}
        share = used.pop("b") / (sum(used.values()) + 1e-9)
        assert 0.5 < share < 1.6, used


def _cpu_seconds(pool, key):
    return pool.live[key].provisioner.usage().cpu_seconds()
