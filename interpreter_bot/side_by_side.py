"""Open several contexts at once: slow ones begin early, and are awaited late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from interpreter_bot import cancellation

T = TypeVar("T")


@contextlib.asynccontextmanager
async def opening(
    context: AbstractAsyncContextManager[T], name: str
) -> AsyncIterator[asyncio.Future[T]]:
    """Open a context in a task of its own, which also closes it.

    Yields a future of its value, or of the error that prevented it.
    """
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()
    is_open = False

    async def hold() -> None:
        nonlocal is_open
        async with context as content:
            is_open = True
            # It is done if a caller that waited for it was cancelled.
            if not opened.done():
                opened.set_result(content)
            await closing.wait()

    def note_end(holding: asyncio.Task[None]) -> None:
        if opened.done():
            return
        if holding.cancelled() or (error := holding.exception()) is None:
            opened.cancel()
        else:
            opened.set_exception(error)
            # Retrieved, as possibly nobody waits for it.
            opened.exception()

    holding = asyncio.create_task(hold(), name=name)
    holding.add_done_callback(note_end)
    try:
        yield opened
    finally:
        closing.set()
        if not is_open:
            holding.cancel()
        await cancellation.shielded(_ended(holding))
    if is_open:
        holding.result()


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
