"""Packets, and what else may come through their sockets."""

import asyncio
import dataclasses
import json
import os
import socket

import pytest

from interpreter_bot.guest import control_messages
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


KERNEL = control_messages.KernelParameters(
    uid=7,
    has_own_id=True,
    channel_count=3,
    home="/mnt/data",
    affinity=[0, 1],
    doors=[],
    temporary_bytes=1 << 40,
    proc_files={"meminfo": "none"},
    rlimits={"STACK": [1, 2]},
)


async def test_messages_come_with_their_descriptors(pair, null):
    channel, theirs = pair
    request = control_messages.ForkInit("a", KERNEL)
    control_messages.send(theirs, request, [null])
    packet = await channel.receive()
    assert packet.message == request
    (descriptor,) = packet.descriptors
    assert os.fstat(descriptor) == os.fstat(null)
    packet.close()


def _packet(kind: str, fields: object) -> bytes:
    return json.dumps({"type": kind, "fields": fields}).encode()


KERNEL_FIELDS = dataclasses.asdict(KERNEL)
NO_MESSAGES = {
    "no object": b"[]",
    "cut": b"{",
    "no text": b"\xff",
    "deep": b"[" * 50_000,
    "unknown": _packet("Message", {}),
    "no dataclass": _packet("dict", {}),
    "no fields": b'{"type": "Attached"}',
    "fields in a list": _packet("KernelEnded", ["status"]),
    "a missing field": _packet("InitForked", {}),
    "a field too many": _packet("InitForked", {"id": "a", "reason": "b"}),
    "another type": _packet("InitForked", {"id": 7}),
    "a truth as a number": _packet("KernelEnded", {"status": True}),
    "a wrong item": _packet("CloneTrees", {"id": "a", "paths": ["a", None]}),
    "a wrong value": _packet(
        "ForkInit", {"id": "a", "kernel": KERNEL_FIELDS | {"rlimits": {"A": 1}}}
    ),
    "a nested message": _packet("ForkInit", {"id": "a", "kernel": "uid"}),
}


@pytest.mark.parametrize("data", NO_MESSAGES.values(), ids=NO_MESSAGES)
async def test_what_is_no_message_ends_the_channel_and_leaves_no_descriptor(pair, null, data):
    channel, theirs = pair
    before = os.listdir("/proc/self/fd")
    socket.send_fds(theirs, [data], [null] * 3)
    assert await channel.receive() is None
    assert os.listdir("/proc/self/fd") == before


async def test_a_closed_channel_ends_its_reader_and_leaves_the_next_one_alone():
    channel, theirs = control_channels.ControlChannel.pair()
    with theirs:
        receiving = asyncio.create_task(channel.receive())
        await asyncio.sleep(0)
        channel.close()
        # Its descriptors are the lowest free numbers, so they are those that were just closed.
        following, their_end = control_channels.ControlChannel.pair()
        with their_end:
            waiting = asyncio.create_task(following.receive())
            async with asyncio.timeout(10):
                assert await receiving is None
                control_messages.send(their_end, control_messages.IdsNeeded())
                packet = await waiting
            assert packet.message == control_messages.IdsNeeded()
        following.close()
