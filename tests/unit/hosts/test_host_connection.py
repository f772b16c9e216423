"""The connection to a host, where what happens at once is the subject."""

import asyncio
import contextlib
import pathlib

import pytest

from interpreter_bot.hosts import host_connection


@pytest.mark.parametrize("ticks", range(6))
async def test_who_waits_for_a_host_can_be_cancelled_in_any_moment(ticks):
    connection = host_connection.HostConnection(pathlib.Path("/none"), None, patience_seconds=30.0)
    waiting = asyncio.create_task(connection.connected())
    await asyncio.sleep(0.01)
    connection._is_connected.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    is_cancelled = waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled() is is_cancelled
