"""Connections of code at a door, carried over WebSockets between a host and a remote bot.

Each connection has a WebSocket, so that a slow reader delays only itself. Binary messages carry
data; a text message says that no more data follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web

_log = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 20.0
"""Heartbeat of the link. Streams have none, because it would wait behind their data."""

_CHUNK_BYTES: Final = 64 * 1024
_END_MESSAGE: Final = "end"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

Peer: TypeAlias = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def relay(endpoint: socket.socket, peer: Peer, *, max_seconds: float | None = None) -> None:
    """Pass bytes both ways until both sides have ended, or one is lost; then close both.

    `endpoint` is connected and non-blocking. After the peer's end, the endpoint may
    still send for `max_seconds`.
    """
    send_task = asyncio.create_task(_send(endpoint, peer), name="bytes from a door's connection")
    receive_task = asyncio.create_task(
        _receive(endpoint, peer), name="bytes to a door's connection"
    )
    is_complete = False
    try:
        done_tasks, pending_tasks = await asyncio.wait(
            {send_task, receive_task}, return_when=asyncio.FIRST_COMPLETED
        )
        if pending_tasks and all(task.exception() is None for task in done_tasks):
            await asyncio.wait(
                pending_tasks, timeout=max_seconds if receive_task in done_tasks else None
            )
        is_complete = all(
            task.done() and task.exception() is None for task in (send_task, receive_task)
        )
    finally:
        for task in (send_task, receive_task):
            task.cancel()
        try:
            # Unlike `asyncio.wait`, this waits for both even if it is cancelled meanwhile.
            await asyncio.gather(send_task, receive_task, return_exceptions=True)
        finally:
            if is_complete:
                endpoint.close()
            else:
                reset(endpoint)
        for task in (send_task, receive_task):
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.debug("a relayed connection broke off: %r", error)
        await peer.close()


def reset(endpoint: socket.socket) -> None:
    """Reset a connection, unless it is closed: truncated data must not look complete."""
    with contextlib.suppress(OSError):
        if endpoint.family != socket.AF_UNIX:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    endpoint.close()


async def _send(endpoint: socket.socket, peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(endpoint, _CHUNK_BYTES):
        # This waits while the other end does not read.
        await peer.send_bytes(data)
    await peer.send_str(_END_MESSAGE)


async def _receive(endpoint: socket.socket, peer: Peer) -> None:
    """Pass on data until the peer says that no more follows.

    Raises:
        OSError: the peer disconnected before, or the endpoint is gone.
    """
    loop = asyncio.get_running_loop()
    async for message in peer:
        if message.type is aiohttp.WSMsgType.BINARY:
            await loop.sock_sendall(endpoint, message.data)
        elif message.type is aiohttp.WSMsgType.TEXT and message.data == _END_MESSAGE:
            endpoint.shutdown(socket.SHUT_WR)
            return
    raise ConnectionResetError
