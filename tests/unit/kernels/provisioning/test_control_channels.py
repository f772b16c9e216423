"""Packets, and what else may come through their sockets."""

import os
import socket

import pytest

from interpreter_bot.kernels.provisioning import control_channels


@pytest.fixture
def pair():
    """A channel, and the socket at its other end."""
    channel, theirs = control_channels.ControlChannel.pair()
    with theirs:
        yield channel, theirs
    channel.close()


@pytest.fixture
def null():
    """A descriptor to send."""
    with open(os.devnull) as file:
        yield file.fileno()


async def test_packets_come_with_their_descriptors(pair, null):
    channel, theirs = pair
    socket.send_fds(theirs, [b'{"event": "x", "n": 3}'], [null])
    packet = await channel.receive()
    assert (packet.text("event"), packet.number("n"), packet.text("n")) == ("x", 3, "")
    (descriptor,) = packet.descriptors
    assert os.fstat(descriptor) == os.fstat(null)
    packet.close()


@pytest.mark.parametrize("data", [b"[]", b"{", b"\xff", b"[" * 50_000], ids=len)
async def test_what_is_no_packet_ends_the_channel_and_leaves_no_descriptor(pair, null, data):
    channel, theirs = pair
    before = os.listdir("/proc/self/fd")
    socket.send_fds(theirs, [data], [null] * 3)
    assert await channel.receive() is None
    assert os.listdir("/proc/self/fd") == before
