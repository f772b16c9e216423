"""Doors of kernels of another machine, whose host says and does what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import types

import aiohttp
import pytest
from aiohttp import test_utils, web

from interpreter_bot import code_activity, errors, settings
from interpreter_bot.egress import broker, policies
from interpreter_bot.hosts import kernel_doors, messages, remote_doors

OPENED = messages.encode(messages.DoorsOpened((1, 2)))
ASKED = {"kernel": "k", "key": "s"}


class Host:
    """A host as far as doors need it, and the connection to it that the bot has."""

    def __init__(self):
        self.links: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
        self.streams: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
        self.first = OPENED
        self.address = "elsewhere"
        self.status = types.SimpleNamespace(data_id="d")
        self.on_connect = None
        self.unheld = {"k": "s"}
        self.introduced = []
        self.is_idle = asyncio.Event()
        self.faults = []
        self.answer = "no"

    @classmethod
    @contextlib.asynccontextmanager
    async def open_result(cls):
        host = cls()
        app = web.Application()
        app.router.add_get("/v1/door_link", host._link)
        app.router.add_get("/v1/door_stream", host._stream)
        server = test_utils.TestServer(app)
        async with server, aiohttp.ClientSession(server.make_url("/")) as session:
            host.session = session
            yield host

    async def _link(self, request):
        link = web.WebSocketResponse()
        await link.prepare(request)
        await link.send_str(self.first)
        self.links.put_nowait(link)
        key = self.unheld.pop(request.query["kernel"], None)
        async for _ in link:
            pass
        if key is not None:
            self.unheld[request.query["kernel"]] = key
        return link

    async def _stream(self, request):
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        self.streams.put_nowait(stream)
        await asyncio.Event().wait()

    async def set_up_doors(self, kernel_id, code, version):
        if self.faults:
            raise self.faults.pop()
        if kernel_id == "busy":
            await self.is_idle.wait()
        self.introduced.append(kernel_id)

    async def ask_person(self, kernel_id, question):
        return self.answer

    async def unleased_doors(self):
        return dict(self.unheld)


class Doorkeeper:
    """Holds what it is given, until it is closed at the other end."""

    def __init__(self):
        self.given: asyncio.Queue[kernel_doors.Doors | None] = asyncio.Queue()

    async def open(self, key, kernel_id, doors):
        self.given.put_nowait(await doors())
        return kernel_doors.DoorSetup("pass", kernel_id)

    def note_setup_done(self, kernel_id):
        pass

    def reach(self, key):
        return code_activity.Reach((code_activity.ReachableHost("a.example", (443,)),))


@pytest.fixture
async def host():
    async with Host.open_result() as host:
        yield host


async def _yes():
    return True


async def _carrying(host, is_current=_yes):
    doors = remote_doors.TunneledDoors(host, ASKED, is_current, ask=None)
    task = asyncio.create_task(doors.relay())
    await doors.open_result
    return task, doors


# Each has one fault, so it starts from a message that is valid.
CONNECTION = json.loads(messages.encode(messages.DoorConnection(0, "x")))
HOSTILE = [
    *(
        json.dumps(CONNECTION | {"fields": CONNECTION["fields"] | fault})
        for fault in ({"door": 5}, {"door": -1}, {"door": "0"}, {"door": None})
    ),
    json.dumps(CONNECTION | {"fields": {"door": 0}}),
    messages.encode(messages.Draining()),
    OPENED,
    "[]",
    "7",
    "{",
    "[" * 100_000,
]


@pytest.mark.parametrize("said", HOSTILE, ids=lambda one: one[:12])
async def test_an_invalid_message_of_a_host_only_ends_its_doors(host, said):
    task, doors = await _carrying(host)
    await (await host.links.get()).send_str(said)
    async with asyncio.timeout(5):
        assert await task
        # Whoever serves them learns it, as when a kernel ends.
        await doors.wait_closed()


@pytest.mark.parametrize(
    "said",
    [
        *("[]", "{", "[" * 99_999),
        *(
            f'{{"type": "DoorsOpened", "fields": {{"ports": {ports}}}}}'
            for ports in ("5", '["a", "b"]', "[1, Infinity]")
        ),
        messages.encode(messages.DoorConnection(0, "x")),
    ],
)
async def test_doors_whose_ports_the_host_does_not_send_stay_closed(host, said):
    host.first = said
    task, doors = await _carrying(host)
    assert not doors.open_result.result()
    assert await task is False


@pytest.mark.looptime
async def test_connections_of_a_session_that_moved_are_ended(host):
    places = [True, True]

    async def is_current():
        return places.pop() if places else False

    task, doors = await _carrying(host, is_current)
    await (await host.links.get()).send_str(messages.encode(messages.DoorConnection(0, "x")))
    stream = await host.streams.get()
    async with asyncio.timeout(60):
        assert await task
        assert (await stream.receive()).type is aiohttp.WSMsgType.CLOSE
    doors.close()


async def test_a_slow_database_does_not_block_a_link(host):
    async def never():
        await asyncio.Event().wait()

    task, doors = await _carrying(host, never)
    link = await host.links.get()
    await link.send_str(messages.encode(messages.DoorConnection(0, "x")))
    await link.ping()
    await link.close()  # Waits for the other end's word, which only who reads can give.
    async with asyncio.timeout(5):
        assert await task
    doors.close()


async def test_nothing_is_relayed_while_the_sessions_host_is_unknown(host):
    async def unknown():
        raise errors.StoreError

    task, doors = await _carrying(host, unknown)
    link = await host.links.get()
    await link.send_str(messages.encode(messages.DoorConnection(0, "x")))
    await asyncio.sleep(0.05)
    assert host.streams.empty()
    assert not task.done()
    doors.close()
    assert await task is False


@pytest.mark.looptime
async def test_doors_whose_link_broke_are_leased_again(host):
    keeper = Doorkeeper()
    doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=True)
    await doors.open("s", "k")
    first = await keeper.given.get()
    await (await host.links.get()).close()
    async with asyncio.timeout(60):
        second = await keeper.given.get()
    first.close()
    # As the kernel that ended is no reason to ask.
    second.close()
    await asyncio.sleep(5)
    assert keeper.given.empty()
    await doors.close()


@pytest.mark.looptime
async def test_doors_are_opened_when_the_database_is_back(host):
    told = [errors.StoreError(), errors.StoreError(), None, 1]

    async def find_epoch(data_id, key):
        said = told.pop(0) if len(told) > 1 else told[0]
        if isinstance(said, Exception):
            raise said
        return said

    keeper = Doorkeeper()
    doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=True, find_epoch=find_epoch)
    doors.take_over()
    async with asyncio.timeout(60):
        found = await keeper.given.get()
    assert told == [1]
    found.close()
    await doors.close()


@pytest.mark.looptime
async def test_doors_that_become_free_later_are_opened(host):
    host.unheld = {}
    keeper = Doorkeeper()
    doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=True)
    doors.take_over()
    await asyncio.sleep(30)
    assert keeper.given.empty()
    host.unheld = {"k": "s"}
    async with asyncio.timeout(60):
        (await keeper.given.get()).close()
    await doors.close()


@pytest.mark.looptime
async def test_a_busy_kernel_does_not_delay_doors_of_others(host):
    host.unheld = {"busy": "a", "k": "s"}
    keeper = Doorkeeper()
    doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=True)
    doors.take_over()
    async with asyncio.timeout(60):
        given = [await keeper.given.get() for _ in range(2)]
        while host.introduced != ["k"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        # It is not begun again meanwhile.
        await asyncio.sleep(30)
        assert keeper.given.empty()
        host.is_idle.set()
        while host.introduced != ["k", "busy"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for one in given:
        one.close()
    await doors.close()


@pytest.mark.looptime
async def test_doors_are_opened_again_before_the_setup_of_a_busy_kernel(host):
    host.unheld = {"busy": "a"}
    keeper = Doorkeeper()
    doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=True)
    doors.take_over()
    async with asyncio.timeout(60):
        first = await keeper.given.get()
        await (await host.links.get()).close()
        second = await keeper.given.get()
        host.is_idle.set()
        while host.introduced != ["busy"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for one in (first, second):
        one.close()
    await doors.close()


async def test_a_failed_setup_of_doors_is_repeated_at_the_next_execution(host):
    host.faults = [errors.KernelError()]
    config = settings.Settings(egress=(settings.Egress(host="a.example"),))
    async with broker.open_broker(config, {}) as keeper:
        doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=True)
        for _ in range(3):
            await doors.open("web:s", "k")
        assert host.introduced == ["k"]
        assert host.links.qsize() == 1, "they were opened once"
        await doors.close()


async def test_doors_that_are_closed_before_they_are_served_are_released(host):
    task, doors = await _carrying(host)
    config = settings.Settings(egress=(settings.Egress(host="a.example"),))
    async with broker.open_broker(config, {}) as keeper:
        await keeper.open("web:s", "k", lambda: asyncio.sleep(0, doors))
    async with asyncio.timeout(5):
        assert await task is False


async def test_approvals_of_a_kernel_outlive_its_link(host):
    config = settings.Settings(egress=(settings.Egress(host="a.example", approval="ask"),))
    contact = code_activity.Contact("web:s", "k", "GET", "a.example", 443)
    host.answer = "session"
    async with broker.open_broker(config, {}) as keeper, asyncio.timeout(5):
        doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=False)
        for _ in range(2):
            await doors.open("web:s", "k")
            await keeper._open_approvals["k"][1].require(contact, target="/", body_beginning=b"")
            assert keeper.reach("web:s").grants == ("GET a.example:443",)
            await (await host.links.get()).close()
            while keeper.door_tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not keeper.reach("web:s").grants
            host.answer = "no"  # Nobody is asked again.
        await doors.close()


async def test_approvals_of_a_kernel_outlive_the_bot(host):
    config = settings.Settings(egress=(settings.Egress(host="a.example", approval="ask"),))
    contact = code_activity.Contact("web:s", "k", "GET", "a.example", 443)
    other = dataclasses.replace(contact, method="POST")

    async def find_grants(key, kernel_id):
        return {"GET a.example:443"} if (key, kernel_id) == ("web:s", "k") else ()

    async with broker.open_broker(config, {}) as keeper, asyncio.timeout(5):
        keeper.find_grants = find_grants
        doors = remote_doors.RemoteDoors(host, host, keeper, is_bot=False)
        await doors.open("web:s", "k")
        await keeper._open_approvals["k"][1].require(contact, target="/", body_beginning=b"")
        assert keeper.reach("web:s").grants == ("GET a.example:443",)
        with pytest.raises(policies.Refusal):
            await keeper._open_approvals["k"][1].require(other, target="/", body_beginning=b"")
        await doors.close()


@pytest.mark.looptime
async def test_doors_of_many_kernels_are_opened_a_few_at_a_time(host):
    host.unheld = {str(number): "s" for number in range(50)}
    at_once, now = [], []

    async def find_epoch(data_id, key):
        now.append(key)
        at_once.append(len(now))
        await asyncio.sleep(0.01)
        now.pop()

    doors = remote_doors.RemoteDoors(host, host, Doorkeeper(), is_bot=True, find_epoch=find_epoch)
    doors.take_over()
    async with asyncio.timeout(60):
        while len(at_once) < 50:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert max(at_once) == 16
    await doors.close()


async def test_doors_that_open_after_a_cancellation_are_closed(host):
    doors = remote_doors.RemoteDoors(host, host, Doorkeeper(), is_bot=True)
    opening = asyncio.create_task(doors.open("s", "k"))
    async with asyncio.timeout(5):
        link = await host.links.get()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        while not link.closed:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    await doors.close()


async def test_a_connection_is_relayed_both_ways_to_its_end(host):
    task, doors = await _carrying(host)
    await (await host.links.get()).send_str(messages.encode(messages.DoorConnection(1, "x")))
    async with asyncio.timeout(5):
        endpoint = await doors.accept(kernel_doors.SERVICES)
        stream = await host.streams.get()
        reader, writer = await asyncio.open_connection(sock=endpoint)
        await stream.send_bytes(b"question")
        assert await reader.readexactly(8) == b"question"
        writer.write(b"answer")
        writer.write_eof()
        assert (await stream.receive()).data == b"answer"
        await stream.send_str("end")
        assert await reader.read() == b""
        writer.close()
        doors.close()
        assert await task is False


async def test_connections_that_nobody_accepted_are_closed_with_the_doors(host):
    task, doors = await _carrying(host)
    await (await host.links.get()).send_str(messages.encode(messages.DoorConnection(0, "x")))
    async with asyncio.timeout(5):
        stream = await host.streams.get()
        doors.close()
        assert await task is False
        assert (await stream.receive()).type is aiohttp.WSMsgType.CLOSE
