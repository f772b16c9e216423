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
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()
    is_open = False

    async def hold() -> None:
        nonlocal is_open
        async with context as content:
            is_open = True
            # The future is cancelled if a caller was that waited for it.
            if not opened.done():
                opened.set_result(content)
            await closing.wait()

    def note_early_end(hold_task: asyncio.Task[None]) -> None:
        if opened.done():
            return
        if hold_task.cancelled() or (error := hold_task.exception()) is None:
            opened.cancel()
        else:
            opened.set_exception(error)
            # Retrieved, because perhaps nobody waits for it, and asyncio would log that.
            opened.exception()

    hold_task = asyncio.create_task(hold(), name=name)
    hold_task.add_done_callback(note_early_end)
    try:
        yield opened
    finally:
        closing.set()
        if not is_open:
            hold_task.cancel()
        await cancellation.shielded(asyncio.wait({hold_task}))
    if is_open:
        hold_task.result()
