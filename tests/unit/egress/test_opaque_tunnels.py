"""Tunnels' connections, on sockets of this process."""

import contextlib
import socket

import pytest

from interpreter_bot.egress import opaque_tunnels


@pytest.mark.parametrize("take", [opaque_tunnels.StreamPair.open, opaque_tunnels.StreamPair.accept])
async def test_one_connection_does_not_keep_the_event_loop_from_others(take):
    ours, other_end = socket.socketpair()
    with contextlib.closing(other_end):
        pair = await take(ours)
        other_end.sendall(bytes(100_000))
        assert len(await pair.reader.read(1_000_000)) <= 48 * 1024
        await pair.close()
