"""Doors of real kernels: what is listed is reached through them, and nothing else by any way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import tempfile

import pytest
import pytest_asyncio

from interpreter_bot import errors, settings, values
from interpreter_bot.egress import broker
from interpreter_bot.hosts import cancellable_executions, local_startup
from tests.fakes import external_servers

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.asyncio(loop_scope="module"),
]

OPEN, SHUT = values.SessionKey("web", thread="open"), values.SessionKey("console", thread="shut")
SECRET = "a-secret-of-the-bot"
GET = """
import requests
print(requests.get('https://data.example.org:{port}/x', verify='ca.pem').text)
"""


class Place:
    """A host with a broker, and what is outside of it."""

    def __init__(self, host, server, doorkeeper):
        self.host = host
        self.outside = server
        self.broker = doorkeeper

    async def run(self, code: str, key=OPEN) -> str:
        shown: list[values.Output] = []
        async with self.host.lease(values.format_key(key)) as lease:
            kernel = await lease.kernel()
            await cancellable_executions.run(self.host, kernel, code, show=shown.append)
        return "".join(one.plain for one in shown).strip()


@contextlib.asynccontextmanager
async def _local(config, keeper):
    async with local_startup.open_host(config, doorkeeper=keeper) as host:
        yield host


@contextlib.asynccontextmanager
async def _place(opening):
    async with contextlib.AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp"))
        os.chmod(name, 0o755)
        server = await stack.enter_async_context(
            external_servers.ExternalServer.open("data.example.org")
        )
        rule = {"ports": (server.port,), "addresses": ("127.0.0.1",), "places": ("web",)}
        config = settings.Settings(
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            kernels=settings.Kernels(preload=(), spares=0, freeze_seconds=0),
            limits=settings.Limits(execution_seconds=60),
            egress=(
                settings.Egress(host="data.example.org", **rule),
                settings.Egress(
                    host="read.example.org",
                    paths=("/",),
                    headers={"Authorization": "Bearer ${KEY}"},
                    **rule,
                ),
            ),
        )
        resolve = external_servers.make_resolver(["127.0.0.1"])
        opening_broker = broker.open_broker(config, {"KEY": SECRET}, resolve=resolve)
        keeper = await stack.enter_async_context(opening_broker)
        host = await stack.enter_async_context(opening(config, keeper))
        yield Place(host, server, keeper)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place():
    async with _place(_local) as opened:
        for key in (OPEN, SHUT):
            code = f"open('ca.pem', 'w').write({opened.outside.authority.certificate!r})"
            await opened.run(code, key)
        yield opened


async def test_requests_reaches_a_listed_host_through_the_tunnel(place):
    assert await place.run(GET.format(port=place.outside.port)) == "outside"
    assert place.outside.heads[-1].startswith("GET /x HTTP/1.1\r\n")


async def test_other_clients_use_the_proxy_without_configuration(place):
    code = f"""
import os, ssl, urllib.request
url = 'https://data.example.org:{place.outside.port}/y'
context = ssl.create_default_context(cafile='ca.pem')
print(urllib.request.urlopen(url, context=context).read().decode())
bundle = open(os.environ['SSL_CERT_FILE']).read()
print(bundle.count('BEGIN CERTIFICATE') > 50)
"""
    assert (await place.run(code)).split() == ["outside", "True"]


async def test_an_unlisted_host_is_refused_with_a_reason_and_not_contacted(place):
    before = place.outside.connections
    told = await place.run(GET.replace("data.", "evil.").format(port=place.outside.port))
    assert "evil.example.org" in told
    assert "not allowed" in told
    assert place.outside.connections == before


async def test_a_place_without_rules_has_its_doors_shut(place):
    told = await place.run(
        "import os, socket\nprint(os.environ.get('HTTPS_PROXY'))\n"
        "for port in (61080, 61081):\n"
        "    print(socket.socket().connect_ex(('127.0.0.1', port)) == 111)\n"
        "    try:\n        socket.socket().bind(('127.0.0.1', port))\n"
        "    except OSError as error:\n        print(error.errno in (1, 98))",
        SHUT,
    )
    assert told.split() == ["None", "True", "True", "True", "True"]


async def test_only_the_proxy_leads_outside(place):
    code = (
        "import socket\n"
        f"for address in ('127.0.0.1', {place.outside.port}), ('10.0.0.1', 443), ('1.1.1.1', 53):\n"
        "    try:\n        socket.create_connection(address, 2)\n        print('reached')\n"
        "    except OSError as error:\n        print(type(error).__name__, error.errno)"
    )
    assert (await place.run(code)).splitlines() == [
        "ConnectionRefusedError 111",
        "OSError 101",
        "OSError 101",
    ]


async def test_a_door_is_gone_with_its_kernel(place):
    key = values.SessionKey("web", thread="ends")
    await place.run("1", key)
    (kernel_id,) = {
        status.kernel_id
        for name, status in (await place.host.statuses()).items()
        if name == values.format_key(key)
    }
    assert kernel_id in place.broker.door_tasks
    await place.host.forget(values.format_key(key))
    async with asyncio.timeout(20):
        while kernel_id in place.broker.door_tasks:  # noqa: ASYNC110 - it is looked up.
            await asyncio.sleep(0.01)


async def test_a_setup_that_is_cancelled_runs_at_the_next_execution(place):
    key = values.SessionKey("web", thread="stopped")
    address = values.format_key(key)
    async with place.host.pool.lease(address) as held, place.host.lease(address) as lease:
        kernel = await held.kernel()
        code = "import time; time.sleep(0.5)"
        busy = asyncio.create_task(kernel.execute(code, show=lambda _: None))
        first = asyncio.create_task(lease.kernel())
        async with asyncio.timeout(20):
            while kernel.id not in place.broker.door_tasks:  # noqa: ASYNC110 - nobody tells of it.
                await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first, busy})
        assert first.cancelled()
    assert await place.run("import os\nprint('HTTPS_PROXY' in os.environ)", key) == "True"
    executions = kernel.execution_count
    await place.run("1", key)
    assert kernel.execution_count == executions + 1, "it is told once"
    await place.host.forget(address)


async def test_a_stopped_setup_of_doors_is_an_error(place):
    await place.run("1")
    statuses = await place.host.statuses()
    kernel_id = statuses[values.format_key(OPEN)].kernel_id
    kernel = place.host.pool.kernels[values.format_key(OPEN)]
    telling = asyncio.create_task(
        place.host.set_up_doors(kernel_id, "import time; print(1); time.sleep(30)")
    )
    async with asyncio.timeout(20):
        while not telling.done():
            await kernel.stop("")
            await asyncio.sleep(0.01)
    with pytest.raises(errors.KernelError):
        await telling


async def test_a_flooded_door_serves_again(place):
    flood = """
import socket
held = []
for _ in range(300):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", 61080))
    held.append(one)
held.clear()
"""
    await place.run(flood)
    assert await place.run(GET.format(port=place.outside.port)) == "outside"


async def test_no_secret_is_in_the_kernel(place):
    code = f"""
import os, requests
print(requests.get('https://read.example.org:{place.outside.port}/x').text)
word = 'a-secret-' + 'of-the-bot'
print(word in str(dict(os.environ)), word in open('/proc/self/environ').read())
bundle = open(os.environ['SSL_CERT_FILE']).read()
print('PRIVATE' in bundle, word in bundle)
"""
    told = await place.run(code)
    assert "is not trusted" in told, "the bot does not trust that authority"
    assert told.split()[-4:] == ["False"] * 4
    assert SECRET not in told


async def test_proxy_variables_are_not_saved_with_a_session(place):
    state = await place.run(
        "import sys\n"
        "state = next(m for n, m in sys.modules.items() if n.endswith('interpreter_state'))"
        "\nprint([name for name in state.collect()['environment'] if 'PROXY' in name.upper()])"
    )
    assert state == "[]"
