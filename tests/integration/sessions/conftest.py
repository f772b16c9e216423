"""Conversations as `app` puts them together: real kernels and store, a scripted model."""

import asyncio
import contextlib
import gc
import itertools
import sqlite3

import pytest

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup, execution_startup
from interpreter_bot.hosts import executions, local_startup, remote_host
from interpreter_bot.kernel_host import host_server
from interpreter_bot.sessions import requests
from interpreter_bot.store import engines
from tests.fakes import conversations, openai_server, replies

KEY = values.SessionKey("web", thread="t")
ANNA = requests.Person("u1")


def asked(text, **fields):
    return requests.Request(**{"key": KEY, "person": ANNA, "text": text, **fields})


def code(text, **fields):
    return asked(text, is_code=True, **fields)


def attachment(name, *chunks, size_bytes=None, error=None):
    async def opened():
        for chunk in chunks:
            yield chunk
        if error is not None:
            raise error

    return requests.Attachment(name, opened, size_bytes)


class House:
    """Conversations, and the server they ask."""

    def __init__(self, service, server):
        self.service = service
        self.server = server

    async def ask(self, text, reply=None, **fields):
        return await self.handle(asked(text, **fields), reply)

    async def run(self, text, reply=None, **fields):
        return await self.handle(code(text, **fields), reply)

    async def handle(self, request, reply=None):
        reply = reply or replies.Reply()
        reply.answer = self.service.answer
        end = await self.service.handle(request, reply)
        assert reply.end == end
        return reply


@pytest.fixture
def opened(tmp_path, short_path):
    """Open a house whose kernels import nothing, which is quick; again on the same data."""

    @contextlib.asynccontextmanager
    async def open_house(*script, model=None, no_model=False, serving=None, keys=None, **groups):
        await conversations.prepare_database(tmp_path / "data")
        async with openai_server.Server(script, **(serving or {})) as server:
            listed = settings.Model(
                **{"name": "scripted", "base_url": server.base_url, **(model or {})}
            )
            bot = settings.Settings(
                models=() if no_model else (listed,),
                **{
                    "kernels": settings.Kernels(preload=(), spares=0),
                    "paths": settings.Paths(data=tmp_path / "data", runtime=short_path),
                    **groups,
                },
            )
            known = {"OPENAI_API_KEY": server.api_key} | (keys or {})
            async with bot_startup.open_service(bot, {} if no_model else known) as service:
                yield House(service, server)
        # A bot's memory is bounded, and this process is one bot after another.
        gc.collect()

    return open_house


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """Lock the database against writers, as somebody's shell or backup would; until `unlock`."""
    monkeypatch.setattr(engines, "_BUSY_MILLISECONDS", 50)
    service = []

    def lock(*, timeout=5.0):
        (file,) = (tmp_path / "data").glob("*.db")
        service.append(sqlite3.connect(file, isolation_level=None, timeout=timeout))
        service[-1].execute("BEGIN IMMEDIATE")

    async def lock_when_free():
        # Whoever writes just now ends only if the event loop goes on.
        async with asyncio.timeout(10):
            while True:
                try:
                    return lock(timeout=0)
                except sqlite3.OperationalError:
                    lock.unlock()
                    await asyncio.sleep(0.01)

    lock.when_free = lock_when_free
    lock.unlock = lambda: service.pop().close()
    yield lock
    while service:
        lock.unlock()


@pytest.fixture
async def outliving(short_path, monkeypatch):
    """Let all houses of a test use one host, which they do not end; gives a way to another one.

    That the host is in the same process is nothing that it, or the houses, could notice.
    """
    numbers = itertools.count()
    async with contextlib.AsyncExitStack() as stack:

        async def another(**groups):
            await stack.aclose()
            # Of the former nothing is left, not even what its code showed.
            place = short_path / f"host{next(numbers)}"
            place.mkdir()
            config = settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0),
                paths=settings.Paths(data=place / "data", runtime=place / "r"),
                **groups,
            )
            host = await stack.enter_async_context(local_startup.open_host(config))
            begun = await stack.enter_async_context(executions.Executions.open(place / "journals"))
            path = place / "host.sock"
            await stack.enter_async_context(host_server.HostServer.open(host, begun, path))
            monkeypatch.setattr(
                execution_startup, "open_hosts", lambda *_, **__: remote_host.RemoteHost.open(path)
            )

        await another()
        yield another
