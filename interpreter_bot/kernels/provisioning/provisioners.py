"""Kernels from the fork server, as a provisioner that jupyter_client can start and stop.

The life of one: listening sockets are made here, in a directory the kernel never sees; the fork
server forks the first process of a pid namespace; that goes into a control group, and only then
forks the kernel. A workspace is attached at once or, for a kernel that stood by, later.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
import signal
import socket
from typing import Any

import traitlets
from jupyter_client import provisioning

from interpreter_bot import errors, settings
from interpreter_bot.kernels.provisioning import (
    cgroups,
    forkservers,
    identities,
    packets,
    specs,
    watching,
)

_log = logging.getLogger(__name__)

_CHANNELS = ("shell", "iopub", "stdin")
_BACKLOG = 8
_LAST_WORDS_SECONDS = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Ground:
    """What every kernel of one bot stands on.

    Attributes:
        server: forks them.
        groups: hold them; may hold nothing.
        limits: bound them.
        runtime: directory for their sockets.
        uids: hands out user ids as the fork server's user namespace counts them.
    """

    server: forkservers.ForkServer
    groups: cgroups.Cgroups
    limits: settings.Limits
    runtime: pathlib.Path
    uids: identities.Uids


class ForkProvisioner(provisioning.KernelProvisionerBase):
    """See the module's docstring. `ground` comes through the kernel spec's metadata."""

    ground: Ground = traitlets.Any()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._link: packets.Channel | None = None
        self._init_fd = -1
        self._kernel_fd = -1
        self._pid = 0
        self._group: cgroups.Group | None = None
        self._directory: pathlib.Path | None = None
        self._status: int | None = None
        self._listening: asyncio.Task[None] | None = None
        self._attached: asyncio.Future[None] | None = None
        self.host_uid = 0
        self.ended = asyncio.Event()

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not yet cleaned up."""
        return self._pid != 0

    @property
    def exit_status(self) -> int | None:
        """The kernel's wait status; None while it lives, or where it left none."""
        return self._status

    def oom_kills(self) -> int:
        """How many processes of this session were killed for memory."""
        return self._group.oom_kills() if self._group is not None else 0

    def memory_bytes(self) -> int | None:
        """What the session uses as its control group counts it; None without one."""
        return self._group.memory_bytes() if self._group is not None else None

    def processes(self) -> watching.SessionProcesses:
        """Return a view of the session's processes, for counting where no group does."""
        return watching.SessionProcesses(self._pid)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Fill in the command that jupyter_client insists on; there is none."""
        filled: dict[str, Any] = await super().pre_launch(cmd=[], **kwargs)
        return filled

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Fork a kernel and return how to reach it.

        Raises:
            KernelStartError: it could not be started; nothing is left of it.
        """
        key = os.urandom(32).hex()
        try:
            await self._launch(key, is_attached_later=kwargs.get("is_attached_later", True))
        except BaseException:
            await self.kill()
            await self.cleanup()
            raise
        return {
            "transport": "ipc",
            "ip": str(self._directory / "k" if self._directory else ""),
            "key": key.encode(),
            "signature_scheme": "hmac-sha256",
            **{f"{name}_port": number for number, name in enumerate(_CHANNELS, start=1)},
            "control_port": len(_CHANNELS) + 1,
            "hb_port": len(_CHANNELS) + 2,
        }

    async def _launch(self, key: str, *, is_attached_later: bool) -> None:
        inside_uid, self.host_uid = self.ground.uids.take()
        listeners = self._listen()
        self._link, theirs = packets.Channel.pair()
        if self.ground.groups.version:
            self._group = self.ground.groups.create(self.kernel_id, self.ground.limits)
        try:
            limits = self.ground.limits
            spec = specs.build(
                self.kernel_id,
                key,
                inside_uid,
                limits,
                affinity=[] if self._group else specs.some_processors(limits.cpu_cores),
                unwalled_home="" if self.ground.server.is_walled else str(self._unwalled_home),
            )
            descriptors = [theirs.fileno(), *(entry.fileno() for entry in listeners)]
            await self.ground.server.fork(spec, descriptors)
        finally:
            for entry in (theirs, *listeners):
                entry.close()
        (self._init_fd,) = await self._expect("separated", 1)
        self._pid = _pid_of(self._init_fd)
        # It enters its group by itself: doing that to another process waits for all processors.
        entrances = self._group.entrances() if self._group is not None else []
        try:
            await self._link.send({"op": "go"}, entrances)
        finally:
            for entrance in entrances:
                os.close(entrance)
        (self._kernel_fd,) = await self._expect("started", 1)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._kernel_fd, self._kernel_ended)
        self._listening = asyncio.create_task(self._listen_to_init(), name=f"init {self.kernel_id}")

    @property
    def _unwalled_home(self) -> pathlib.Path:
        """Where a kernel without walls finds its workspace, which it may get only later."""
        return (self._directory or self.ground.runtime) / "data"

    def _listen(self) -> list[socket.socket]:
        """Make the sockets the kernel will be handed, at addresses only we know."""
        self._directory = self.ground.runtime / self.kernel_id[:8]
        self._directory.mkdir(mode=0o700, parents=True)
        listeners = []
        for number in range(1, len(_CHANNELS) + 1):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.bind(str(self._directory / f"k-{number}"))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        return listeners

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
            elif packet.text("event") == "attached" and self._attached is not None:
                self._attached.set_result(None)
            elif packet.text("event") == "failed":
                _log.error("kernel %s: %s", self.kernel_id, packet.text("reason"))
        # The first process is gone, and with it everything in the namespace.
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
        if not self.ground.server.is_walled:
            self._unwalled_home.symlink_to(workspace)
            return
        tree = await self.ground.server.tree("/".join(workspace.parts[-2:]))
        try:
            self._attached = asyncio.get_running_loop().create_future()
            await self._link.send({"op": "attach"}, [tree])
            ended = asyncio.create_task(self.ended.wait(), name="attaching")
            either: set[asyncio.Future[Any]] = {self._attached, ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        finally:
            os.close(tree)
        if not self._attached.done():
            raise errors.KernelStartError

    def _kernel_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._kernel_fd)
        self.ended.set()

    async def last_words(self) -> int | None:
        """Wait a moment for the wait status of a kernel that just ended."""
        if self._listening is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._listening), _LAST_WORDS_SECONDS)
        return self._status

    async def poll(self) -> int | None:
        """Return None while the kernel lives, else its exit code."""
        if self._pid and not self.ended.is_set():
            return None
        return os.waitstatus_to_exitcode(self._status) if self._status is not None else -1

    async def wait(self) -> int | None:
        """Wait for the kernel to end."""
        if self._kernel_fd >= 0:
            await self.ended.wait()
        return await self.poll()

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel's main process."""
        if signum == 0 or self._kernel_fd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._kernel_fd, signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill everything in the session; the end of its first process is everybody's."""
        for descriptor in (self._init_fd, self._kernel_fd):
            if descriptor >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)

    async def terminate(self, restart: bool = False) -> None:
        """Kill: there is nothing in a confined kernel that a gentler end would save."""
        await self.kill(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove what the kernel left on the host: descriptors, sockets, control group."""
        loop = asyncio.get_running_loop()
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        for descriptor in (self._init_fd, self._kernel_fd):
            if descriptor >= 0:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._init_fd = self._kernel_fd = -1
        self._pid = 0
        self.ended.set()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if self._group is not None:
            await self._group.remove()
            self._group = None


def _pid_of(pidfd: int) -> int:
    """Translate a process descriptor into a pid as we count them."""
    text = pathlib.Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pid:"))
