"""The connection to a host: what happens at once, and what a host answers instead."""

import asyncio
import contextlib
import pathlib

import aiohttp
import pytest
from aiohttp import test_utils, web

from interpreter_bot import errors
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


@pytest.mark.parametrize(
    ("status", "said"),
    [(200, "{"), (200, "[" * 99_999), (422, "[]"), (422, "7"), (422, "{}"), (422, '{"error": 7}')],
    ids=lambda one: str(one)[:12],
)
async def test_what_a_host_answers_instead_is_an_error_of_kernels(status, said):
    async def answer(request):
        return web.Response(status=status, text=said, content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/unheld_doors", answer)
    server = test_utils.TestServer(app)
    connection = host_connection.HostConnection(pathlib.Path("/none"), None, patience_seconds=1.0)
    connection._is_connected.set()
    async with server, aiohttp.ClientSession(server.make_url("/")) as connection._session:
        with pytest.raises(errors.KernelError):
            await connection.request("GET", "/v1/unheld_doors")
