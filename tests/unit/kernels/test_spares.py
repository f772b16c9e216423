"""The spare being started, and who waits for it."""

import asyncio
import types

import pytest

from interpreter_bot.kernels import spares


@pytest.fixture
async def one():
    """One spare, which is being started until `one.started.set()`."""
    started = asyncio.Event()

    async def launch():
        await started.wait()
        return types.SimpleNamespace(
            kernel=types.SimpleNamespace(is_alive=True),
            provisioner=types.SimpleNamespace(starts_when_attached=True),
        )

    async def ready():
        pass

    one = spares.Spares(1, launch=launch, may_launch=lambda: True, prepare=ready, end=None)
    one.started = started
    one.refill_soon()
    async with asyncio.timeout(30):
        while not one.places:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    yield one
    await one.close()


async def test_who_goes_away_leaves_the_spare_to_the_next(one):
    waiting = asyncio.create_task(one.receive(one.claim()))
    await asyncio.sleep(0)
    assert one.claim() is None
    assert one.places == 0
    waiting.cancel()
    # Before the task has even noticed.
    assert one.places == 1
    claim = one.claim()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert one.claim() is None
    one.started.set()
    assert (await one.receive(claim)).kernel.is_alive
    assert len(one) == 0


async def test_none_is_started_once_they_are_closed(one):
    one.started.set()
    assert all(spare.kernel.is_alive for spare in await one.close())
    one.refill_soon()
    await asyncio.wait({one._refilling})
    assert (len(one), one.places) == (0, 0)


async def test_who_goes_away_as_it_comes_leaves_it_ready(one):
    claim = one.claim()
    waiting = asyncio.create_task(one.receive(claim))
    one.started.set()
    while not claim.done():  # noqa: ASYNC110 - to be there before the one that waits
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert len(one) == 1
