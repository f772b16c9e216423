"""The alternative: jupyter_client and ipykernel as they come, started when they are needed."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import jupyter_client

from bench import measured_bots

_START_SECONDS = 120.0


@contextlib.asynccontextmanager
async def open_kernel(*, is_lean: bool = False) -> AsyncIterator[Any]:
    """Start a kernel, give a client that is ready to execute, and end it.

    Args:
        is_lean: do not wait for readiness as jupyter_client does, which listens for another
            0.2 s that nothing more comes, but start as soon as the kernel says it hears us.
    """
    manager = jupyter_client.AsyncKernelManager(kernel_name="python3")
    # It warns of TCP without encryption, each time.
    await manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.client()
    try:
        client.start_channels()
        if is_lean:
            await _await_welcome(client)
        else:
            await client.wait_for_ready(timeout=_START_SECONDS)
        yield client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def time_start(code: str, *, is_lean: bool = False) -> float:
    """Milliseconds from wanting a kernel to the end of its first code."""
    started = time.perf_counter()
    async with open_kernel(is_lean=is_lean) as client:
        await execute(client, code)
        return measured_bots.milliseconds(started)


async def execute(client: Any, code: str) -> None:
    """Run code that must end well; what it shows is dropped."""
    reply = await client.execute_interactive(
        code, allow_stdin=False, output_hook=_drop, timeout=_START_SECONDS
    )
    if reply["content"]["status"] != "ok":
        raise RuntimeError(f"{code!r} failed: {reply['content']}")


async def time_trip(client: Any) -> float:
    """Milliseconds of one round trip."""
    started = time.perf_counter()
    await execute(client, measured_bots.SUM_CODE)
    return measured_bots.milliseconds(started)


async def _await_welcome(client: Any) -> None:
    while True:
        message = await client.get_iopub_msg(timeout=_START_SECONDS)
        if message["msg_type"] == "iopub_welcome":
            return


def _drop(_: dict[str, Any]) -> None:
    """Show nobody."""
