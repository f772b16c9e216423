"""Control messages between the bot, the fork server, the init server, inits and their kernels.

One JSON object, with descriptors, per packet of a SOCK_SEQPACKET Unix socket. Both ends are
this project's and on one machine; the bot still validates what arrives.
"""

from __future__ import annotations

import json
import os
import socket
import traceback
from typing import Any

PACKET_BYTES = 64 * 1024
# A kernel gets its listeners, namespaces, and an entrance to each hierarchy of cgroups.
_DESCRIPTORS = 32
_HERE = os.path.dirname(__file__)
_REASON_CHARACTERS = 1000


class StartError(Exception):
    """A failure that another process reported, whose message is complete."""


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send one message with its descriptors (which stay open here)."""
    packet = json.dumps(message).encode()
    if descriptors:
        socket.send_fds(channel, [packet], descriptors)
    else:
        channel.send(packet)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Wait for one message; None if the other end is closed."""
    packet, descriptors, _, _ = socket.recv_fds(channel, PACKET_BYTES, _DESCRIPTORS)
    return (json.loads(packet), descriptors) if packet else None


def failure(error: Exception) -> dict[str, Any]:
    """Describe what failed, and at which step: this package's functions on the way, outermost
    first.
    """
    if isinstance(error, StartError):
        reason = str(error)
    else:
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        steps = [code.co_name for code in codes if os.path.dirname(code.co_filename) == _HERE]
        reason = f"{type(error).__name__}: {error} (in {' → '.join(steps[-3:])})"
    return {"event": "failed", "reason": reason[:_REASON_CHARACTERS]}
