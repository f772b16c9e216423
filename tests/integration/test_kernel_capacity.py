"""What people get of a bot that others use, with real kernels."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools
from interpreter_bot.wording import run_words

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
                snapshots=settings.Snapshots(),
                paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            )
        )

    return open_pool


async def _use(pool, key, person, code="1"):
    async with pool.lease(key, person=person) as lease:
        return await (await lease.kernel()).execute(code, show=lambda _: None)


async def _until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


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
        assert set(pool.kernels) == {"a1", "a3", "b1"}
        assert reasons == {"a2": run_words.STOPPED_FOR_OWN}
        # A conversation of several is of who asked last.
        await _use(pool, "b1", "a")
        await _use(pool, "a4", "a")
        assert set(pool.kernels) == {"b1", "a4"}


@pytest.mark.parametrize(
    ("limits", "person", "sentence"),
    [
        ({"per_person": 2, "concurrent": 20}, "a", "in 2 of your conversations"),
        ({"per_person": 0, "concurrent": 2}, "b", "Python is busy everywhere"),
    ],
)
async def test_a_conversation_beyond_the_limit_waits_and_is_told(opened, limits, person, sentence):
    async with opened(**limits) as pool, contextlib.AsyncExitStack() as others:
        for key in ("a1", "a2"):
            lease = await others.enter_async_context(pool.lease(key, person="a"))
            await lease.kernel()
        told = []
        async with pool.lease("next", person=person) as lease:
            starting = asyncio.create_task(lease.kernel(on_wait=told.append))
            await _until(lambda: told)
            assert sentence in told[0]
            if person == "a":
                await _use(pool, "b1", "b")
            await others.aclose()
            assert (await starting).is_alive
        assert told[-1] == ""


async def test_of_a_burst_of_one_person_all_are_served_and_no_more_live_than_may(opened):
    async with opened(per_person=2, concurrent=20) as pool:
        done = await asyncio.gather(*(_use(pool, f"a{number}", "a") for number in range(6)))
        assert sum(one.person == "a" for one in pool.kernels.values()) == 2
        assert [one.ending for one in done] == [values.Ending.OK] * 6


async def test_who_stops_waiting_for_a_kernel_gets_none(opened):
    async with opened(per_person=1, concurrent=20) as pool:
        async with pool.lease("a1", person="a") as lease:
            await lease.kernel()
            async with pool.lease("a2", person="a"):
                await asyncio.sleep(0.1)
            await _until(lambda: "a2" not in pool.sessions)
        assert set(pool.kernels) == {"a1"}


@pytest.mark.parametrize("limits", [{"per_person": 1}, {"per_person": 0, "concurrent": 1}])
async def test_variables_are_saved_before_a_kernel_makes_room(opened, limits):
    async with opened(**{"concurrent": 20} | limits) as pool:
        await _use(pool, "a1", "a", "import time; x = [time.time()] * 3; y = x")
        for key in ("a2", "a3", "a1"):
            await _use(pool, key, "a", f"z = {key!r}")
            assert set(pool.kernels) == {key}
        finished = await _use(pool, "a1", "a", "assert len(x) == 3 and x is y and z == 'a1'")
        assert finished.ending is values.Ending.OK


@pytest.mark.slow
async def test_a_person_with_one_busy_session_gets_as_much_as_one_with_several(opened):
    async with opened(per_person=0, concurrent=20) as pool:
        if not pool._machine_setup.host_context.groups.version:
            pytest.skip("only control groups divide the processors among people")
        people = {f"a{number}": "a" for number in range(6)} | {"b": "b"}
        await asyncio.gather(*(_use(pool, key, person) for key, person in people.items()))
        # One processor for all: that there are more is no matter here.
        pin = "import os; os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[0]])"
        await asyncio.gather(*(_use(pool, key, person, pin) for key, person in people.items()))
        before = {key: _cpu_seconds(pool, key) for key in people}
        used = {}
        # On a busy machine, chance alone divides the little time of one round.
        while sum(used.values()) < _SECONDS:
            await asyncio.gather(*(_use(pool, key, who, _BUSY) for key, who in people.items()))
            used = {key: _cpu_seconds(pool, key) - before[key] for key in people}
        share = used.pop("b") / (sum(used.values()) + 1e-9)
        assert 0.5 < share < 1.6, used


def _cpu_seconds(pool, key):
    return pool.kernels[key].provisioner.meter().cpu_seconds()
