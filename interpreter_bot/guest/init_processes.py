"""The init process of a kernel's pid namespace: confines itself, forks the kernel, reaps.

It runs no user code, and its end ends everything in the namespace. It takes requests from one
socket, whose other end the bot holds: when that closes, however the bot died, this process ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from . import confinement, control_channels, rootfs, syscalls

Spec = dict[str, Any]

_ENTERED = b"."
# Where no cgroup sets CPU weights, the bot still has priority over the sessions.
_NICENESS = 5
_HERE = os.path.dirname(__file__)
# Fits into a pipe at once, even at four bytes a character.
_REASON_CHARACTERS = 1000


def run(channel: socket.socket, spec: Spec, run_kernel: Callable[[Spec], None]) -> NoReturn:
    """Run this process from start to exit.

    Args:
        channel: this end of the socket to the bot.
        spec: from the fork request; see `kernels/provisioning/forkservers`.
        run_kernel: runs the kernel in a process of its own, after its confinement.
    """
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        status = _Init(channel, spec).live(run_kernel)
    except Exception as error:
        # The only broad `except` of this process: it has no other way to report a failed start.
        with contextlib.suppress(OSError):
            control_channels.send(channel, {"event": "failed", "reason": _reason(error)}, [])
    finally:
        os._exit(status)


class _UnconfinedError(Exception):
    """The kernel's process reports why it could not be confined."""


def _reason(error: Exception) -> str:
    """Describe what failed, and at which step: this package's functions on the way, outermost
    first.
    """
    if isinstance(error, _UnconfinedError):
        return str(error)
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    steps = [code.co_name for code in codes if os.path.dirname(code.co_filename) == _HERE]
    return f"{type(error).__name__}: {error} (in {' → '.join(steps[-3:])})"[:_REASON_CHARACTERS]


class _Init:
    def __init__(self, channel: socket.socket, spec: Spec) -> None:
        self._channel = channel
        self._spec = spec
        self._kernel = 0

    def live(self, run_kernel: Callable[[Spec], None]) -> int:
        """Confine, fork, serve until the kernel or the bot is gone."""
        is_walled = self._spec["walls"]
        if is_walled:
            spec = self._spec
            confinement.enter_namespaces(
                temporary_bytes=spec["temporary_bytes"],
                uid=spec["uid"],
                readable=spec["readable"],
            )
        confinement.give_up_first()
        if is_walled:
            syscalls.set_dumpable(False)
        pidfd = os.pidfd_open(os.getpid())
        self._say({"event": "separated"}, pidfd)
        os.close(pidfd)
        received = control_channels.receive(self._channel)
        if received is None:
            return 0
        # Into the cgroups, before anything is allocated for the kernel.
        for entrance in received[1]:
            os.write(entrance, b"0")
            os.close(entrance)
        if is_walled:
            confinement.enter_cgroup_namespace()
        wakeup, waker = socket.socketpair()
        waker.setblocking(False)
        # Before there is a child whose end could be missed.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        pidfd = self._fork_kernel(run_kernel, [wakeup, waker])
        self._say({"event": "started"}, pidfd)
        os.close(pidfd)
        return self._serve(wakeup)

    def _fork_kernel(self, run_kernel: Callable[[Spec], None], ours: list[socket.socket]) -> int:
        """Fork the kernel's process; returns its pid once it is confined."""
        told, tell = os.pipe()
        masked, mask = os.pipe()
        self._kernel = os.fork()
        if self._kernel == 0:
            self._be_kernel(run_kernel, ours, tell, masked, (told, mask))
        pidfd = os.pidfd_open(self._kernel)
        for descriptor in (*self._spec["listeners"], tell, masked):
            os.close(descriptor)
        # The kernel enters its user namespace while /proc/sys is writable, this process makes that
        # read-only, and only then does the kernel go on.
        first = os.read(told, 1)
        if first == _ENTERED:
            if self._spec["walls"]:
                confinement.mask_proc(self._spec["proc_files"])
            with contextlib.suppress(BrokenPipeError):
                os.write(mask, b".")
            first = b""
        # The kernel closes its end of the pipe once it is confined, or writes why it could not be.
        with os.fdopen(told, "rb") as rest:
            reason = first + rest.read()
        os.close(mask)
        if reason:
            raise _UnconfinedError(reason.decode("utf-8", "replace"))
        return pidfd

    def _be_kernel(
        self,
        run_kernel: Callable[[Spec], None],
        ours: list[socket.socket],
        tell: int,
        masked: int,
        unused: tuple[int, int],
    ) -> NoReturn:
        status = 1
        try:
            try:
                signal.set_wakeup_fd(-1)
                for endpoint in (self._channel, *ours):
                    endpoint.close()
                for descriptor in unused:
                    os.close(descriptor)
                self._confine(tell, masked)
            except Exception as error:
                # The broad `except` of this process, as above.
                os.write(tell, _reason(error).encode())
            else:
                os.close(tell)
                run_kernel(self._spec)
                status = 0
        finally:
            os._exit(status)

    def _confine(self, tell: int, masked: int) -> None:
        """Confine this process, which becomes the kernel."""
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        if self._spec["walls"]:
            confinement.enter_user_namespace(self._spec["uid"])
        os.write(tell, _ENTERED)
        if not os.read(masked, 1):
            raise BrokenPipeError("the first process is gone")
        os.close(masked)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.nice(_NICENESS)
        confinement.limit(self._spec["rlimits"])
        if self._spec["walls"]:
            if self._spec["affinity"]:
                os.sched_setaffinity(0, self._spec["affinity"])
            confinement.confine(is_watched=bool(self._spec["affinity"]))

    def _serve(self, wakeup: socket.socket) -> int:
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wakeup.fileno():
                    wakeup.recv(512)
                    if (status := self._reap()) is not None:
                        self._say({"event": "ended", "status": status})
                        return 0
                elif not self._obey():
                    return 0

    def _reap(self) -> int | None:
        """Reap dead children; returns the kernel's wait status, once it has one."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self._kernel:
                    return status
                if pid == 0:
                    break
        return None

    def _obey(self) -> bool:
        """Handle one request of the bot; False when the bot is gone."""
        received = control_channels.receive(self._channel)
        if received is None:
            if not self._spec["walls"]:
                # Without a pid namespace, the end of this process does not kill the kernel.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._kernel, signal.SIGKILL)
            return False
        _, descriptors = received
        syscalls.move_mount(descriptors[0], rootfs.DATA)
        os.close(descriptors[0])
        # Privileges were kept for mounting only.
        confinement.confine(is_watched=False)
        self._say({"event": "attached"})
        return True

    def _say(self, message: dict[str, Any], *descriptors: int) -> None:
        control_channels.send(self._channel, message, list(descriptors))
