"""A bot's sessions as `app` wires them, with real kernels and store, and a scripted model."""

import asyncio
import contextlib
import gc
import itertools
import sqlite3
import types

import pytest

from interpreter_bot import settings, values
from interpreter_bot.app import bot_startup, execution_startup
from interpreter_bot.hosts import executions, local_startup, remote_host
from interpreter_bot.kernel_host import host_server
from interpreter_bot.kernels import session_forks, snapshots
from interpreter_bot.sessions import requests
from interpreter_bot.store import engines
from tests.fakes import conversations, openai_server, replies

KEY = values.SessionKey("web", thread="t")
ANNA = requests.Person("u1")


@pytest.fixture(autouse=True)
def _complete_checkpoints(monkeypatch):
    """Give checkpoints the time that they need on a busy machine to miss nothing."""
    monkeypatch.setattr(session_forks, "_MAX_WAIT_SECONDS", 60.0)
    monkeypatch.setattr(session_forks, "_MAX_CHECKPOINT_SECONDS", 60.0)
    monkeypatch.setattr(snapshots, "_QUICK_SAVE_SECONDS", 60.0)


def make_request(text, **fields):
    return requests.Request(**{"key": KEY, "person": ANNA, "text": text, **fields})


def make_code_request(text, **fields):
    return make_request(text, is_code=True, **fields)


def attachment(name, *chunks, size_bytes=None, error=None):
    async def read_chunks():
        for chunk in chunks:
            yield chunk
        if error is not None:
            raise error

    return requests.Attachment(name, read_chunks, size_bytes)


class Bot:
    """The sessions of a bot, and the server of its scripted model."""

    def __init__(self, service, server):
        self.service = service
        self.server = server

    async def ask(self, text, reply=None, **fields):
        return await self.handle(make_request(text, **fields), reply)

    async def run(self, text, reply=None, **fields):
        return await self.handle(make_code_request(text, **fields), reply)

    async def handle(self, request, reply=None):
        reply = reply or replies.Reply()
        reply.answer = self.service.questions.answer
        end = await self.service.handle(request, reply)
        assert reply.end == end
        return reply


@pytest.fixture
def open_bot(tmp_path, short_path):
    """Open a bot on the test's data; its kernels preload nothing, so they start fast."""

    @contextlib.asynccontextmanager
    async def open_on_test_data(
        *script,
        model=None,
        has_model=True,
        server_options=None,
        keys=None,
        closing_seconds=None,
        **groups,
    ):
        await conversations.prepare_database(tmp_path / "data")
        async with openai_server.Server(script, **(server_options or {})) as server:
            model_settings = settings.Model(
                **{"name": "scripted", "base_url": server.base_url, **(model or {})}
            )
            config = settings.Settings(
                **{
                    "models": (model_settings,) if has_model else (),
                    "kernels": settings.Kernels(preload=(), spares=0),
                    "paths": settings.Paths(data=tmp_path / "data", runtime=short_path),
                    **groups,
                },
            )
            environment = {"OPENAI_API_KEY": server.api_key} | (keys or {})
            async with bot_startup.open_service(
                config, environment if has_model else {}
            ) as service:
                if closing_seconds is not None:
                    service.closing_seconds = closing_seconds
                yield Bot(service, server)
        # Memory of a bot is limited, and this process runs many bots, one after another.
        gc.collect()

    return open_on_test_data


@pytest.fixture
def lock_database(tmp_path, monkeypatch):
    """Lock the database against writers until `unlock`, as a shell or a backup would."""
    monkeypatch.setattr(engines, "_BUSY_MILLISECONDS", 50)
    connections = []

    def lock(*, timeout=5.0):
        (file,) = (tmp_path / "data").glob("*.db")
        connections.append(sqlite3.connect(file, isolation_level=None, timeout=timeout))
        connections[-1].execute("BEGIN IMMEDIATE")

    async def lock_when_free():
        # A running write ends only if the event loop goes on.
        async with asyncio.timeout(10):
            while True:
                try:
                    return lock(timeout=0)
                except sqlite3.OperationalError:
                    lock.unlock()
                    await asyncio.sleep(0.01)

    lock.when_free = lock_when_free
    lock.unlock = lambda: connections.pop().close()
    yield lock
    while connections:
        lock.unlock()


@pytest.fixture
async def shared_host(short_path, monkeypatch):
    """Let all bots of a test share a host that outlives them; yield a handle to replace it.

    The host runs in this process, but is reached through its socket like any other.
    """
    numbers = itertools.count()
    async with contextlib.AsyncExitStack() as stack:

        async def replace(**groups):
            await stack.aclose()
            # The new host knows nothing of the former one, not even the output of its code.
            directory = short_path / f"host{next(numbers)}"
            directory.mkdir()
            config = settings.Settings(
                kernels=settings.Kernels(preload=(), spares=0),
                paths=settings.Paths(data=directory / "data", runtime=directory / "r"),
                **groups,
            )
            host = await stack.enter_async_context(local_startup.open_host(config))
            host_executions = await stack.enter_async_context(
                executions.Executions.open(directory / "journals")
            )
            path = directory / "host.sock"
            await stack.enter_async_context(
                host_server.HostServer.open(host, host_executions, path)
            )
            monkeypatch.setattr(
                execution_startup, "open_hosts", lambda *_, **__: remote_host.RemoteHost.open(path)
            )

        await replace()
        yield types.SimpleNamespace(replace=replace)
