"""Doors of a host's kernels that go from bot to bot: each bot hears whether it has them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import aiohttp
import pytest
from aiohttp import test_utils, web

from interpreter_bot.hosts import kernel_doors, messages
from interpreter_bot.kernel_host import door_leases

LINK = "/v1/door_link"
STREAM = "/v1/door_stream"


class Host:
    """A host with one kernel, which lives until `end_kernel` is called."""

    def __init__(self):
        self._process, self._kernel = os.pipe()
        self.port = 0
        self.is_preparing, self.may_prepare = asyncio.Event(), asyncio.Event()
        self.may_prepare.set()

    async def doors(self, kernel_id):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        doors = kernel_doors.ListeningDoors(*sockets, self._process, ask=None)
        self.port = sockets[kernel_doors.PROXY].getsockname()[1]
        return doors

    def end_kernel(self):
        os.close(self._kernel)

    async def on_prepare(self, request, response):
        if request.path == STREAM:
            self.is_preparing.set()
            await self.may_prepare.wait()

    async def code(self):
        """Connect to the kernel's door, as its code does."""
        connection = socket.socket()
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        return connection


@pytest.fixture
async def host():
    host = Host()
    leases = door_leases.DoorLeases(host)
    app = web.Application()
    app.add_routes(leases.routes())
    app.on_response_prepare.append(host.on_prepare)
    server = test_utils.TestServer(app)
    async with server, aiohttp.ClientSession(server.make_url("/")) as session:
        host.session = session
        yield host
        host.may_prepare.set()
        await leases.close()


@contextlib.asynccontextmanager
async def bot(host):
    """A bot that has the doors as far as it knows."""
    async with host.session.ws_connect(LINK, params={"kernel": "k", "key": "s"}) as link:
        yield link


async def has_doors(link):
    """Whether the host still says that a bot has the doors, and offers it what connects."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            async for _ in link:
                pass
            return False
    return True


@contextlib.asynccontextmanager
async def hanging_bot(host):
    """A bot that has the doors and a connection of code, and says nothing any more."""
    async with bot(host) as link:
        await link.receive_json()
        with await host.code():
            name = messages.decode(messages.ToDoors, await link.receive_str()).stream_name
            async with host.session.ws_connect(STREAM, params={"stream": name}):
                yield


async def test_of_simultaneous_links_one_gets_the_doors_and_the_others_end(host):
    async with hanging_bot(host), contextlib.AsyncExitStack() as stack:
        claims = [stack.enter_async_context(bot(host)) for _ in range(3)]
        links = await asyncio.gather(*claims)
        assert sorted(await asyncio.gather(*map(has_doors, links))) == [False, False, True]


async def test_a_link_that_opens_while_the_kernel_ends_is_closed(host):
    async with hanging_bot(host), bot(host) as claimed:
        host.end_kernel()
        assert not await has_doors(claimed)


async def test_connection_that_the_bot_does_not_fetch_is_reset(host):
    async with bot(host) as link:
        await link.receive_json()
        with await host.code() as code:
            assert (
                messages.decode(messages.ToDoors, await link.receive_str()).door
                == kernel_doors.PROXY
            )
            await link.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(code, 1)


async def test_connection_that_is_given_up_while_it_is_fetched_is_reset(host):
    async with bot(host) as link:
        await link.receive_json()
        with await host.code() as code:
            name = messages.decode(messages.ToDoors, await link.receive_str()).stream_name
            host.may_prepare.clear()
            opening = host.session.ws_connect(STREAM, params={"stream": name})
            fetching = asyncio.ensure_future(opening)
            await host.is_preparing.wait()
            await link.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(code, 1)
        fetching.cancel()
