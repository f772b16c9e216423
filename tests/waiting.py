"""Waits for what happens beside a test."""

import asyncio
import time
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], *, seconds: float = 60.0, subject: str = "") -> Any:
    """Wait until a condition is true; return its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {subject or condition}")
        await asyncio.sleep(0.01)
