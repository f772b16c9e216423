"""Provisioner of one kernel from the fork server: starts, connects, signals, freezes and ends it.

To start a kernel, the fork server forks the init process of a pid namespace. Init creates sockets,
which this process binds in a directory that the kernel never sees. Then init joins a cgroup and
forks the kernel in it. A workspace is attached at once or, for a spare kernel, later.
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

from interpreter_bot import cancellation, errors, settings, values
from interpreter_bot.guest import control_messages
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
# Tasks allowed beyond the session's limit: its init, and one process for clean-up.
_EXTRA_TASKS = 2
# The status comes from the fork server, which may be busy with other kernels.
_MAX_STATUS_WAIT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class ProvisionerContext:
    """Host resources that every kernel of one bot needs.

    Attributes:
        server: forks the kernels.
        groups: the kernels' cgroups; there may be none.
        limits: limits of each kernel.
        runtime: directory for sockets.
        uids: allocator of user ids in the fork server's user namespace.
        doors: ports in each kernel's network where the bot may listen.
    """

    server: forkserver_clients.ForkServer
    groups: cgroups.Cgroups
    limits: settings.Limits
    runtime: pathlib.Path
    uids: start_parameters.Uids
    doors: tuple[int, ...] = ()

    @property
    def level(self) -> values.SandboxLevel:
        """How strong the walls between kernels are."""
        if self.server.walls is forkserver_clients.Walls.NOTHING:
            return values.SandboxLevel.NONE
        if self.server.walls is forkserver_clients.Walls.CONTAINER:
            return values.SandboxLevel.CONTAINER
        has_groups = self.groups.version > 0
        return values.SandboxLevel.FULL if has_groups else values.SandboxLevel.STANDARD


class SessionMeter(session_metering.SessionProcesses):
    """Meter of a session's usage: by its cgroup if it has one, otherwise by its processes."""

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
        """Return the session's memory, as its cgroup counts it or as its processes show it."""
        counted_bytes = self.counted_bytes()
        return super().memory_bytes(limit_bytes) if counted_bytes is None else counted_bytes

    def cpu_seconds(self) -> float:
        """Return the processor time of the session so far."""
        return self._group.cpu_seconds() if self._group is not None else super().cpu_seconds()

    def oom_kills(self) -> int:
        """Return how many processes of this session the OOM killer killed."""
        return self._group.oom_kills() if self._group is not None else 0


class ForkProvisioner:
    """Provisioner of one kernel; `ended` is set once the kernel has ended, for any reason."""

    def __init__(self, kernel_id: str, host_context: ProvisionerContext) -> None:
        self.kernel_id = kernel_id
        self.host_context = host_context
        self._control_channel: control_channels.ControlChannel | None = None
        self._init_fd = -1
        self._kernel_fd = -1
        self._pid = 0
        self._group: cgroups.Group | None = None
        self._directory: pathlib.Path | None = None
        self._temporary_directory: pathlib.Path | None = None
        self._status: int | None = None
        self._init_listener: asyncio.Task[None] | None = None
        self._attach_confirmed: asyncio.Future[None] | None = None
        self.is_used = False
        """Whether a session has used it. If none has, the reason for its end is logged."""
        self._init_ended = asyncio.Event()
        self._uid = 0
        self._sockets: list[socket.socket] = []  # Not yet connected.
        self._doors: list[socket.socket] = []
        self._sockets_changed = asyncio.Event()
        self._meter = SessionMeter()
        self.ended = asyncio.Event()

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and not yet cleaned up."""
        return self._pid != 0

    def meter(self) -> SessionMeter:
        """Return the meter of the session's usage."""
        return self._meter

    async def launch(self) -> str:
        """Fork a kernel, and return the key that signs its messages.

        Raises:
            KernelStartError: it could not be started; its processes have ended.
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
        self._control_channel, guest_end = control_channels.ControlChannel.pair()
        if context.groups.version:
            self._group = context.groups.create(self.kernel_id, limits)
        with guest_end:
            parameters = start_parameters.build(
                inside_uid if walls is forkserver_clients.Walls.NAMESPACES else self._uid,
                limits,
                affinity=[]
                if self._group
                else start_parameters.choose_processors(limits.cpu_cores),
                unwalled_home=str(self._unwalled_home) if self._is_unwalled else "",
                has_own_id=self.has_own_id,
                doors=context.doors,
            )
            await context.server.fork(self.kernel_id, parameters, guest_end.fileno())
        self._init_fd, sockets = await self._receive_start_message(
            control_messages.InitReady, len(context.doors)
        )
        self._doors = [sockets.pop() for _ in context.doors][::-1]
        with contextlib.ExitStack() as open_sockets:
            for endpoint in sockets:
                open_sockets.enter_context(endpoint)
            start_parameters.listen_on_channels(self._directory, sockets)
        self._pid = procfs.pid_of(self._init_fd)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._init_fd, self._on_init_ended)
        # Init joins its cgroup itself: moving another process waits for all processors.
        entry_files = self._group.entry_files() if self._group is not None else []
        try:
            await self._control_channel.send(control_messages.StartKernel(key), entry_files)
        finally:
            for entry_file in entry_files:
                os.close(entry_file)
        self._kernel_fd, self._sockets = await self._receive_start_message(
            control_messages.KernelStarted
        )
        context.server.note_started(self.kernel_id)
        read_as = self._uid if self._is_in_container and context.uids.are_separate else None
        self._meter = SessionMeter(
            self._pid,
            procfs.pid_of(self._kernel_fd),
            self._group,
            max_tasks=limits.processes + _EXTRA_TASKS,
            read_as=read_as,
        )
        loop.add_reader(self._kernel_fd, self._on_kernel_ended)
        self._init_listener = asyncio.create_task(
            self._listen_to_init(), name=f"init {self.kernel_id}"
        )

    @property
    def starts_when_attached(self) -> bool:
        """Whether the kernel runs and listens only once it has its directories."""
        return self._is_in_container

    @property
    def has_own_id(self) -> bool:
        """Whether limits per user, such as RLIMIT_NPROC, count this session's processes alone."""
        # Linux counts the processes of each user namespace separately.
        has_own_namespace = self.host_context.server.walls is forkserver_clients.Walls.NAMESPACES
        return has_own_namespace or (self._is_in_container and self.host_context.uids.are_separate)

    @property
    def can_freeze(self) -> bool:
        """Whether the session's processes can be suspended."""
        return self._group is not None and self._group.can_freeze

    @property
    def _is_in_container(self) -> bool:
        return self.host_context.server.walls is forkserver_clients.Walls.CONTAINER

    @property
    def _is_unwalled(self) -> bool:
        return self.host_context.server.walls is forkserver_clients.Walls.NOTHING

    @property
    def _unwalled_home(self) -> pathlib.Path:
        """Path of an unconfined kernel's workspace, which may be attached later."""
        return (self._directory or self.host_context.runtime) / "data"

    def doors(self) -> tuple[socket.socket, socket.socket, int] | None:
        """Return copies of the door sockets and of init's pidfd; None if there are no doors."""
        if not self._doors or self.ended.is_set():
            return None
        proxy, services = (door.dup() for door in self._doors)
        return proxy, services, os.dup(self._init_fd)

    async def _receive_start_message(
        self, message_type: type[control_messages.Message], door_count: int = 0
    ) -> tuple[int, list[socket.socket]]:
        """Wait for a message; return its pidfd and sockets: the channels', then the doors'."""
        packet = (
            await self._control_channel.receive() if self._control_channel is not None else None
        )
        descriptor_count = 1 + len(start_parameters.CHANNELS) + door_count
        if packet is None:
            reason = "its first process ended"
        elif (
            isinstance(packet.message, message_type) and len(packet.descriptors) == descriptor_count
        ):
            pidfd, *sockets = packet.descriptors
            return pidfd, [socket.socket(fileno=descriptor) for descriptor in sockets]
        else:
            packet.close()
            reason = f"unexpected {type(packet.message).__name__}"
            if isinstance(packet.message, control_messages.StartFailed):
                reason = packet.message.reason
        _log.error("kernel %s did not start: %s", self.kernel_id, reason)
        raise errors.KernelStartError

    async def _listen_to_init(self) -> None:
        while (
            self._control_channel is not None
            and (packet := await self._control_channel.receive()) is not None
        ):
            match packet.message:
                case control_messages.KernelEnded(status):
                    # `status` is None if the kernel's parent, the fork server, has ended.
                    self._status = status
                    if not self.is_used:
                        _log.error("kernel %s ended unused: status %s", self.kernel_id, status)
                case control_messages.Attached():
                    if self._attach_confirmed is not None and not self._attach_confirmed.done():
                        self._attach_confirmed.set_result(None)
                case control_messages.SocketOpened():
                    self._sockets += [socket.socket(fileno=number) for number in packet.descriptors]
                    self._sockets_changed.set()
                case control_messages.StartFailed(reason):
                    _log.error("kernel %s: %s", self.kernel_id, reason)
        # The init process has ended, and with it everything in the namespace.
        self.ended.set()
        self._sockets_changed.set()

    async def connect(self, channel: str) -> socket.socket:
        """Open a connection to a channel, with a socket of the kernel's network namespace.

        Raises:
            OSError: the kernel does not listen, or has ended.
        """
        while not self._sockets:
            if self._control_channel is None or self.ended.is_set():
                raise ConnectionError
            self._sockets_changed.clear()
            try:
                await self._control_channel.send(control_messages.OpenSocket())
            except errors.KernelStartError as error:
                raise ConnectionError from error
            await self._sockets_changed.wait()
        endpoint = self._sockets.pop()
        try:
            endpoint.setblocking(False)
            # Do not wait: if the backlog is full, connecting fails at once.
            endpoint.connect(f"{self._directory}/{start_parameters.socket_name(channel)}")
        except OSError:
            endpoint.close()
            raise
        return endpoint

    async def attach(
        self, workspace: pathlib.Path, variables: pathlib.Path, temporary: pathlib.Path
    ) -> None:
        """Give a session's directories to the kernel's user, and mount them for the kernel.

        Args:
            workspace: shown at /mnt/data; two levels below the directory of all workspaces.
            variables: directory for saved variables, beside the workspace.
            temporary: directory for temporary files, used if the kernel has no file system of its
                own for them; created here, and removed in `cleanup`.

        Raises:
            KernelStartError: they cannot be mounted, or the kernel has ended.
            OSError: they cannot be opened.
        """
        directories, kernel_uids = [workspace, variables], self.host_context.uids.kernel_uids
        if self._is_in_container:
            self._temporary_directory = temporary
            directories.append(temporary)
            await asyncio.to_thread(_recreate, temporary)
        await asyncio.to_thread(ownership.change_owner, directories, self._uid, kernel_uids)
        if self._control_channel is None or self._directory is None:
            raise errors.KernelStartError
        self._attach_confirmed = asyncio.get_running_loop().create_future()
        if self._is_unwalled:
            self._unwalled_home.symlink_to(workspace)
            return
        directory_fds = await self._open_directories(directories)
        try:
            await self._control_channel.send(control_messages.Attach(), directory_fds)
        finally:
            for descriptor in directory_fds:
                os.close(descriptor)
        end_task = asyncio.create_task(self.ended.wait(), name="attaching")
        events: set[asyncio.Future[Any]] = {self._attach_confirmed, end_task}
        try:
            await asyncio.wait(events, timeout=_ATTACH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end_task.cancel()
        if self._attach_confirmed.done():
            return
        if not self.ended.is_set():
            _log.error("kernel %s did not attach its files in time", self.kernel_id)
            await self.kill()
            raise errors.KernelStartError(host_words.FILES_SLOW)
        raise errors.KernelStartError

    async def _open_directories(self, directories: Sequence[pathlib.Path]) -> Sequence[int]:
        """Open a session's directories for its kernel; the caller closes the descriptors.

        Raises:
            KernelStartError: the fork server has no such directory.
            OSError: there is no such directory.
        """
        if self._is_in_container:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            with contextlib.ExitStack() as stack:
                descriptors = []
                for directory in directories:
                    descriptors.append(os.open(directory, flags))
                    stack.callback(os.close, descriptors[-1])
                stack.pop_all()
            return descriptors
        paths = ("/".join(directory.parts[-2:]) for directory in directories)
        return await self.host_context.server.clone_trees(*paths)

    def _on_init_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._init_fd)
        self._init_ended.set()
        self.ended.set()

    def _on_kernel_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._kernel_fd)
        self.ended.set()

    async def wait_status(self) -> int | None:
        """Wait briefly for the wait status of a kernel that just ended."""
        if self._init_listener is not None:
            await asyncio.wait({self._init_listener}, timeout=_MAX_STATUS_WAIT_SECONDS)
        return self._status

    async def wait(self) -> None:
        """Wait until all processes of the session have ended.

        Its init process outlives all others of its namespace.
        """
        if self._init_fd >= 0:
            await self._init_ended.wait()

    def interrupt(self) -> None:
        """Interrupt the kernel's main process."""
        procfs.send_signal(self._kernel_fd, signal.SIGINT)

    async def kill(self) -> None:
        """Kill everything in the session; the namespace ends with its init process."""
        if self.ended.is_set() and not self.is_used:
            await self.wait_status()  # This logs why it ended.
        if (
            self._is_in_container
            and self._control_channel is not None
            and not self._init_ended.is_set()
        ):
            # Only the session's first process knows all others, so it ends them before itself.
            with contextlib.suppress(errors.KernelStartError):
                await self._control_channel.send(control_messages.EndSession())
        else:
            procfs.send_signal(self._init_fd, signal.SIGKILL)
        procfs.send_signal(self._kernel_fd, signal.SIGKILL)
        if self._group is not None:
            await asyncio.to_thread(self._group.kill)

    async def freeze(self) -> None:
        """Suspend all processes until `thaw`; they can only notice that time has passed."""
        if self._group is not None:
            # If this is cancelled, it must not freeze after a later `thaw`.
            await cancellation.in_thread(self._group.set_frozen, True)

    async def thaw(self) -> None:
        """Resume the session's processes."""
        if self._group is not None:
            self._group.set_frozen(False)

    def set_weight(self, weight: float) -> None:
        """Set the session's weight in its cgroup, if it has one."""
        if self._group is not None:
            self._group.set_weight(weight)

    async def cleanup(self) -> None:
        """Close descriptors and sockets, and remove directories and the cgroup."""
        loop = asyncio.get_running_loop()
        if self._control_channel is not None:
            self._control_channel.close()
        if self._init_listener is not None:
            self._init_listener.cancel()
        self._control_channel = self._init_listener = None
        self._sockets_changed.set()
        for endpoint in (*self._sockets, *self._doors):
            endpoint.close()
        self._sockets, self._doors = [], []
        for descriptor in (self._init_fd, self._kernel_fd):
            if descriptor >= 0:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._init_fd, self._kernel_fd, self._pid = -1, -1, 0
        self._meter = SessionMeter()
        self.ended.set()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if self._temporary_directory is not None:
            await asyncio.to_thread(safe_open.remove, self._temporary_directory)
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
            self._group = None
        await self.host_context.server.note_ended(self.kernel_id)


def _recreate(directory: pathlib.Path) -> None:
    """Create an empty directory; a killed bot may have left files in it."""
    safe_open.remove(directory)
    directory.mkdir(mode=0o700)
