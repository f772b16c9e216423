"""Messages between the bot, the fork server and the first process of each kernel.

One JSON object per packet over a Unix socket of packets, descriptors beside it. Both ends are
ours and on one machine; the bot still treats what arrives as foreign.
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
