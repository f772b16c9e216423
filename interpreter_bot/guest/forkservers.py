"""The fork server: one clean process per kernel Python that forks confined kernels on request."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from . import control_channels, init_processes, installer_refusals, rootfs, syscalls


def main(control: int, place: int) -> None:
    """Serve until the bot closes its end of `control`.

    Args:
        control: descriptor of a packet socket.
        place: descriptor of the directory this package was imported from.
    """
    channel = socket.socket(fileno=control)
    for descriptor in (control, place):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    received = control_channels.receive(channel)
    if received is None:
        return
    start = received[0]
    # Without the bot there is nothing to report to and nothing to do.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            server = _ForkServer(channel, start)
            server.enter(place)
            server.preload()
        except OSError as error:
            control_channels.send(channel, {"event": "failed", "reason": str(error)}, [])
            sys.exit(1)
        server.serve()


class _ForkServer:
    def __init__(self, channel: socket.socket, start: dict[str, Any]) -> None:
        self._channel = channel
        self._start = start
        self._is_walled: bool = start["walls"]
        self._workspaces: str = start["workspaces"]

    def enter(self, place: int) -> None:
        """Leave the host for namespaces and a root of our own; nothing is imported before.

        Args:
            place: a descriptor of the host's, closed on the way.
        """
        if not self._is_walled:
            os.makedirs(os.environ["HOME"], mode=0o700, exist_ok=True)
            return
        # Modules remember the host name when they are preloaded: it must be changed before.
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS)
        syscalls.rename_host()
        if self._start["is_mapped_outside"]:
            self._say({"event": "unshared"})
            control_channels.receive(self._channel)
        else:
            _map_ourselves(self._start["uid"], self._start["gid"])
        self._become_first()
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        start = self._start
        trees = rootfs.MountTrees(start["readable"], start["hidden"], start["workspaces"])
        os.close(place)
        # Until here a root's user id could walk into closed homes. From here on it has no rights.
        os.setgroups([]) if start["is_mapped_outside"] else None
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        # After the change of credentials, which clears this setting.
        syscalls.die_with_parent(signal.SIGKILL)
        trees.enter(cores=start["cores"])
        syscalls.forbid_new_privileges()
        os.environ.update(installer_refusals.install(rootfs.TOOLS, start["packages"]))
        # With an editable installation, these entries name the bot's own directory.
        sys.path[:] = [entry for entry in sys.path if os.path.exists(entry)]
        self._workspaces = rootfs.WORKSPACES
        self._pid_namespace = os.open(f"{rootfs.HOST_PROC}/self/ns/pid", os.O_RDONLY)

    def _become_first(self) -> None:
        """Go on as the first process of a pid namespace that this user namespace owns.

        Kernels' namespaces are made below it, which is not allowed below the host's, and end with
        it.
        """
        syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
        if pid:
            self._channel.close()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)

    def preload(self) -> None:
        """Import the analysis stack, warm it up, and freeze it against the garbage collector."""
        started = time.monotonic()
        if self._is_walled:
            # These import the kernel's environment, which must happen inside the sandbox only.
            sys.modules[__package__].__path__[:] = [rootfs.GUEST]
        from . import kernel_apps, preloads

        self._run_kernel = kernel_apps.run
        missing = preloads.load(self._start["preload"])
        kernel_apps.warm_up(self._start)
        if self._is_walled:
            rootfs.seal()
        gc.collect()
        gc.freeze()
        memory = _memory()
        self._data_bytes = memory["VmData"]
        self._say(
            {
                "event": "ready",
                "missing": missing,
                "python": sys.version.split()[0],
                "seconds": time.monotonic() - started,
                "data_bytes": memory["VmData"],
                "threads": len(os.listdir("/proc/self/task")),
            }
        )

    def serve(self) -> None:
        """Answer requests one at a time; each takes milliseconds."""
        signal.signal(signal.SIGCHLD, lambda *_: _reap())
        while True:
            received = control_channels.receive(self._channel)
            if received is None:
                return
            message, descriptors = received
            try:
                if message["op"] == "fork":
                    self._fork(message, descriptors)
                else:
                    self._clone_tree(message)
            except OSError as error:
                self._say({"event": "refused", "id": message["id"], "reason": str(error)})
            for descriptor in descriptors:
                os.close(descriptor)

    def _clone_tree(self, message: dict[str, Any]) -> None:
        """Send a session's workspace as a mount tree that its kernel can attach."""
        path = f"{self._workspaces}/{message['workspace']}"
        tree = syscalls.open_tree(path)
        flags = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV
        syscalls.set_mount_flags(tree, flags)
        self._say({"event": "tree", "id": message["id"]}, tree)
        os.close(tree)

    def _fork(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if self._is_walled:
            # This process stays in the host's pid namespace; each child is the first of a new one.
            syscalls.setns(self._pid_namespace, syscalls.CLONE_NEWPID)
            syscalls.unshare(syscalls.CLONE_NEWPID)
        if os.fork() == 0:
            self._be_init(message, descriptors)
        self._say({"event": "forked", "id": message["id"]})

    def _be_init(self, message: dict[str, Any], descriptors: list[int]) -> NoReturn:
        self._channel.close()
        if self._is_walled:
            os.close(self._pid_namespace)
        signal.set_wakeup_fd(-1)
        gc.disable()
        link, *listeners = descriptors
        spec = self._start | message | {"listeners": listeners}
        spec["rlimits"]["DATA"] += self._data_bytes
        init_processes.run(socket.socket(fileno=link), spec, self._run_kernel)

    def _say(self, message: dict[str, Any], *descriptors: int) -> None:
        control_channels.send(self._channel, message, list(descriptors))


def _map_ourselves(uid: int, gid: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _memory() -> dict[str, int]:
    """Read this process's sizes in bytes, by their names in /proc."""
    with open("/proc/self/status") as file:
        pairs = (line.split(":", 1) for line in file if line.startswith("Vm"))
        return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
