"""Owners of sockets that a bot trusts, as a host receives all code, files and answers.

The sockets' directory may be in one for all users, such as /tmp, where anybody can create it first.
So the owner of the process that listens is checked for every connection.
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
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_PEER: Final = struct.Struct("3i")


def trusted_uids(path: pathlib.Path) -> set[int]:
    """Return the users who may listen at a socket: us, root, and the runtime directory's owner.

    The owner counts only if others cannot create directories beside it.
    """
    uids = {0, os.geteuid()}
    runtime = path.parent.parent
    with contextlib.suppress(OSError):
        if not runtime.parent.stat().st_mode & stat.S_IWOTH:
            uids.add(runtime.lstat().st_uid)
    return uids


def check(peer: socket.socket, path: pathlib.Path) -> None:
    """Check the user who listens at a socket to which `peer` is connected.

    Raises:
        HostUnusableError: another user's process listens.
    """
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(raw)
    if uid not in trusted_uids(path):
        _log.warning("user %d listens at %s", uid, path)
        raise errors.HostUnusableError(host_words.OTHER_USERS)


class Connector(aiohttp.UnixConnector):
    """Connector that checks the user who listens at a socket.

    Attributes:
        has_checked: whether any connection was checked.
    """

    has_checked = False

    def __init__(self, path: pathlib.Path) -> None:
        """Connect to the socket at a path."""
        super().__init__(str(path), limit=0)
        self._socket_path = path

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the library's.
    ) -> connector.Connection:
        """Return a connection after checking who listens, before anything is sent.

        Raises:
            HostUnusableError: another user's process listens.
        """
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        try:
            if transport is None:
                raise errors.HostUnusableError(host_words.OTHER_USERS)
            check(transport.get_extra_info("socket"), self._socket_path)
            self.has_checked = True
        except errors.HostUnusableError:
            connection.close()
            raise
        return connection
