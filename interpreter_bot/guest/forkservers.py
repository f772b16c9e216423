"""The fork server: one clean process per kernel Python that forks confined kernels on request."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from . import (
    confinement,
    container_keepers,
    container_walls,
    control_messages,
    init_processes,
    init_servers,
    installer_refusals,
    kernel_processes,
    rootfs,
    seccomp,
    supervised_connections,
    syscalls,
)


def main(control_fd: int, package_parent_fd: int) -> None:
    """Serve until the bot closes its end of the packet socket `control_fd`.

    `package_parent_fd` is a descriptor of the directory above this package.
    """
    channel = socket.socket(fileno=control_fd)
    for descriptor in (control_fd, package_parent_fd):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    received = control_messages.receive(channel)
    if received is None:
        return
    configuration = received[0]
    assert isinstance(configuration, control_messages.Configuration)
    # Without the bot there is nothing to report to and nothing to do.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            if configuration.walls == confinement.CONTAINER:
                server: _ForkServer = _ContainerForkServer(channel, configuration)
            else:
                server = _ForkServer(channel, configuration)
            server.enter(package_parent_fd)
            server.split_off_init_server()
        except OSError as error:
            control_messages.send(channel, control_messages.WallsRefused(str(error)))
            sys.exit(1)
        server.preload()
        server.serve()


class _ForkServer:
    def __init__(
        self, channel: socket.socket, configuration: control_messages.Configuration
    ) -> None:
        self._channel = channel
        self._configuration = configuration
        self._has_namespaces = configuration.walls == confinement.NAMESPACES
        self._workspaces = configuration.workspaces_directory
        self._kernels: dict[int, tuple[int, int]] = {}
        """By pidfd, a kernel's or keeper's pid, and the descriptor of its link to its init."""
        self._shared_id_reason = self._doors_refusal = ""

    def enter(self, package_parent_fd: int) -> None:
        """Enter new namespaces with a new root, before anything is imported.

        `package_parent_fd` is a descriptor of the directory above this package, outside the new
        root.
        """
        if not self._has_namespaces:
            os.makedirs(os.environ["HOME"], mode=0o700, exist_ok=True)
            return
        configuration = self._configuration
        # Preloaded modules remember the host name, so it is changed first.
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS)
        syscalls.rename_host()
        if configuration.is_mapped_outside:
            self._send(control_messages.IdsNeeded())
            control_messages.receive(self._channel)
        else:
            confinement.map_to_root(configuration.uid, configuration.gid)
        self._become_pid_1()
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        # If parts of /proc are covered, as by Docker, no new one can be mounted. Find out now,
        # before a kernel needs its own.
        syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)
        syscalls.umount("/proc")
        trees = rootfs.MountTrees(
            configuration.readable_paths,
            configuration.hidden_paths,
            configuration.workspaces_directory,
            skills_directory=configuration.skills_directory,
            layers_directory=configuration.layers_directory,
        )
        os.close(package_parent_fd)
        # Only the original user could reach the paths above; from now on, groups are not needed.
        if configuration.is_mapped_outside:
            os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        # After the change of credentials, which clears this setting.
        syscalls.die_with_parent(signal.SIGKILL)
        trees.enter(visible_cores=configuration.visible_cores)
        syscalls.forbid_new_privileges()
        os.environ.update(
            installer_refusals.install(
                rootfs.TOOLS,
                configuration.packages,
                can_install=bool(configuration.layers_directory),
            )
        )
        rootfs.cover_uv()
        trees.mount_temporary()
        # In an editable installation, missing entries would name the bot's own directory.
        sys.path[:] = [entry for entry in sys.path if os.path.exists(entry)]
        # Last, so that no module of a skill hides another one.
        sys.path.append(rootfs.SKILL_MODULES)
        self._workspaces = rootfs.WORKSPACES

    def _become_pid_1(self) -> None:
        """Continue as process 1 of a pid namespace that this user namespace owns.

        Kernels' pid namespaces can be created only below such a namespace, and end with it.
        """
        syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
        if pid:
            self._channel.close()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)

    def split_off_init_server(self) -> None:
        """Fork; the parent, which has imported little, becomes the init server."""
        socket_kind = socket.SOCK_SEQPACKET
        self._init_requests, init_request_end = socket.socketpair(socket.AF_UNIX, socket_kind)
        self._kernel_requests, kernel_request_end = socket.socketpair(socket.AF_UNIX, socket_kind)
        if self._has_namespaces:
            # Build it once for all children, because people wait for the start of an init.
            seccomp.build()
        pid = os.fork()
        if pid:
            self._init_requests.close()
            self._kernel_requests.close()
            init_servers.InitServer(
                self._configuration,
                channel=self._channel,
                requests=init_request_end,
                kernel_requests=kernel_request_end,
                forkserver_pid=pid,
            ).serve()
            os._exit(0)
        init_request_end.close()
        kernel_request_end.close()
        syscalls.die_with_parent(signal.SIGKILL)

    def preload(self) -> None:
        """Import the analysis stack and warm it up, so that kernels are forked with it."""
        if self._has_namespaces:
            # Import the remaining modules from the sandbox's copy of this package.
            sys.modules[__package__].__path__[:] = [rootfs.GUEST]
        from . import kernel_apps, preloads

        self._run_kernel = kernel_apps.run
        preload_errors = preloads.load(self._configuration.preload)
        kernel_apps.warm_up(self._configuration)
        # A collection writes to every object, which copies pages; frozen objects stay shared.
        gc.collect()
        gc.freeze()
        if self._has_namespaces:
            rootfs.seal()
        self._data_bytes = _read_data_bytes()
        python_version = sys.version.split()[0]
        self._send(
            control_messages.ServerReady(
                python_version, preload_errors, self._shared_id_reason, self._doors_refusal
            )
        )

    def serve(self) -> None:
        """Answer requests one at a time; each takes milliseconds."""
        # Pidfds report the ends of kernels. SIGCHLD is not used, because a kernel can cause any
        # number of these signals by stopping and continuing.
        self._poll = select.poll()
        for endpoint in self._endpoints():
            self._poll.register(endpoint, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._kernels:
                    self._handle_kernel_end(descriptor)
                elif descriptor == self._channel.fileno():
                    if not self._handle_request():
                        return
                elif (received := control_messages.receive(self._kernel_requests)) is not None:
                    self._fork_kernel(*received[1])

    def _endpoints(self) -> list[socket.socket]:
        return [self._channel, self._kernel_requests]

    def _handle_request(self) -> bool:
        """Answer one request of the bot; return False if it closed the channel."""
        received = control_messages.receive(self._channel)
        if received is None:
            return False
        request, descriptors = received
        assert isinstance(request, (control_messages.ForkInit, control_messages.CloneTrees))
        try:
            if isinstance(request, control_messages.ForkInit):
                self._fork_init(request, descriptors)
                self._send(control_messages.InitForked(request.id))
            else:
                self._clone_trees(request)
        except OSError as error:
            self._send(control_messages.RequestRefused(request.id, str(error)))
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork_init(self, request: control_messages.ForkInit, descriptors: list[int]) -> None:
        control_messages.send(self._init_requests, request, descriptors)

    def _clone_trees(self, request: control_messages.CloneTrees) -> None:
        """Send clones of a session's directories as mount trees, which its kernel can attach."""
        flags = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
        with contextlib.ExitStack() as open_trees:
            trees = []
            for path in request.paths:
                trees.append(syscalls.open_tree(f"{self._workspaces}/{path}"))
                open_trees.callback(os.close, trees[-1])
                syscalls.set_mount_flags(trees[-1], flags)
            self._send(control_messages.TreesCloned(request.id), *trees)

    def _fork_kernel(self, link_fd: int, *namespace_fds: int) -> None:
        """Fork a kernel for an init, into its pid namespace if it has one."""
        try:
            for namespace_fd in namespace_fds:
                syscalls.setns(namespace_fd, syscalls.CLONE_NEWPID)
            pid = os.fork()
        except OSError as error:
            # The init may have ended, which makes the fork and this message fail.
            with socket.socket(fileno=link_fd) as init, contextlib.suppress(OSError):
                control_messages.send(init, control_messages.describe_failure(error))
        else:
            if pid == 0:
                self._run_as_kernel(link_fd, *namespace_fds)
            pidfd = os.pidfd_open(pid)
            self._kernels[pidfd] = pid, link_fd
            self._poll.register(pidfd, select.POLLIN)
        for namespace_fd in namespace_fds:
            os.close(namespace_fd)

    def _run_as_kernel(self, link_fd: int, *namespace_fds: int) -> NoReturn:
        try:
            # With these, user code could send messages as this server or as another kernel.
            for endpoint in (self._channel, self._init_requests, self._kernel_requests):
                endpoint.close()
            for pidfd, (_, other_link_fd) in self._kernels.items():
                os.close(pidfd)
                os.close(other_link_fd)
            for namespace_fd in namespace_fds:
                os.close(namespace_fd)
            init = socket.socket(fileno=link_fd)
            kernel_processes.run(
                init, self._configuration, self._run_kernel, data_bytes=self._data_bytes
            )
        finally:
            os._exit(1)

    def _handle_kernel_end(self, pidfd: int) -> None:
        """Send a kernel's init the wait status of the kernel."""
        pid, link_fd = self._kernels.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        # The init may have ended already.
        with socket.socket(fileno=link_fd) as init, contextlib.suppress(OSError):
            control_messages.send(init, control_messages.KernelEnded(status))

    def _send(self, message: control_messages.Message, *descriptors: int) -> None:
        control_messages.send(self._channel, message, descriptors)


class _ContainerForkServer(_ForkServer):
    """Fork server without namespaces: it forks each session's keeper, which forks the kernel.

    `_kernels` has keepers instead of kernels.
    """

    def enter(self, package_parent_fd: int) -> None:
        """Check that the walls can be built, and remove search paths that kernels must not see."""
        configuration = self._configuration
        own_id_refusal = "the bot is not root"
        if configuration.first_uid:
            own_id_refusal = container_walls.find_own_id_refusal(
                configuration.first_uid, configuration.readable_paths
            )
        has_own_ids = not own_id_refusal
        if configuration.uid == 0 and not has_own_ids:
            raise OSError(
                f"code would run as root, because {own_id_refusal}. Change that, or start the bot "
                "as a plain user"
            )
        if missing_support := container_walls.describe_missing_support(has_own_ids=has_own_ids):
            raise OSError(missing_support)
        # Build the filters once for all children.
        for has_doors in (False, True):
            seccomp.build(has_namespaces=False, has_shared_id=not has_own_ids, has_doors=has_doors)
        self._package_parent_fd = package_parent_fd
        self._shared_id_reason = own_id_refusal
        self._doors_refusal = supervised_connections.find_refusal(
            configuration.first_uid if has_own_ids else 0
        )
        # Processes of a session whose keeper was killed become children of this process.
        syscalls.adopt_orphans()
        syscalls.set_dumpable(False)
        os.environ.update(
            installer_refusals.install(
                configuration.tools_directory,
                configuration.packages,
                can_install=bool(configuration.layers_directory),
            )
        )
        rootfs.link_ffmpeg(configuration.tools_directory)
        container_walls.pin_shared(
            skills_directory=configuration.skills_directory,
            layers_directory=configuration.layers_directory,
            tools_directory=configuration.tools_directory,
        )
        container_walls.set_search_paths(configuration.readable_paths)

    def split_off_init_server(self) -> None:
        """Do nothing, because this process forks the keepers itself."""

    def preload(self) -> None:
        """Import the analysis stack; afterwards, kernels cannot import the bot's modules."""
        super().preload()
        os.close(self._package_parent_fd)

    def serve(self) -> None:
        """Answer requests; then wait for all keepers, and end processes of killed ones."""
        super().serve()
        self._poll.unregister(self._channel)
        while self._kernels:
            for descriptor, _ in self._poll.poll():
                self._handle_kernel_end(descriptor)

    def _endpoints(self) -> list[socket.socket]:
        return [self._channel]

    def _fork_init(self, request: control_messages.ForkInit, descriptors: list[int]) -> None:
        (link_fd,) = descriptors
        pid = os.fork()
        if pid == 0:
            try:
                self._channel.close()
                for pidfd in self._kernels:
                    os.close(pidfd)
                channel = socket.socket(fileno=link_fd)
                keeper = container_keepers.Keeper(
                    channel, self._configuration, request.kernel, self._run_kernel_in_container
                )
                init_processes.run_init(keeper, channel)
            finally:
                os._exit(1)
        pidfd = os.pidfd_open(pid)
        self._kernels[pidfd] = pid, -1
        self._poll.register(pidfd, select.POLLIN)

    def _run_kernel_in_container(
        self,
        link: socket.socket,
        kernel: control_messages.KernelParameters,
        signing_key: str,
        listeners: list[int],
    ) -> NoReturn:
        kernel_processes.run_in_container(
            link,
            self._configuration,
            kernel,
            self._run_kernel,
            signing_key=signing_key,
            listeners=listeners,
            data_bytes=self._data_bytes,
        )

    def _handle_kernel_end(self, pidfd: int) -> None:
        """End the processes of a session whose keeper was killed."""
        del self._kernels[pidfd]
        self._poll.unregister(pidfd)
        os.close(pidfd)
        container_walls.end_descendants(spared_children=[pid for pid, _ in self._kernels.values()])


def _read_data_bytes() -> int:
    """Return this process's private writable memory, with which every kernel starts."""
    with open("/proc/self/status") as file:
        sizes = (line.split() for line in file if line.startswith("VmData:"))
        return next(int(kilobytes) * 1024 for _, kilobytes, _ in sizes)
