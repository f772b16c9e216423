"""What kernels need of the provisioner that starts them, beyond what jupyter_client asks of it."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Final, Protocol

from interpreter_bot.kernels.metering import session_processes
from interpreter_bot.kernels.provisioning import provisioners


class Provisioner(Protocol):
    """A `KernelProvisionerBase` that can do what `ForkProvisioner` does.

    Attributes:
        host_context: what it shares with all others of this bot; given by the kernel spec.
        host_uid: user id of the kernel as the host counts them.
        ended: set once the kernel is gone, whatever ended it.
    """

    host_context: provisioners.ProvisionerContext
    host_uid: int
    ended: asyncio.Event

    async def attach(self, workspace: pathlib.Path) -> None:
        """Mount a workspace; KernelStartError where that fails. Comes once."""

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel's main process; nothing happens when it is gone."""

    async def kill(self) -> None:
        """Kill everything in the session."""

    async def wait_status(self) -> int | None:
        """Return the wait status of a kernel that ended, where there is one."""

    def oom_kills(self) -> int:
        """Count the session's processes that were killed for memory."""

    def memory_bytes(self) -> int | None:
        """Return what the session uses as its control group counts it; None without one."""

    def cpu_seconds(self) -> float:
        """Return the session's processor time so far; 0 once it is over."""

    def processes(self) -> session_processes.SessionProcesses:
        """Return a view of the session's processes, for counting where no group does."""


MEMBERS: Final = sorted(
    {*Provisioner.__annotations__, *(name for name in vars(Provisioner) if name[0] != "_")}
)
