"""The alternative: unmodified jupyter_client and ipykernel, started on demand."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import jupyter_client

from bench import measured_bots

_MAX_WAIT_SECONDS = 120.0


@contextlib.asynccontextmanager
async def open_kernel(*, is_lean: bool = False) -> AsyncIterator[Any]:
    """Start a kernel, yield a client that is ready to execute, and end the kernel.

    Args:
        is_lean: start as soon as the kernel's welcome message comes. jupyter_client's own check
            waits for another 0.2 s of silence.
    """
    manager = jupyter_client.AsyncKernelManager(kernel_name="python3")
    # Standard error has a warning about TCP without encryption, each time.
    await manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.client()
    try:
        client.start_channels()
        if is_lean:
            await _wait_for_welcome(client)
        else:
            await client.wait_for_ready(timeout=_MAX_WAIT_SECONDS)
        yield client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def time_start(code: str, *, is_lean: bool = False) -> float:
    """Return the milliseconds from a kernel's start to the end of its first code."""
    start_time = time.perf_counter()
    async with open_kernel(is_lean=is_lean) as client:
        await execute(client, code)
        return measured_bots.milliseconds_since(start_time)


async def execute(client: Any, code: str) -> None:
    """Run code that must succeed; drop its output."""
    reply = await client.execute_interactive(
        code, allow_stdin=False, output_hook=_drop, timeout=_MAX_WAIT_SECONDS
    )
    if reply["content"]["status"] != "ok":
        raise RuntimeError(f"{code!r} failed: {reply['content']}")


async def time_trip(client: Any) -> float:
    """Return the milliseconds of one round trip."""
    start_time = time.perf_counter()
    await execute(client, measured_bots.SUM_CODE)
    return measured_bots.milliseconds_since(start_time)


async def _wait_for_welcome(client: Any) -> None:
    while True:
        message = await client.get_iopub_msg(timeout=_MAX_WAIT_SECONDS)
        if message["msg_type"] == "iopub_welcome":
            return


def _drop(_: dict[str, Any]) -> None:
    """Ignore the output."""
