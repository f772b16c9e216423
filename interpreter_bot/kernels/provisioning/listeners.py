"""The sockets that a kernel is handed, at addresses that only the bot knows."""

from __future__ import annotations

import os
import pathlib
import socket

CHANNELS = ("shell", "iopub", "stdin")
_BACKLOG = 8


def listen(directory: pathlib.Path) -> list[socket.socket]:
    """Make a directory of our own, and a listening socket in it for each channel.

    Args:
        directory: must not exist yet.
    """
    directory.mkdir(mode=0o700, parents=True)
    listeners = []
    # A socket tells whoever has it the path it was bound by. This one means nothing in a kernel.
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number in range(1, len(CHANNELS) + 1):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.bind(f"/proc/self/fd/{place}/k-{number}")
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    finally:
        os.close(place)
    return listeners
