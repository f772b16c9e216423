import asyncio

import pytest

from interpreter_bot import side_by_side


class Slow:
    """A context that is opened when it is let; notes what becomes of it."""

    def __init__(self):
        self.may_open = asyncio.Event()
        self.events = []

    async def __aenter__(self):
        try:
            await self.may_open.wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        self.events.append("opened")
        return "content"

    async def __aexit__(self, *_):
        self.events.append("closed")


async def test_it_opens_beside_the_body_and_closes_after_it():
    slow = Slow()
    async with side_by_side.open_in_task(slow, "slow") as future:
        assert not future.done()
        slow.may_open.set()
        assert await future == "content"
    assert slow.events == ["opened", "closed"]


async def test_a_body_that_is_cancelled_while_it_waits_does_not_wait_for_the_opening():
    slow = Slow()

    async def wait():
        async with side_by_side.open_in_task(slow, "slow") as future:
            await future

    wait_task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    wait_task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await wait_task
    assert slow.events == ["cancelled"]


async def test_one_that_cannot_be_opened_raises_where_it_is_waited_for():
    class Broken(Slow):
        async def __aenter__(self):
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        async with side_by_side.open_in_task(Broken(), "broken") as future:
            await future
