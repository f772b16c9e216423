"""Control messages between the bot, the fork server and each kernel's init process.

One JSON object per packet over a SOCK_SEQPACKET Unix socket, descriptors beside it. Both ends are
this project's and on one machine; the bot still validates what arrives.
"""

from __future__ import annotations

import json
import socket
from typing import Any

PACKET_BYTES = 64 * 1024
_DESCRIPTORS = 8


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send one message with its descriptors (which stay open here)."""
    packet = json.dumps(message).encode()
    if descriptors:
        socket.send_fds(channel, [packet], descriptors)
    else:
        channel.send(packet)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Wait for one message; None when the other end is gone."""
    packet, descriptors, _, _ = socket.recv_fds(channel, PACKET_BYTES, _DESCRIPTORS)
    return (json.loads(packet), descriptors) if packet else None
