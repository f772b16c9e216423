"""Doors of kernels: where the bot can listen in a kernel's own network, and who decides on that."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TypeAlias

from interpreter_bot import code_activity, errors, values
from interpreter_bot.kernels.provisioning import control_channels, start_parameters

Door: TypeAlias = Literal[0, 1]

PROXY: Final = 0
"""Number of the door for what code wants of the outside."""

SERVICES: Final = 1
"""Number of the door for what the bot itself offers to code."""

Ask: TypeAlias = Callable[[values.InputRequested], Awaitable[str]]
"""Asks whoever runs a kernel's code of now, whose time stands still."""

_BACKLOG: Final = 128


class Doors(Protocol):
    """Both doors of one kernel, open until they are closed here or there."""

    @property
    def ports(self) -> tuple[int, int]:
        """Of both doors, in the kernel's network."""

    @property
    def ask(self) -> Ask | None:
        """None if nobody can be asked."""

    async def accept(self, door: int) -> socket.socket:
        """Return the next connection of code at a door, not blocking.

        Raises:
            OSError: it could not be accepted; the next one may be.
        """

    async def wait_closed(self) -> None:
        """Return once the kernel has ended, or its host gives no more connections."""

    def close(self) -> None:
        """Accept no more."""


class LocalDoors(abc.ABC):
    """Doors of a kernel of this process."""

    ports: Final = start_parameters.DOOR_PORTS

    def __init__(
        self, proxy: socket.socket, services: socket.socket, process: int, ask: Ask
    ) -> None:
        """Listen.

        Args:
            proxy: what its provisioner gives for that door.
            services: likewise.
            process: descriptor of the kernel's first process, readable once that has ended. The
                sockets alone would keep its network.
            ask: see `Doors`.
        """
        self.ask = ask
        self._sockets = proxy, services
        self._process = process
        self._ended = asyncio.Event()
        for door in self._sockets:
            door.setblocking(False)
        asyncio.get_running_loop().add_reader(process, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process)
        self._ended.set()

    @abc.abstractmethod
    async def accept(self, door: int) -> socket.socket:
        """Return the next connection; see `Doors.accept`."""

    async def wait_closed(self) -> None:
        """Return once the kernel has ended."""
        await self._ended.wait()

    def close(self) -> None:
        """Close the sockets."""
        self._end()
        for door in self._sockets:
            door.close()
        os.close(self._process)


class ListeningDoors(LocalDoors):
    """Sockets that are bound in the kernel's own network."""

    def __init__(
        self, proxy: socket.socket, services: socket.socket, process: int, ask: Ask
    ) -> None:
        super().__init__(proxy, services, process, ask)
        for door in self._sockets:
            door.listen(_BACKLOG)

    async def accept(self, door: int) -> socket.socket:
        """Return the next connection; see `Doors.accept`."""
        endpoint, _ = await asyncio.get_running_loop().sock_accept(self._sockets[door])
        return endpoint


class SupervisedDoors(LocalDoors):
    """Sockets to the keeper of a session without a network, which connects in its place.

    See `guest/supervised_connections`.
    """

    async def accept(self, door: int) -> socket.socket:
        """Return the next connection; see `Doors.accept`."""
        channel = control_channels.ControlChannel(self._sockets[door])
        packet = None
        with contextlib.suppress(errors.KernelStartError):
            await channel.send({"op": "accept"})
            packet = await channel.receive()
        if packet is None:
            # The keeper is gone. As with a socket that listens, nothing comes any more.
            await asyncio.get_running_loop().create_future()
            raise ConnectionError
        (descriptor,) = packet.descriptors
        endpoint = socket.socket(fileno=descriptor)
        endpoint.setblocking(False)
        return endpoint


@dataclasses.dataclass(frozen=True, slots=True)
class Introduction:
    """What a kernel has to know of its doors.

    Attributes:
        code: tells it.
        mark: the same, as long as the kernel needs not be told again.
    """

    code: str
    mark: str


def show_nobody(_: values.Output) -> None:
    """Drop what the bot's own code shows."""


class Doorkeeper(Protocol):
    """Who decides what comes through the doors of kernels."""

    def refuse(self, reason: str) -> None:
        """Let no session reach anything, and say why to people and code: kernels have no doors."""

    async def open(
        self, key: str, kernel_id: str, doors: Callable[[], Awaitable[Doors | None]]
    ) -> Introduction | None:
        """Open the doors of a kernel that a session is about to use, if anything is allowed there.

        Args:
            key: of the session.
            kernel_id: of the kernel; the same one comes often.
            doors: gives its doors, which are the caller's from then on; None if it has none.

        Returns:
            What the kernel is to be told of them, each time until it was; None if it is nothing.
        """

    def introduced(self, kernel_id: str) -> None:
        """Take that a kernel was told of its doors."""

    def reach(self, key: str) -> code_activity.Reach:
        """Return what code of a session may reach."""
