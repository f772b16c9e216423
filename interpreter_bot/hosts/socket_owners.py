"""Whose sockets a bot trusts: what is said to a host is all code, all files and all answers.

Where a host listens may lie in a directory for all users, as /tmp, where anybody can be first. So
the directory must be our own, and of every connection it is asked who listens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import socket
import stat
import struct
from typing import Final

import aiohttp
from aiohttp import connector, tracing

from interpreter_bot import errors

_log = logging.getLogger(__name__)

_PEER: Final = struct.Struct("3i")
_OTHER_USER: Final = "The process that keeps the Python kernels belongs to another user."


def trusted_uids(path: pathlib.Path) -> set[int]:
    """Return who may listen at a socket, in its own directory in that of what belongs to one run:
    us, root, or whoever its place was made for.
    """
    uids = {0, os.geteuid()}
    runtime = path.parent.parent
    with contextlib.suppress(OSError):
        if not runtime.parent.stat().st_mode & stat.S_IWOTH:
            uids.add(runtime.lstat().st_uid)
    return uids


def check(peer: socket.socket, path: pathlib.Path) -> None:
    """Check who listens, before anything is said.

    Args:
        peer: connected to it.
        path: of its socket.

    Raises:
        HostUnusableError: a stranger.
    """
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(raw)
    if uid not in trusted_uids(path):
        _log.warning("user %d listens at %s", uid, path)
        raise errors.HostUnusableError(_OTHER_USER)


class Connector(aiohttp.UnixConnector):
    """Connections to a host that is no stranger's.

    Attributes:
        has_checked: whether it was ever asked who listens.
    """

    has_checked = False

    def __init__(self, path: pathlib.Path) -> None:
        """Connect to a socket; see `check`."""
        super().__init__(str(path), limit=0)
        self._socket_path = path

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the library's.
    ) -> connector.Connection:
        """Return a connection, of which it was asked who listens before anything is said.

        Raises:
            HostUnusableError: a stranger.
        """
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        try:
            if transport is None:
                raise errors.HostUnusableError(_OTHER_USER)
            check(transport.get_extra_info("socket"), self._socket_path)
            self.has_checked = True
        except errors.HostUnusableError:
            connection.close()
            raise
        return connection
