"""Base of the routers over several hosts: most requests go to the host that has the session."""

from __future__ import annotations

import abc
from collections.abc import Iterable

from interpreter_bot import session_variables, values
from interpreter_bot.hosts import ports, remote_host


class SessionRouter(abc.ABC):
    """The part of `ports.Hosts` that is forwarded to the host of a session.

    Attributes:
        on_loss: called with each lost kernel.
    """

    outlives_bot = True

    def __init__(self) -> None:
        self.on_loss: ports.OnLoss | None = None

    @abc.abstractmethod
    async def host_of(self, key: str) -> remote_host.RemoteHost:
        """Return the host that has a session, or that a new one goes to.

        Raises:
            KernelError: no host can be used.
        """

    @property
    @abc.abstractmethod
    def hosts(self) -> Iterable[remote_host.RemoteHost]:
        """All hosts that can be asked."""

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        """What keeps code apart; the weakest of all hosts."""
        return values.SandboxLevel.weakest(host.sandbox_level for host in self.hosts)

    @property
    def has_doors(self) -> bool:
        """Whether the bot can listen where code connects, on all hosts."""
        return all(host.has_doors for host in self.hosts)

    async def variables(self, key: str) -> session_variables.HeldVariables:
        """Return what a session has of variables."""
        return await (await self.host_of(key)).variables(key)

    async def note_checkpoint(self, key: str, name: str) -> None:
        """Remember what a session is; see `ports.Hosts.note_checkpoint`."""
        await (await self.host_of(key)).note_checkpoint(key, name)

    async def go_back(
        self, key: str, name: str, *, is_whole: bool = False
    ) -> session_variables.RestoredState:
        """Let a session be what it was; see `ports.Hosts.go_back`."""
        return await (await self.host_of(key)).go_back(key, name, is_whole=is_whole)

    async def release(self, key: str) -> None:
        """End a session's kernel, at a person's request."""
        await (await self.host_of(key)).release(key)

    async def workspace(self, key: str) -> ports.Workspace:
        """Return a session's files."""
        return await (await self.host_of(key)).workspace(key)

    async def listen(self, on_loss: ports.OnLoss | None) -> None:
        """Tell this one of lost kernels; see `ports.Hosts.listen`."""
        self.on_loss = on_loss
        for host in tuple(self.hosts):
            await host.listen(on_loss)
