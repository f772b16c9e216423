"""Provisioner of one kernel from the fork server: starts, connects, signals, freezes and ends it.

The life of a kernel: the fork server has the init process of a pid namespace forked; the sockets
that it makes get their addresses here, in a directory the kernel never sees; it enters a cgroup,
and only then has the kernel forked, which enters too. A workspace is attached at once or, for a
spare kernel, later.
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
from collections.abc import Sequence
from typing import Any

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels.files import ownership, safe_open
from interpreter_bot.kernels.metering import procfs, session_metering
from interpreter_bot.kernels.provisioning import (
    cgroups,
    control_channels,
    forkserver_clients,
    start_parameters,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_ATTACH_SECONDS = 10.0
# Processes of a session beside those that its limit counts: its init, and a spare one.
_OWN_TASKS = 2
# The status comes from the fork server, which may just be forking for others on a busy machine.
_LAST_WORDS_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class ProvisionerContext:
    """Host resources that every kernel of one bot needs.

    Attributes:
        server: forks them.
        groups: their cgroups; there may be none.
        limits: bound them.
        runtime: directory for their sockets.
        uids: allocator of user ids in the fork server's user namespace.
        doors: ports of their own networks where the bot may want to listen.
    """

    server: forkserver_clients.ForkServer
    groups: cgroups.Cgroups
    limits: settings.Limits
    runtime: pathlib.Path
    uids: start_parameters.Uids
    doors: tuple[int, ...] = ()

    @property
    def level(self) -> values.SandboxLevel:
        """What keeps the kernels apart."""
        if self.server.walls is forkserver_clients.Walls.NOTHING:
            return values.SandboxLevel.NONE
        if self.server.walls is forkserver_clients.Walls.CONTAINER:
            return values.SandboxLevel.CONTAINER
        has_groups = self.groups.version > 0
        return values.SandboxLevel.FULL if has_groups else values.SandboxLevel.STANDARD


class SessionUsage(session_metering.SessionProcesses):
    """Usage of a session: by its cgroup where it has one, else by its processes."""

    def __init__(
        self,
        init_pid: int = 0,
        kernel_pid: int = 0,
        group: cgroups.Group | None = None,
        *,
        max_tasks: int = session_metering.MAX_TASKS,
        read_as: int | None = None,
    ) -> None:
        super().__init__(init_pid, kernel_pid, max_tasks=max_tasks, read_as=read_as)
        self._group = group
        self.is_counted = group is not None
        """Whether a cgroup bounds the session's memory."""

    def counted_bytes(self) -> int | None:
        """Return the session's memory as its cgroup counts it; None without one."""
        return self._group.memory_bytes() if self._group is not None else None

    def memory_bytes(self, limit_bytes: int | None = None) -> int:
        """Return the session's memory, counted by its cgroup or found in its processes."""
        counted_bytes = self.counted_bytes()
        return super().memory_bytes(limit_bytes) if counted_bytes is None else counted_bytes

    def cpu_seconds(self) -> float:
        """Return the processor time of the session so far."""
        return self._group.cpu_seconds() if self._group is not None else super().cpu_seconds()

    def oom_kills(self) -> int:
        """Return how many processes of this session the OOM killer killed."""
        return self._group.oom_kills() if self._group is not None else 0


class ForkProvisioner:
    """Provisioner of one kernel.

    Attributes:
        kernel_id: a name for log lines.
        host_context: what it shares with all others of this bot.
        ended: set once the kernel is gone, whatever ended it.
    """

    def __init__(self, kernel_id: str, host_context: ProvisionerContext) -> None:
        self.kernel_id = kernel_id
        self.host_context = host_context
        self._link: control_channels.ControlChannel | None = None
        self._init_fd = -1
        self._kernel_fd = -1
        self._pid = 0
        self._group: cgroups.Group | None = None
        self._directory: pathlib.Path | None = None
        self._temporary: pathlib.Path | None = None
        self._status: int | None = None
        self._listening: asyncio.Task[None] | None = None
        self._attached: asyncio.Future[None] | None = None
        self.is_used = False
        """Whether a session could ask why it ended; until then the log says so."""
        self._gone = asyncio.Event()
        self._uid = 0
        self._sockets: list[socket.socket] = []  # Not yet connected.
        self._doors: list[socket.socket] = []
        self._more_sockets = asyncio.Event()
        self._usage = SessionUsage()
        self.ended = asyncio.Event()

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not yet cleaned up."""
        return self._pid != 0

    def usage(self) -> SessionUsage:
        """Return what measures the session."""
        return self._usage

    async def launch(self) -> str:
        """Fork a kernel; returns the key that signs its messages.

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
        return key

    async def _launch(self, key: str) -> None:
        context, limits = self.host_context, self.host_context.limits
        walls = context.server.walls
        inside_uid, self._uid = context.uids.take()
        self._directory = context.runtime / self.kernel_id[:8]
        self._link, theirs = control_channels.ControlChannel.pair()
        if context.groups.version:
            self._group = context.groups.create(self.kernel_id, limits)
        with theirs:
            spec = start_parameters.build(
                self.kernel_id,
                inside_uid if walls is forkserver_clients.Walls.NAMESPACES else self._uid,
                limits,
                affinity=[] if self._group else start_parameters.some_processors(limits.cpu_cores),
                unwalled_home=str(self._unwalled_home) if self._is_unwalled else "",
                has_own_id=self.has_own_id,
                doors=context.doors,
            )
            await context.server.fork(spec, theirs.fileno())
        self._init_fd, sockets = await self._expect("separated", len(context.doors))
        self._doors = [sockets.pop() for _ in context.doors][::-1]
        with contextlib.ExitStack() as open_here:
            for entry in sockets:
                open_here.enter_context(entry)
            start_parameters.listen(self._directory, sockets)
        self._pid = procfs.pid_of(self._init_fd)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._init_fd, self._init_ended)
        # It enters its cgroup by itself: moving another process waits for all processors.
        entrances = self._group.entrances() if self._group is not None else []
        try:
            # Past the fork server: every later kernel starts with what that ever had in memory.
            await self._link.send({"op": "go", "key": key}, entrances)
        finally:
            for entrance in entrances:
                os.close(entrance)
        self._kernel_fd, self._sockets = await self._expect("started")
        context.server.settle(self.kernel_id)
        read_as = self._uid if self._is_in_container and context.uids.are_own else None
        self._usage = SessionUsage(
            self._pid,
            procfs.pid_of(self._kernel_fd),
            self._group,
            max_tasks=limits.processes + _OWN_TASKS,
            read_as=read_as,
        )
        loop.add_reader(self._kernel_fd, self._kernel_ended)
        self._listening = asyncio.create_task(self._listen_to_init(), name=f"init {self.kernel_id}")

    @property
    def starts_when_attached(self) -> bool:
        """Whether the kernel runs, and can be connected to, only once it has its directories."""
        return self._is_in_container

    @property
    def has_own_id(self) -> bool:
        """Whether a limit of the session's user bounds its processes, and no other session's."""
        # In a user namespace of its own, it is counted there.
        is_apart = self.host_context.server.walls is forkserver_clients.Walls.NAMESPACES
        return is_apart or (self._is_in_container and self.host_context.uids.are_own)

    @property
    def can_freeze(self) -> bool:
        """Whether the session's processes can be stopped."""
        return self._group is not None and self._group.can_freeze

    @property
    def _is_in_container(self) -> bool:
        return self.host_context.server.walls is forkserver_clients.Walls.CONTAINER

    @property
    def _is_unwalled(self) -> bool:
        return self.host_context.server.walls is forkserver_clients.Walls.NOTHING

    @property
    def _unwalled_home(self) -> pathlib.Path:
        """Where an unconfined kernel finds its workspace, which may be attached later."""
        return (self._directory or self.host_context.runtime) / "data"

    def doors(self) -> tuple[socket.socket, socket.socket, int] | None:
        """Return copies of the kernel's doors; None if it has none."""
        if not self._doors or self.ended.is_set():
            return None
        proxy, services = (door.dup() for door in self._doors)
        return proxy, services, os.dup(self._init_fd)

    async def _expect(self, event: str, more: int = 0) -> tuple[int, list[socket.socket]]:
        """Wait for an event with a process descriptor, a socket for each channel, and some more."""
        packet = await self._link.receive() if self._link is not None else None
        count = 1 + len(start_parameters.CHANNELS) + more
        if packet is None or packet.text("event") != event or len(packet.descriptors) != count:
            reason = packet.text("reason") if packet is not None else "its first process ended"
            if packet is not None:
                packet.close()
            _log.error("kernel %s did not start: %s", self.kernel_id, reason)
            raise errors.KernelStartError
        pidfd, *sockets = packet.descriptors
        return pidfd, [socket.socket(fileno=descriptor) for descriptor in sockets]

    async def _listen_to_init(self) -> None:
        while self._link is not None and (packet := await self._link.receive()) is not None:
            if packet.text("event") == "ended":
                # Unknown once the fork server is gone whose child the kernel was.
                self._status = packet.number("status") if "status" in packet.content else None
                if not self.is_used:
                    _log.error("kernel %s ended unused: status %s", self.kernel_id, self._status)
            elif packet.text("event") == "attached":
                if self._attached is not None and not self._attached.done():
                    self._attached.set_result(None)
            elif packet.text("event") == "socket":
                self._sockets += [socket.socket(fileno=number) for number in packet.descriptors]
                self._more_sockets.set()
            elif packet.text("event") == "failed":
                _log.error("kernel %s: %s", self.kernel_id, packet.text("reason"))
        # The init process is gone, and with it everything in the namespace.
        self.ended.set()
        self._more_sockets.set()

    async def connect(self, channel: str) -> socket.socket:
        """Open a connection to a channel, with a socket of the kernel's own network namespace.

        Raises:
            OSError: the kernel does not listen, or is gone.
        """
        while not self._sockets:
            if self._link is None or self.ended.is_set():
                raise ConnectionError
            self._more_sockets.clear()
            try:
                await self._link.send({"op": "connect"})
            except errors.KernelStartError as error:
                raise ConnectionError from error
            await self._more_sockets.wait()
        endpoint = self._sockets.pop()
        try:
            endpoint.setblocking(False)
            # At once or not at all: a full backlog is no reason to wait.
            endpoint.connect(f"{self._directory}/{start_parameters.address(channel)}")
        except OSError:
            endpoint.close()
            raise
        return endpoint

    async def attach(
        self, workspace: pathlib.Path, variables: pathlib.Path, temporary: pathlib.Path
    ) -> None:
        """Make a session's directories the kernel's own and show them to it.

        Args:
            workspace: at /mnt/data; two levels below the directory of all workspaces.
            variables: where its variables are saved; beside that.
            temporary: its temporary files, where it has no file system of its own for them; made
                here, and removed with what the kernel leaves.

        Raises:
            KernelStartError: it cannot be mounted, or the kernel is gone.
            OSError: it cannot be opened.
        """
        directories, kernel_uids = [workspace, variables], self.host_context.uids.of_kernels
        if self._is_in_container:
            self._temporary = temporary
            directories.append(temporary)
            await asyncio.to_thread(_make_empty, temporary)
        await asyncio.to_thread(ownership.change_owner, directories, self._uid, kernel_uids)
        if self._link is None or self._directory is None:
            raise errors.KernelStartError
        self._attached = asyncio.get_running_loop().create_future()
        if self._is_unwalled:
            self._unwalled_home.symlink_to(workspace)
            return
        trees = await self._directories(directories)
        try:
            await self._link.send({"op": "attach"}, trees)
        finally:
            for tree in trees:
                os.close(tree)
        ended = asyncio.create_task(self.ended.wait(), name="attaching")
        either: set[asyncio.Future[Any]] = {self._attached, ended}
        try:
            await asyncio.wait(either, timeout=_ATTACH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if self._attached.done():
            return
        if not self.ended.is_set():
            _log.error("kernel %s did not attach its files in time", self.kernel_id)
            await self.kill()
            raise errors.KernelStartError(host_words.FILES_SLOW)
        raise errors.KernelStartError

    async def _directories(self, directories: Sequence[pathlib.Path]) -> Sequence[int]:
        """Open a session's directories for its kernel; the descriptors are the caller's to close.

        Raises:
            KernelStartError: there is no such directory.
            OSError: likewise.
        """
        if self._is_in_container:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            with contextlib.ExitStack() as opened:
                descriptors = []
                for directory in directories:
                    descriptors.append(os.open(directory, flags))
                    opened.callback(os.close, descriptors[-1])
                opened.pop_all()
            return descriptors
        paths = ("/".join(directory.parts[-2:]) for directory in directories)
        return await self.host_context.server.trees(*paths)

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
            await asyncio.wait({self._listening}, timeout=_LAST_WORDS_SECONDS)
        return self._status

    async def wait(self) -> None:
        """Wait until all processes of the session have ended.

        Its init process outlives all others of its namespace.
        """
        if self._init_fd >= 0:
            await self._gone.wait()

    async def send_signal(self, signum: int) -> None:
        """Signal the kernel's main process."""
        if signum:
            procfs.send_signal(self._kernel_fd, signum)

    async def kill(self) -> None:
        """Kill everything in the session; the namespace ends with its init process."""
        if self.ended.is_set() and not self.is_used:
            await self.wait_status()  # So that the log says why it ended.
        if self._is_in_container and self._link is not None and not self._gone.is_set():
            # Its first process ends the others before itself; without it, nobody knows them all.
            with contextlib.suppress(errors.KernelStartError):
                await self._link.send({"op": "end"})
        else:
            procfs.send_signal(self._init_fd, signal.SIGKILL)
        procfs.send_signal(self._kernel_fd, signal.SIGKILL)
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)

    async def freeze(self) -> None:
        """Stop all processes of the session until `thaw`; they cannot tell but by the clock."""
        if self._group is not None:
            await asyncio.to_thread(self._group.set_frozen, True)

    async def thaw(self) -> None:
        """Let the session's processes go on."""
        if self._group is not None:
            self._group.set_frozen(False)

    def set_weight(self, weight: float) -> None:
        """Weigh the session where a control group holds it; without one, nothing does."""
        if self._group is not None:
            self._group.set_weight(weight)

    async def cleanup(self) -> None:
        """Remove what the kernel left on the host: descriptors, sockets, cgroup."""
        loop = asyncio.get_running_loop()
        if self._link is not None:
            self._link.close()
        if self._listening is not None:
            self._listening.cancel()
        self._link = self._listening = None
        self._more_sockets.set()
        for entry in (*self._sockets, *self._doors):
            entry.close()
        self._sockets, self._doors = [], []
        for descriptor in (self._init_fd, self._kernel_fd):
            if descriptor >= 0:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._init_fd, self._kernel_fd, self._pid = -1, -1, 0
        self._usage = SessionUsage()
        self.ended.set()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if self._temporary is not None:
            await asyncio.to_thread(safe_open.remove, self._temporary)
        if self._group is not None:
            await self._group.remove()
            self._group = None
        await self.host_context.server.forget(self.kernel_id)


def _make_empty(directory: pathlib.Path) -> None:
    """Make a directory anew, without what a bot that was killed left in it."""
    safe_open.remove(directory)
    directory.mkdir(mode=0o700)
