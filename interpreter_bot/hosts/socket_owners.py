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
from typing import Any, Final

import aiohttp
from aiohttp import client_proto

from interpreter_bot import errors

_log = logging.getLogger(__name__)

_PEER: Final = struct.Struct("3i")
_STRANGER: Final = "The process that keeps the Python kernels belongs to another user."


class Connector(aiohttp.UnixConnector):
    """Connections to a host that runs as us, as root, or as whoever its place was made for."""

    def __init__(self, path: pathlib.Path) -> None:
        """Connect to a socket, in its own directory in that of what belongs to one run."""
        super().__init__(str(path), limit=0)
        self._trusted = {0, os.geteuid()}
        runtime = path.parent.parent
        with contextlib.suppress(OSError):
            if not runtime.parent.stat().st_mode & stat.S_IWOTH:
                self._trusted.add(runtime.lstat().st_uid)

    async def _create_connection(self, *args: Any, **kwargs: Any) -> client_proto.ResponseHandler:
        """Connect, and ask who listens before anything is said.

        Raises:
            HostUnusableError: a stranger.
        """
        protocol = await super()._create_connection(*args, **kwargs)
        transport = protocol.transport
        if transport is not None:
            peer = transport.get_extra_info("socket")
            raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            _, uid, _ = _PEER.unpack(raw)
            if uid not in self._trusted:
                protocol.close()
                _log.warning("user %d listens at %s", uid, self.path)
                raise errors.HostUnusableError(_STRANGER)
        return protocol
