"""Work that ends early, by a stop or a timeout, or that survives cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)


class EarlyEnd(enum.Enum):
    """Why work was ended early."""

    STOPPED = enum.auto()
    TIME_IS_UP = enum.auto()


async def run_until_stopped(
    work: Coroutine[None, None, T], *, stop: asyncio.Event | None, seconds: float
) -> T | EarlyEnd:
    """Run work until it is done; if `stop` is set or time is over, cancel it and wait for its end.

    Exceptions of the work, and a cancellation of the caller, are raised.
    """
    work_task = asyncio.create_task(work, name="turn")
    stop_task = asyncio.create_task((stop or asyncio.Event()).wait(), name="stop of a turn")
    try:
        await asyncio.wait(
            {work_task, stop_task}, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED
        )
        if not work_task.done():
            work_task.cancel()
            # `await work_task` could not distinguish its cancellation from that of the caller.
            await asyncio.wait({work_task})
        if work_task.cancelled():
            is_stopped = stop is not None and stop.is_set()
            return EarlyEnd.STOPPED if is_stopped else EarlyEnd.TIME_IS_UP
        return work_task.result()
    finally:
        stop_task.cancel()
        if not work_task.done():
            work_task.cancel()
        while not work_task.done():
            # After a second cancellation, still wait for the work; the first one is raised then.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({work_task})


async def run_until(
    work: Coroutine[Any, Any, None], end: Coroutine[Any, Any, None], *, name: str
) -> bool:
    """Run work, and cancel it when `end` returns, such as when a client leaves.

    Exceptions of both are raised.

    Returns:
        Whether the work was done.
    """
    work_task = asyncio.create_task(work, name=name)
    end_task = asyncio.create_task(end, name=f"end of {name}")
    try:
        await asyncio.wait({work_task, end_task}, return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            work_task.result()
            return True
        end_task.result()
        return False
    finally:
        for task in (work_task, end_task):
            task.cancel()
        await asyncio.wait({work_task, end_task})


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end despite a cancellation of the caller, which is raised afterwards.

    It is for short work that limits its own time.
    """
    task = asyncio.create_task(work, name="finish")
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return task.result()
    if not task.cancelled() and (error_of_work := task.exception()) is not None:
        _log.error("work that was finished after a cancellation failed", exc_info=error_of_work)
    raise cancellation


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function in a thread; even when cancelled, return only after it is done.

    A cancelled `asyncio.to_thread` leaves its thread running, which might write to a descriptor
    that was closed since and now belongs to another file.
    """
    context = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(
        None, lambda: context.run(function, *args, **kwargs)
    )
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        if not future.cancelled():
            future.exception()  # Retrieved, so that asyncio does not log it.
        raise
