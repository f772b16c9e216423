"""Servers that are asked for their models and answer with something else."""

import asyncio
import contextlib
import gzip
import json

import pytest
from aiohttp import web

from interpreter_bot import settings
from interpreter_bot.agent import model_errors
from interpreter_bot.agent.llms import model_listing

LIST = json.dumps({"data": [{"id": "model-1"}]}).encode()


@contextlib.asynccontextmanager
async def server(answer):
    """Serve one answer to whoever lists models; gives a model of that server."""
    app = web.Application()
    app.router.add_get("/v1/models", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        yield settings.Model(name="any", base_url=f"http://127.0.0.1:{port}/v1")
    finally:
        await runner.cleanup()


async def test_an_endless_list_is_not_read_to_its_end():
    sent = 0

    async def answer(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    async with server(answer) as model:
        with pytest.raises(model_errors.MalformedResponseError):
            await model_listing.list_models(model, "")
    # And what the system buffers.
    assert sent < 32 * 1024 * 1024


async def test_what_is_packed_is_not_unpacked():
    async def answer(_):
        return web.Response(body=gzip.compress(LIST), headers={"Content-Encoding": "gzip"})

    async with server(answer) as model:
        with pytest.raises(model_errors.MalformedResponseError):
            await model_listing.list_models(model, "")


@pytest.mark.looptime
async def test_a_list_that_comes_drop_by_drop_is_waited_for_only_so_long():
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.1)

    async with server(answer) as model, asyncio.timeout(10):
        with pytest.raises(model_errors.ResponseTimeoutError):
            await model_listing.list_models(model, "")


async def test_a_redirect_is_not_followed():
    requests = []

    async def listing(request):
        requests.append(request)
        return web.Response(body=LIST)

    async with server(listing) as other:

        async def redirect(_):
            raise web.HTTPTemporaryRedirect(f"{other.base_url}/models")

        async with server(redirect) as model:
            with pytest.raises(model_errors.MovedError):
                await model_listing.list_models(model, "a-key")
    assert not requests
