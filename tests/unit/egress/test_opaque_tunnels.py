"""Tunnels' connections, on sockets of this process."""

import asyncio
import contextlib
import socket

import pytest

from interpreter_bot import code_activity, settings
from interpreter_bot.egress import opaque_tunnels, policies, traffic_limits
from interpreter_bot.wording import network_words


@pytest.mark.parametrize("take", [opaque_tunnels.StreamPair.open, opaque_tunnels.StreamPair.accept])
async def test_one_connection_does_not_keep_the_event_loop_from_others(take):
    ours, other_end = socket.socketpair()
    with contextlib.closing(other_end):
        pair = await take(ours)
        other_end.sendall(bytes(100_000))
        assert len(await pair.reader.read(1_000_000)) <= 48 * 1024
        await pair.close()


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("pause_seconds", "sentence"),
    [(30, network_words.TOOK_TOO_LONG), (90, network_words.idle_too_long(60))],
)
async def test_a_tunnel_is_called_idle_only_if_nothing_came(pause_seconds, sentence):
    client_end, client_socket = socket.socketpair()
    server_end, server_socket = socket.socketpair()
    client = await opaque_tunnels.StreamPair.accept(client_socket)
    server = await opaque_tunnels.StreamPair.open(server_socket)

    async def send():
        while True:
            client_end.send(b"x")
            await asyncio.sleep(pause_seconds)

    sending = asyncio.create_task(send())
    with client_end, server_end, pytest.raises(policies.Refusal) as raised:
        await opaque_tunnels.relay(
            client,
            server,
            traffic=traffic_limits.Traffic(settings.EgressLimits()),
            contact=code_activity.Contact("web///x", "kernel"),
            idle_seconds=60,
        )
    assert str(raised.value) == sentence
    sending.cancel()
    await asyncio.wait({sending})
    await client.close()
    await server.close()
