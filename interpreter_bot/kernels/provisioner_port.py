"""What kernels need of the provisioner that starts them, beyond what jupyter_client asks of it.

Nothing here takes for granted that a kernel is a process of this host: it may be one of a kernel of
its own, as with gVisor or Firecracker, or of another machine.
"""

from __future__ import annotations

import asyncio
import pathlib
import socket
from collections.abc import Mapping
from typing import Any, Final, Protocol

from interpreter_bot.kernels.metering import deleted_files, session_metering
from interpreter_bot.kernels.provisioning import provisioners


class SessionUsage(Protocol):
    """What one session uses, measured from outside of it, where no code can change the figures.

    `counted_bytes`, `cpu_seconds`, `oom_kills` and `have_moved` are quick; the others are called in
    a thread and may take as long as `procfs.TimeBudget` allows.
    """

    @property
    def is_counted(self) -> bool:
        """Whether what bounds the session's memory counts it: its cgroup, its machine.

        Where nothing does, `reading` is asked, and the watchdog holds the limit.
        """

    def counted_bytes(self) -> int | None:
        """Return the memory as it is counted there; None where it is not."""

    def cpu_seconds(self) -> float:
        """Return the session's processor time so far; 0 once it is over."""

    def oom_kills(self) -> int:
        """Count the session's processes that were killed for memory."""

    def clocks(self) -> Mapping[int, int]:
        """Return a clock for each thing that can run, for `have_moved`."""

    def have_moved(self, clocks: Mapping[int, int]) -> bool:
        """Return whether anything ran since `clocks` were read; what did not run uses no more."""

    def pids(self) -> list[int]:
        """List the host's processes of the session, its first one first."""

    def strain(self) -> session_metering.Strain:
        """Measure what the session costs the machine, quickly."""

    def written_bytes(self) -> int:
        """Return all that the session ever wrote, to any target."""

    def reading(
        self,
        *,
        enough_bytes: int = 0,
        most_bytes: int | None = None,
        most_tasks: int | None = None,
        shared: Mapping[tuple[int, int], int] = ...,
    ) -> session_metering.Reading:
        """Read memory and processes, as `SessionProcesses.reading` does."""

    def uncounted_bytes(self) -> int:
        """Bound the memory of the host that `counted_bytes` leaves out."""

    def deleted(self, disk: deleted_files.Disk) -> deleted_files.Deleted:
        """Count the host's disk space of deleted files that the session holds."""


class JupyterProvisioner(Protocol):
    """What jupyter_client's `KernelProvisionerBase` asks for, as far as it is used here.

    Attributes:
        kernel_id: a name for log lines.
    """

    kernel_id: str

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not yet cleaned up."""

    async def pre_launch(self) -> dict[str, Any]:
        """Return what `launch_kernel` is called with, `cmd` among it."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> dict[str, Any]:
        """Start the kernel; returns its connection information, of which `key` is used.

        Raises:
            KernelStartError: it could not be started; nothing is left of it.
        """

    async def wait(self) -> int | None:
        """Wait until nothing of the session runs any more."""

    async def cleanup(self) -> None:
        """Remove what the kernel left on the host."""


class Provisioner(JupyterProvisioner, Protocol):
    """A `KernelProvisionerBase` that can do what `ForkProvisioner` does.

    Attributes:
        host_context: what it shares with all others of this bot; given by the kernel spec.
        ended: set once the kernel is gone, whatever ended it.
    """

    host_context: provisioners.ProvisionerContext
    ended: asyncio.Event

    @property
    def starts_when_attached(self) -> bool:
        """Whether the kernel answers only once `attach` is done, and not before."""

    @property
    def has_own_id(self) -> bool:
        """Whether a limit of the session's user bounds its processes, and no other session's."""

    @property
    def can_freeze(self) -> bool:
        """Whether `freeze` stops anything."""

    async def attach(
        self, workspace: pathlib.Path, variables: pathlib.Path, temporary: pathlib.Path
    ) -> None:
        """Hand directories over to the kernel. Comes once.

        Args:
            workspace: as its /mnt/data, and its own.
            variables: for snapshots of its variables, as `rootfs.VARIABLES`, and its own.
            temporary: for its temporary files, where it has no file system of its own for them; is
                not there before or after.

        Raises:
            KernelStartError: that failed.
            OSError: the workspace cannot be opened.
        """

    async def connect(self, channel: str) -> socket.socket:
        """Open a connection, which does not block, to `shell`, `iopub` or `stdin`.

        What the kernel can learn from its end must tell nothing of the host.

        Raises:
            OSError: the kernel does not listen, or is gone.
        """

    def doors(self) -> tuple[socket.socket, socket.socket, int] | None:
        """Return where the bot can listen in the kernel's own network, for the caller to close.

        Returns:
            Two sockets that are bound to ports of its loopback and do not listen, and a descriptor
            that is readable once the session is over; None without walls, or where nobody listens.
        """

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel's main process; nothing happens when it is gone."""

    async def kill(self) -> None:
        """Kill everything in the session."""

    async def freeze(self) -> None:
        """Stop everything in the session until `thaw`; what waits for it keeps its place.

        A frozen session can be killed at once, and ends with the bot like any other.
        """

    async def thaw(self) -> None:
        """Let a frozen session go on, within milliseconds; harmless where it is not frozen."""

    def set_weight(self, weight: float) -> None:
        """Let the session have this part of one person's share of processor and disk, in (0, 1].

        It matters where others want them too; nothing happens where nothing can divide them.
        """

    async def wait_status(self) -> int | None:
        """Return the wait status of a kernel that ended, where there is one."""

    def usage(self) -> SessionUsage:
        """Return what measures the session; before its start and after its end, of nothing."""


MEMBERS: Final = sorted(
    {*Provisioner.__annotations__, *(name for name in vars(Provisioner) if name[0] != "_")}
)
