"""Doors of kernels: where the bot can listen in a kernel's own network, and who decides on that."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from interpreter_bot import code_activity, values

HANDED: Final = b"d"
"""What a host process sends along with the descriptors of doors."""

COUNT: Final = 3
"""How many descriptors those are, in the order of `Doors`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Doors:
    """Sockets of a kernel's own network, bound on its loopback and not listening yet.

    Who has them closes them when the kernel is gone: they alone would keep its network.

    Attributes:
        proxy: for what code wants of the outside.
        services: for what the bot itself offers to code.
        process: a descriptor of the kernel's first process: readable once that has ended.
        ports: of both, in the kernel's network. The sockets of a kernel on another machine are
            stand-ins here.
        link: to the host process that gave them, for as long as they are held; None if this one
            did.
        ask: asks whoever runs the kernel's code of now, whose time stands still; None if nobody
            can be asked.
    """

    proxy: socket.socket
    services: socket.socket
    process: int
    ports: tuple[int, int]
    link: socket.socket | None = None
    ask: Callable[[values.InputRequested], Awaitable[str]] | None = None

    def close(self) -> None:
        """Close all of them."""
        self.proxy.close()
        self.services.close()
        os.close(self.process)
        if self.link is not None:
            self.link.close()


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


NOT_IN_CONTAINERS: Final = (
    "Data connections and the hosts of `egress` are not available at the sandbox level 'container' "
    "yet; `interpreter-bot doctor` says how to get a stronger level."
)


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
