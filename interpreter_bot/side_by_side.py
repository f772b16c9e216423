"""Opens several contexts at once: slow ones begin early, and are awaited late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from interpreter_bot import cancellation

T = TypeVar("T")


@contextlib.asynccontextmanager
async def open_in_task(
    context: AbstractAsyncContextManager[T], name: str
) -> AsyncIterator[asyncio.Future[T]]:
    """Open a context in a task of its own, which also closes it.

    Yields a future of its value, or of the error that prevented it.
    """
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    should_close = asyncio.Event()
    is_open = False

    async def hold() -> None:
        nonlocal is_open
        async with context as content:
            is_open = True
            # A caller that was cancelled while it waited has cancelled the future as well.
            if not future.done():
                future.set_result(content)
            await should_close.wait()

    def note_early_end(hold_task: asyncio.Task[None]) -> None:
        if future.done():
            return
        if hold_task.cancelled() or (error := hold_task.exception()) is None:
            future.cancel()
        else:
            future.set_exception(error)
            # If nobody awaits the future, asyncio would log that its error was never retrieved.
            future.exception()

    hold_task = asyncio.create_task(hold(), name=name)
    hold_task.add_done_callback(note_early_end)
    try:
        yield future
    finally:
        should_close.set()
        if not is_open:
            hold_task.cancel()
        await cancellation.shielded(asyncio.wait({hold_task}))
    if is_open:
        hold_task.result()
