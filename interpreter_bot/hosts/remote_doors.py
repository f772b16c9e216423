"""Doors of kernels in a host process, which hands them to the bot with its own descriptors."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import os
import pathlib
import socket
import urllib.parse
from typing import Final

from interpreter_bot import errors, network_reach, values
from interpreter_bot.hosts import host_connection, kernel_doors, socket_owners

_log = logging.getLogger(__name__)

_SECONDS: Final = 20.0
_ANSWER_BYTES: Final = 4096
_REQUEST: Final = "POST /v1/doors?{asked} HTTP/1.1\r\nHost: host\r\nContent-Length: 0\r\n\r\n"


class RemoteDoors:
    """Opens doors of one host's kernels, and opens or shuts those of the bot before this one."""

    def __init__(
        self,
        connection: host_connection.HostConnection,
        doorkeeper: kernel_doors.Doorkeeper | None,
        *,
        is_bot: bool,
    ) -> None:
        """Open nothing yet.

        Args:
            connection: to the host.
            doorkeeper: decides what kernels reach; None lets them reach nothing.
            is_bot: whether the doors that the bot before had are this process's now; a command
                that only looks must not shut them.
        """
        self._connection = connection
        self._doorkeeper = doorkeeper
        self._opening: asyncio.Task[None] | None = None
        if is_bot:
            connection.on_connect = self._take_over

    def reach(self, key: str) -> network_reach.Reach:
        """Return what code of a session may reach outside."""
        return network_reach.NOWHERE if self._doorkeeper is None else self._doorkeeper.reach(key)

    async def close(self) -> None:
        """Take over no more."""
        self._connection.on_connect = None
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})

    async def open(self, key: str, kernel_id: str) -> None:
        """Let the doorkeeper open a kernel's doors, and the host tell the kernel of them."""
        if self._doorkeeper is None:
            return
        doors = functools.partial(self._fetched, key, kernel_id)
        try:
            told = await self._doorkeeper.open(key, kernel_id, doors)
            if told is not None:
                said = {"kernel": kernel_id, "code": told.code, "mark": told.mark}
                await self._connection.request("POST", "/v1/introduce", said)
        except errors.KernelError:
            # Where the host is gone, so is the kernel; what runs there says so.
            _log.warning("the doors of %s could not be opened", kernel_id, exc_info=True)

    def _take_over(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._opening = asyncio.create_task(self._open_unheld(), name="doors that no bot has")

    async def _open_unheld(self) -> None:
        """Open what code may be waiting at, whose bot has gone; shut what nothing allows now."""
        try:
            unheld = await self._connection.request("GET", "/v1/unheld_doors")
            for kernel_id, key in dict(unheld).items():
                reach = self.reach(str(key))
                if reach.hosts or reach.offers:
                    await self.open(str(key), str(kernel_id))
                else:
                    await self._connection.request("POST", "/v1/shut_doors", {"kernel": kernel_id})
        except (errors.BotError, ValueError):
            _log.warning("doors of kernels could not be opened again", exc_info=True)

    async def _fetched(self, key: str, kernel_id: str) -> kernel_doors.Doors | None:
        """Ask the host for a kernel's doors; None if it gives none."""
        loop = asyncio.get_running_loop()
        path = self._connection.address
        if not isinstance(path, pathlib.Path):
            # No descriptor travels to another machine.
            return None
        asked = urllib.parse.urlencode({"kernel": kernel_id, "key": key})
        link = socket.socket(socket.AF_UNIX)
        try:
            async with asyncio.timeout(_SECONDS):
                link.setblocking(False)
                await loop.sock_connect(link, str(path))
                socket_owners.check(link, path)
                await loop.sock_sendall(link, _REQUEST.format(asked=asked).encode("ascii"))
                answered = asyncio.Event()
                loop.add_reader(link, answered.set)
                try:
                    await answered.wait()
                finally:
                    loop.remove_reader(link)
            found = _received(link)
        except OSError as error:
            link.close()
            raise errors.KernelError from error
        except BaseException:
            link.close()
            raise
        if found is None:
            link.close()
            return None
        return dataclasses.replace(found, ask=functools.partial(self._ask, kernel_id))

    async def _ask(self, kernel_id: str, question: values.InputRequested) -> str:
        said = {"kernel": kernel_id, "question": question}
        return str(await self._connection.request("POST", "/v1/ask", said))


def _received(link: socket.socket) -> kernel_doors.Doors | None:
    """Read what the host answered: descriptors, or why there are none."""
    said, descriptors, _, _ = socket.recv_fds(
        link, _ANSWER_BYTES, kernel_doors.COUNT, socket.MSG_CMSG_CLOEXEC
    )
    if said != kernel_doors.HANDED or len(descriptors) != kernel_doors.COUNT:
        _log.info("the host gave no doors: %r", said)
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    proxy, services = (socket.socket(fileno=descriptor) for descriptor in descriptors[:2])
    return kernel_doors.Doors(proxy, services, descriptors[2], link)
