"""Doors of kernels, ports of a kernel's network at which the bot listens, and their doorkeeper."""

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
from interpreter_bot.guest import control_messages
from interpreter_bot.kernels.provisioning import control_channels, start_parameters

Door: TypeAlias = Literal[0, 1]

PROXY: Final = 0
"""Number of the door for connections of code to the network outside."""

SERVICES: Final = 1
"""Number of the door for services of the bot itself, such as tools."""

Ask: TypeAlias = Callable[[values.InputRequested], Awaitable[str]]
"""Asks the person who runs a kernel's present code, whose time limit is paused meanwhile."""

_BACKLOG: Final = 128


class Doors(Protocol):
    """Both doors of one kernel, open until the bot or the host closes them."""

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of the proxy's and the services' door in the kernel's network."""

    @property
    def ask(self) -> Ask | None:
        """Asks the person who runs code; None if nobody can be asked."""

    async def accept(self, door: int) -> socket.socket:
        """Return the next connection of code at a door, not blocking.

        Raises:
            OSError: it could not be accepted; the next one may be.
        """

    async def wait_closed(self) -> None:
        """Return once the kernel has ended, or its host delivers no more connections."""

    def close(self) -> None:
        """Accept no more connections."""


class LocalDoors(abc.ABC):
    """Doors of a kernel of this process."""

    ports: Final = start_parameters.DOOR_PORTS

    def __init__(self, proxy: socket.socket, services: socket.socket, pidfd: int, ask: Ask) -> None:
        """Take over sockets of the provisioner, and wait for the end of the kernel.

        `pidfd` is of the kernel's first process. After its end, `wait_closed` returns, and the
        caller has to close the sockets, because they keep the kernel's network alive.
        """
        self.ask = ask
        self._sockets = proxy, services
        self._pidfd = pidfd
        self._end_event = asyncio.Event()
        for door_socket in self._sockets:
            door_socket.setblocking(False)
        asyncio.get_running_loop().add_reader(pidfd, self._on_kernel_end)

    def _on_kernel_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._end_event.set()

    @abc.abstractmethod
    async def accept(self, door: int) -> socket.socket:
        """Return the next connection; see `Doors.accept`."""

    async def wait_closed(self) -> None:
        await self._end_event.wait()

    def close(self) -> None:
        self._on_kernel_end()
        for door_socket in self._sockets:
            door_socket.close()
        os.close(self._pidfd)


class ListeningDoors(LocalDoors):
    """Sockets that are bound in the kernel's own network."""

    def __init__(self, proxy: socket.socket, services: socket.socket, pidfd: int, ask: Ask) -> None:
        super().__init__(proxy, services, pidfd, ask)
        for door_socket in self._sockets:
            door_socket.listen(_BACKLOG)

    async def accept(self, door: int) -> socket.socket:
        endpoint, _ = await asyncio.get_running_loop().sock_accept(self._sockets[door])
        return endpoint


class SupervisedDoors(LocalDoors):
    """Sockets to the keeper process of a session without a network of its own.

    The keeper makes connections for the session's code.

    See `guest/supervised_connections`.
    """

    async def accept(self, door: int) -> socket.socket:
        channel = control_channels.ControlChannel(self._sockets[door])
        packet = None
        with contextlib.suppress(errors.KernelStartError):
            await channel.send(control_messages.AcceptConnection())
            packet = await channel.receive()
        if packet is None:
            # The keeper has ended: like a listening socket, wait for ever.
            await asyncio.get_running_loop().create_future()
            raise ConnectionError
        (descriptor,) = packet.descriptors
        endpoint = socket.socket(fileno=descriptor)
        endpoint.setblocking(False)
        return endpoint


@dataclasses.dataclass(frozen=True, slots=True)
class DoorSetup:
    """Setup of a kernel for its doors.

    Attributes:
        code: the bot's code to run in the kernel.
        version: identifies the setup; a kernel that has this version needs no other run.
    """

    code: str
    version: str


class Doorkeeper(Protocol):
    """Decides which connections pass the doors of kernels."""

    def refuse(self, reason: str) -> None:
        """Record that kernels have no doors, with a reason for people and code."""

    async def open(
        self, key: str, kernel_id: str, obtain_doors: Callable[[], Awaitable[Doors | None]]
    ) -> DoorSetup | None:
        """Open a kernel's doors before code runs, if the rules of its session allow anything.

        Called before each execution. `obtain_doors` returns the doors, or None if the kernel has
        none; the doorkeeper has to close them.

        Returns:
            The setup to run in the kernel; None if the kernel has it already, or needs none.
        """

    def note_setup_done(self, kernel_id: str) -> None:
        """Record that the setup ran in a kernel."""

    def reach(self, key: str) -> code_activity.Reach:
        """Return what code of a session may reach."""
