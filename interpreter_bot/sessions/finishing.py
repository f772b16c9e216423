"""Finishing what must not be left half done, whoever goes away meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do work that a cancellation must not cut off; it is raised when the work is done.

    For work that is short, and bounded in time by itself.
    """
    task = asyncio.create_task(work, name="finish")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (fault := task.exception()) is not None:
        _log.error("what had to be finished failed", exc_info=fault)
    raise cancelled
