"""Several hosts as one: most requests go to the host that has the session.

`rolling_hosts` and `placed_hosts` find that host.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

from interpreter_bot import code_activity, values
from interpreter_bot.hosts import kernel_doors, ports, remote_host, requests


class SessionRouter(ports.Hosts):
    """Hosts as one object, which sends each request about a session to the host that has it.

    Attributes:
        on_loss: called with each lost kernel.
    """

    outlives_bot = True
    ends_with_bot = False

    def __init__(self, doorkeeper: kernel_doors.Doorkeeper | None) -> None:
        self._doorkeeper = doorkeeper
        self.on_loss: ports.OnLoss | None = None

    @abc.abstractmethod
    async def find_host(self, key: str) -> remote_host.RemoteHost:
        """Return the host that has a session, or that gets a new session.

        Raises:
            KernelError: no host can be used.
        """

    @property
    @abc.abstractmethod
    def hosts(self) -> Iterable[remote_host.RemoteHost]:
        """All hosts that can be asked."""

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        return values.SandboxLevel.weakest(host.sandbox_level for host in self.hosts)

    @property
    def has_doors(self) -> bool:
        return all(host.has_doors for host in self.hosts)

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code may import, with their versions; those of the first host."""
        return next((host.packages for host in self.hosts), {})

    @property
    def keeps_variables(self) -> bool:
        return all(host.keeps_variables for host in self.hosts)

    def reach(self, key: str) -> code_activity.Reach:
        return code_activity.NO_REACH if self._doorkeeper is None else self._doorkeeper.reach(key)

    def acknowledge(self, execution_id: str) -> None:
        """Let all hosts that are connected forget an execution."""
        for host in self.hosts:
            host.acknowledge(execution_id)

    async def send_request(self, request: requests.Request, arguments: Any) -> Any:  # noqa: ANN401
        """Send a request about one session to the host that has it."""
        return await (await self.find_host(arguments.key)).send_request(request, arguments)

    async def workspace(self, key: str) -> ports.Workspace:
        return await (await self.find_host(key)).workspace(key)

    async def subscribe_losses(self, on_loss: ports.OnLoss | None) -> None:
        self.on_loss = on_loss
        for host in tuple(self.hosts):
            await host.subscribe_losses(on_loss)
