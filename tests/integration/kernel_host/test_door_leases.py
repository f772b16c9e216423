"""Doors of kernels in a host process: the bot has them, and the next bot takes them over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import settings, values
from interpreter_bot.egress import broker
from interpreter_bot.hosts import cancellable_executions, executions, local_startup, remote_host
from interpreter_bot.kernel_host import host_server
from tests import waiting
from tests.fakes import external_servers

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.asyncio(loop_scope="module"),
]

KEY = values.format_key(values.SessionKey("web", thread="open"))
GET = """
import requests
try:
    print(requests.get('https://data.example.org:{port}/x', verify='ca.pem').text)
except OSError as error:
    print(error)
"""
READ = "print(requests.get('https://read.example.org:{port}/x').text)"


class Place:
    """A host process's server, to which bots come and go."""

    def __init__(self, config, path, server, outer):
        self.config = config
        self.path = path
        self.server = server
        self.outside = outer
        self.get = GET.format(port=outer.port)

    @contextlib.asynccontextmanager
    async def bot(self):
        resolve = external_servers.make_resolver(["127.0.0.1"])
        opening = broker.open_broker(self.config, {"KEY": "secret"}, seed=b"seed", resolve=resolve)
        async with (
            opening as keeper,
            remote_host.RemoteHost.open(self.path, doorkeeper=keeper, is_bot=True) as host,
        ):
            yield host, keeper

    async def run(self, host, code: str, *, ask=None, seconds=None) -> str:
        shown: list[values.Output] = []
        async with host.lease(KEY) as lease:
            kernel = await lease.kernel()
            await cancellable_executions.run(
                host, kernel, code, show=shown.append, ask=ask, seconds=seconds
            )
        return "".join(one.plain for one in shown).strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place():
    async with contextlib.AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp"))
        os.chmod(name, 0o755)
        outer = await stack.enter_async_context(
            external_servers.ExternalServer.open("data.example.org")
        )
        rule = {"ports": (outer.port,), "addresses": ("127.0.0.1",)}
        config = settings.Settings(
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=0),
            limits=settings.Limits(execution_seconds=120),
            egress=(
                settings.Egress(host="data.example.org", **rule),
                settings.Egress(host="read.example.org", methods=("GET",), **rule),
                settings.Egress(host="ask.example.org", approval="ask", **rule),
            ),
        )
        path = pathlib.Path(name, "r", "h", "1.sock")
        host = await stack.enter_async_context(local_startup.open_host(config))
        path.parent.mkdir(mode=0o700)
        begun = await stack.enter_async_context(
            executions.Executions.open(pathlib.Path(name, "j"), input_seconds=60)
        )
        opening = host_server.HostServer.open(host, begun, path)
        yield Place(config, path, await stack.enter_async_context(opening), outer)


async def test_the_next_bot_takes_over_doors_in_use(place):
    certificate = f"open('ca.pem', 'w').write({place.outside.authority.certificate!r})\n"
    leased = place.server._doors._doors_by_kernel
    async with place.bot() as (host, keeper):
        assert host.reach(KEY).hosts, "people are told of it"
        assert await place.run(host, certificate + place.get) == "outside"
        assert "is not trusted" in await place.run(host, READ.format(port=place.outside.port))
        (kernel_id,) = leased
        async with place.bot() as (other, idle):
            assert await place.run(other, place.get) == "outside", "the last bot serves"
            assert kernel_id in idle.door_tasks
    await waiting.until(lambda: leased[kernel_id].link is None)
    async with remote_host.RemoteHost.open(place.path) as command:
        assert "is not there right now" in await place.run(command, place.get)
    async with remote_host.RemoteHost.open(place.path, is_bot=True) as nobody:
        assert "may no longer connect" in await place.run(nobody, place.get)
    version = leased[kernel_id].version
    async with place.bot() as (host, keeper):
        await waiting.until(lambda: kernel_id in keeper.door_tasks)
        assert await place.run(host, place.get) == "outside"
        # Its certificates are signed by a key that the kernel knows from the former bot.
        assert "is not trusted" in await place.run(host, READ.format(port=place.outside.port))
        assert leased[kernel_id].version == version
        await host.forget(KEY)
        await waiting.until(lambda: not (leased or keeper.door_tasks))


async def test_missing_doors_cannot_be_leased(place):
    async with place.bot() as (host, keeper):
        told = await host._doors._lease(KEY, "no-such-kernel")
        assert told is None
        assert not keeper.door_tasks


async def test_the_time_limit_of_code_pauses_while_it_waits_for_a_person(place):
    asked = []

    async def ask(request):
        asked.append(request)
        # Longer than the code may run.
        await asyncio.sleep(4)
        return "yes"

    code = f"import requests\ntry:\n    {READ.format(port=place.outside.port)}\n"
    code = code.replace("read.", "ask.") + "except OSError as error:\n    print(error)"
    async with place.bot() as (host, keeper):
        told = await place.run(host, code, ask=ask, seconds=3)
        assert "is not trusted" in told, "it was let, and went on"
        assert "ask.example.org" in asked[0].prompt
        assert "nobody could be asked" in await place.run(host, code)
        assert not host.reach(KEY).grants

        async def allow(request):
            return "session"

        assert "is not trusted" in await place.run(host, code, ask=allow)
        assert host.reach(KEY).grants == (f"GET ask.example.org:{place.outside.port}",)
        await host.forget(KEY)
        await waiting.until(lambda: not keeper.door_tasks)
        assert not host.reach(KEY).grants


async def test_a_question_is_dropped_when_its_bot_no_longer_waits(place):
    asking, begun, dropped = [], asyncio.Event(), asyncio.Event()

    async def ask(request):
        if request.prompt == "held":
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                dropped.set()
        if not asking:
            held = host.ask_person(
                next(iter(keeper.door_tasks)), values.InputRequested("held", False)
            )
            asking.append(asyncio.create_task(held))
        await asyncio.sleep(0.1)
        return "end" if dropped.is_set() else "more"

    async with place.bot() as (host, keeper), asyncio.timeout(60):
        # Code asks in between, and waits as long as the other question does.
        running = asyncio.create_task(
            place.run(host, "while input() == 'more':\n    pass\nprint('over')", ask=ask)
        )
        await begun.wait()
        asking[0].cancel()
        assert await running == "over"
        await host.forget(KEY)


async def test_of_two_bots_the_last_one_has_the_doors(place):
    async with place.bot() as (first, one), place.bot() as (second, other):

        async def ask_in(host):
            async with host.lease(KEY, person="u") as lease:
                kernel = await lease.kernel()
                shown = []
                await cancellable_executions.run(host, kernel, place.get, show=shown.append)
            return "".join(output.plain for output in shown).strip()

        trusted = f"open('ca.pem', 'w').write({place.outside.authority.certificate!r})"
        await place.run(first, trusted)
        for host, has, has_not in ((second, other, one), (first, one, other)):
            assert await ask_in(host) == "outside"
            assert len(has.door_tasks) == 1
            async with asyncio.timeout(5):
                while has_not.door_tasks:  # noqa: ASYNC110 - it is told by a connection's end
                    await asyncio.sleep(0.01)
        await first.forget(KEY)
