"""HTTP on streams, where a client does what costs the bot most."""

from __future__ import annotations

import asyncio
import socket

import h11

from interpreter_bot.egress import http_streams, opaque_tunnels


async def test_a_body_of_tiny_chunks_is_joined_counted_and_blocks_nobody():
    server, client = socket.socketpair()
    ends = await opaque_tunnels.StreamPair.accept(server)
    _, writer = await asyncio.open_connection(sock=client)
    turns, counted, pieces = 0, [], []
    head = b"POST http://x/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = head + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"

    async def read():
        stream = http_streams.HttpStream(ends, h11.SERVER)
        await stream.read_request()
        async for piece in stream.body(counted.append):
            pieces.append(piece)

    writer.write(raw)
    reading = asyncio.create_task(read())
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    await reading
    writer.close()
    await ends.close()
    assert b"".join(pieces) == b"x" * 5000
    assert sum(counted) == len(raw)
    assert len(pieces) < 100
    assert turns > 100
