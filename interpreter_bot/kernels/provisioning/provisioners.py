"""Provisioner of kernels from the fork server, which jupyter_client starts and stops.

The life of a kernel: listening sockets are created here, in a directory the kernel never sees; the
fork server forks the init process of a pid namespace; that enters a cgroup, and only then forks the
kernel. A workspace is attached at once or, for a spare kernel, later.

Above 300 lines: jupyter_client asks one class for all of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pathlib
import shutil
import signal
from typing import Any

import traitlets
from jupyter_client import provisioning

from interpreter_bot import errors, settings
from interpreter_bot.kernels.metering import procfs, session_processes
from interpreter_bot.kernels.provisioning import (
    cgroups,
    control_channels,
    forkservers,
    kernel_parameters,
)

_log = logging.getLogger(__name__)

_ATTACH_SECONDS = 10.0
# By whether it was used: no person waits for unused ones, and a busy machine may be slow.
_LAST_WORDS_SECONDS = {True: 0.5, False: 5.0}


@dataclasses.dataclass(frozen=True, slots=True)
class ProvisionerContext:
    """Host resources that every kernel of one bot needs.

    Attributes:
        server: forks them.
        groups: their cgroups; there may be none.
        limits: bound them.
        runtime: directory for their sockets.
        uids: allocator of user ids in the fork server's user namespace.
    """

    server: forkservers.ForkServer
    groups: cgroups.Cgroups
    limits: settings.Limits
    runtime: pathlib.Path
    uids: kernel_parameters.Uids


class ForkProvisioner(provisioning.KernelProvisionerBase):
    """Provisioner of one kernel; `host_context` comes through the kernel spec's metadata."""

    host_context: ProvisionerContext = traitlets.Any()
    host_uid: int
    ended: asyncio.Event

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._link: control_channels.ControlChannel | None = None
        self._init_fd = -1
        self._kernel_fd = -1
        self._pid = 0
        self._group: cgroups.Group | None = None
        self._directory: pathlib.Path | None = None
        self._status: int | None = None
        self._listening: asyncio.Task[None] | None = None
        self._attached: asyncio.Future[None] | None = None
        self._is_used = False  # Whether a session could ask why it ended.
        self._gone = asyncio.Event()
        self.host_uid = 0
        self.ended = asyncio.Event()

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not yet cleaned up."""
        return self._pid != 0

    def oom_kills(self) -> int:
        """Return how many processes of this session the OOM killer killed."""
        return self._group.oom_kills() if self._group is not None else 0

    def memory_bytes(self) -> int | None:
        """Return the session's memory as its cgroup counts it; None without one."""
        return self._group.memory_bytes() if self._group is not None else None

    def cpu_seconds(self) -> float:
        """Return the processor time of the session so far; 0 once it has ended."""
        return (self._group or self.processes()).cpu_seconds() if self._pid else 0.0

    def processes(self) -> session_processes.SessionProcesses:
        """Return the session's processes, for metering where no cgroup counts."""
        return session_processes.SessionProcesses(self._pid)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Fill in the command that jupyter_client insists on; there is none."""
        filled: dict[str, Any] = await super().pre_launch(cmd=[], **kwargs)
        return filled

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Fork a kernel and return its connection information.

        Raises:
            KernelStartError: it could not be started; nothing is left of it.
        """
        key = os.urandom(32).hex()
        try:
            await self._launch(key)
        except BaseException:
            await self.kill()
            await self.cleanup()
            raise
        return {
            "transport": "ipc",
            "ip": str(self._directory / "k" if self._directory else ""),
            "key": key.encode(),
            "signature_scheme": "hmac-sha256",
            **{
                f"{name}_port": number
                for number, name in enumerate(kernel_parameters.CHANNELS, start=1)
            },
            "control_port": len(kernel_parameters.CHANNELS) + 1,
            "hb_port": len(kernel_parameters.CHANNELS) + 2,
        }

    async def _launch(self, key: str) -> None:
        inside_uid, self.host_uid = self.host_context.uids.take()
        self._directory = self.host_context.runtime / self.kernel_id[:8]
        sockets = kernel_parameters.listen(self._directory)
        self._link, theirs = control_channels.ControlChannel.pair()
        if self.host_context.groups.version:
            self._group = self.host_context.groups.create(self.kernel_id, self.host_context.limits)
        try:
            limits = self.host_context.limits
            spec = kernel_parameters.build(
                self.kernel_id,
                key,
                inside_uid,
                limits,
                affinity=[] if self._group else kernel_parameters.some_processors(limits.cpu_cores),
                unwalled_home=""
                if self.host_context.server.is_walled
                else str(self._unwalled_home),
            )
            descriptors = [theirs.fileno(), *(entry.fileno() for entry in sockets)]
            await self.host_context.server.fork(spec, descriptors)
        finally:
            for entry in (theirs, *sockets):
                entry.close()
        (self._init_fd,) = await self._expect("separated", 1)
        self._pid = procfs.pid_of(self._init_fd)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._init_fd, self._init_ended)
        # It enters its cgroup by itself: moving another process waits for all processors.
        entrances = self._group.entrances() if self._group is not None else []
        try:
            await self._link.send({"op": "go"}, entrances)
        finally:
            for entrance in entrances:
                os.close(entrance)
        (self._kernel_fd,) = await self._expect("started", 1)
        loop.add_reader(self._kernel_fd, self._kernel_ended)
        self._listening = asyncio.create_task(self._listen_to_init(), name=f"init {self.kernel_id}")

    @property
    def _unwalled_home(self) -> pathlib.Path:
        """Where an unconfined kernel finds its workspace, which may be attached later."""
        return (self._directory or self.host_context.runtime) / "data"

    async def _expect(self, event: str, count: int) -> tuple[int, ...]:
        packet = await self._link.receive() if self._link is not None else None
        if packet is None or packet.text("event") != event or len(packet.descriptors) != count:
            reason = packet.text("reason") if packet is not None else "its first process ended"
            if packet is not None:
                packet.close()
            _log.error("kernel %s did not start: %s", self.kernel_id, reason)
            raise errors.KernelStartError
        return packet.descriptors

    async def _listen_to_init(self) -> None:
        while self._link is not None and (packet := await self._link.receive()) is not None:
            if packet.text("event") == "ended":
                self._status = packet.number("status")
                if not self._is_used:
                    _log.error("kernel %s ended unused: status %d", self.kernel_id, self._status)
            elif packet.text("event") == "attached":
                if self._attached is not None and not self._attached.done():
                    self._attached.set_result(None)
            elif packet.text("event") == "failed":
                _log.error("kernel %s: %s", self.kernel_id, packet.text("reason"))
        # The init process is gone, and with it everything in the namespace.
        self.ended.set()

    async def attach(self, workspace: pathlib.Path) -> None:
        """Mount a workspace at /mnt/data.

        Args:
            workspace: two levels below the directory of all workspaces.

        Raises:
            KernelStartError: it cannot be mounted, or the kernel is gone.
        """
        if self._link is None or self._directory is None:
            raise errors.KernelStartError
        self._attached = asyncio.get_running_loop().create_future()
        if not self.host_context.server.is_walled:
            self._unwalled_home.symlink_to(workspace)
            self._is_used = True
            return
        tree = await self.host_context.server.tree("/".join(workspace.parts[-2:]))
        try:
            await self._link.send({"op": "attach"}, [tree])
        finally:
            os.close(tree)
        ended = asyncio.create_task(self.ended.wait(), name="attaching")
        either: set[asyncio.Future[Any]] = {self._attached, ended}
        try:
            await asyncio.wait(either, timeout=_ATTACH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if self._attached.done():
            self._is_used = True
            return
        if not self.ended.is_set():
            _log.error("kernel %s did not attach its files in time", self.kernel_id)
            await self.kill()
            raise errors.KernelStartError("The session's files could not be attached in time.")
        raise errors.KernelStartError

    def _init_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._init_fd)
        self._gone.set()
        self.ended.set()

    def _kernel_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._kernel_fd)
        self.ended.set()

    async def wait_status(self) -> int | None:
        """Wait briefly for the wait status of a kernel that just ended."""
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=_LAST_WORDS_SECONDS[self._is_used])
        return self._status

    async def poll(self) -> int | None:
        """Return None while the kernel lives, else its exit code."""
        if self._pid and not self.ended.is_set():
            return None
        return os.waitstatus_to_exitcode(self._status) if self._status is not None else -1

    async def wait(self) -> int | None:
        """Wait until all processes of the session have ended.

        Its init process outlives all others of its namespace.
        """
        if self._init_fd >= 0:
            await self._gone.wait()
        return await self.poll()

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel's main process."""
        if signum:
            procfs.send_signal(self._kernel_fd, signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill everything in the session; the namespace ends with its init process."""
        if self.ended.is_set() and not self._is_used:
            await self.wait_status()  # So that the log says why it ended.
        for descriptor in (self._init_fd, self._kernel_fd):
            procfs.send_signal(descriptor, signal.SIGKILL)
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)

    async def terminate(self, restart: bool = False) -> None:
        """Kill the kernel: a confined kernel has nothing that a gentler end would save."""
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove what the kernel left on the host: descriptors, sockets, cgroup."""
        loop = asyncio.get_running_loop()
        if self._link is not None:
            self._link.close()
        if self._listening is not None:
            self._listening.cancel()
        self._link = self._listening = None
        for descriptor in (self._init_fd, self._kernel_fd):
            if descriptor >= 0:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._init_fd, self._kernel_fd, self._pid = -1, -1, 0
        self.ended.set()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if self._group is not None:
            await self._group.remove()
            self._group = None
