"""The spare being started: it takes a place, and whoever needs that place waits for it."""

import asyncio
import types

import pytest

from interpreter_bot import errors
from interpreter_bot.kernels import spares


@pytest.fixture
async def one():
    """One spare, which is being started until `one.started.set()`; `one.fault` keeps it away."""
    started, ended = asyncio.Event(), []

    async def launch():
        await started.wait()
        if one.fault is not None:
            raise one.fault
        return types.SimpleNamespace(
            is_alive=True,
            provisioner=types.SimpleNamespace(starts_when_attached=True),
        )

    async def ready():
        pass

    async def end(kernel):
        ended.append(kernel)

    one = spares.Spares(
        1, launch=launch, may_launch=lambda: True, wait_until_preloaded=ready, end_kernel=end
    )
    one.started, one.ended, one.fault = started, ended, None
    one.refill_soon()
    async with asyncio.timeout(30):
        while not one.pending_launch:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    assert (len(one), one.kernel_count) == (0, 1)
    yield one
    await one.close()


async def test_who_waits_for_the_spare_being_started_finds_it_ready(one):
    launching = one.pending_launch
    one.started.set()
    await asyncio.wait({launching})
    assert (len(one), one.kernel_count, one.pending_launch) == (1, 1, None)
    assert (await one.take()).is_alive
    assert (len(one), one.kernel_count) == (0, 0)


async def test_place_of_a_spare_that_cannot_be_started_is_free_again(one):
    launching, one.fault = one.pending_launch, errors.KernelStartError()
    one.started.set()
    await asyncio.wait({launching})
    assert (len(one), one.kernel_count, await one.take()) == (0, 0, None)


async def test_nobody_waits_for_a_spare_that_is_broken_off(one):
    launching = one.pending_launch
    await one.close()
    assert launching.done()
    assert (len(one), one.kernel_count) == (0, 0)


async def test_none_is_started_once_they_are_closed(one):
    launching = one.pending_launch
    one.started.set()
    await asyncio.wait({launching})
    await one.close()
    one.refill_soon()
    await asyncio.sleep(0.1)
    assert (len(one), one.kernel_count) == (0, 0)
