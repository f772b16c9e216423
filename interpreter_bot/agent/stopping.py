"""Waiting for work that somebody, or the clock, may end early."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class Interruption(enum.Enum):
    """Why work did not come to its own end."""

    STOPPED = enum.auto()
    TIME_IS_UP = enum.auto()


async def ended_early(
    work: Coroutine[None, None, T], *, stop: asyncio.Event | None, seconds: float
) -> T | Interruption:
    """Do work until it is done, `stop` is set or time is over; then it is cancelled, and over.

    What the work raises, and our own cancellation, pass through.
    """
    working = asyncio.create_task(work, name="turn")
    stopping = asyncio.create_task((stop or asyncio.Event()).wait(), name="stop of a turn")
    try:
        await asyncio.wait(
            {working, stopping}, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED
        )
        if not working.done():
            working.cancel()
            # Not `await working`: that could not tell its cancellation from our own.
            await asyncio.wait({working})
        if working.cancelled():
            is_stopped = stop is not None and stop.is_set()
            return Interruption.STOPPED if is_stopped else Interruption.TIME_IS_UP
        return working.result()
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
        while not working.done():
            # Cancelled once more: the first is passed on, but not before the code has been ended.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
