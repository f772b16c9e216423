"""Connections that are carried over WebSockets: what becomes of them when the bot ends amid one."""

import asyncio
import contextlib
import socket

from interpreter_bot.hosts import door_streams


class BrokenPeer:
    """A WebSocket that is lost, while it takes its time to give up what is sent."""

    def __init__(self):
        self.gives_up, self.is_gone = asyncio.Event(), asyncio.Event()
        self.sends = asyncio.Event()

    async def send_bytes(self, data):
        self.sends.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.gives_up.set()
            await self.is_gone.wait()

    async def __aiter__(self):
        await self.sends.wait()
        for nothing in ():
            yield nothing

    async def close(self):
        pass


async def test_a_relay_cancelled_while_its_peer_is_lost_closes_the_connection():
    endpoint, code = socket.socketpair()
    endpoint.setblocking(False)
    peer = BrokenPeer()
    with code:
        code.sendall(b"x")
        relaying = asyncio.create_task(door_streams.relay(endpoint, peer))
        await peer.gives_up.wait()
        relaying.cancel()
        await asyncio.sleep(0)
        peer.is_gone.set()
        with contextlib.suppress(asyncio.CancelledError):
            await relaying
        assert endpoint.fileno() == -1
        assert code.recv(1) == b""
