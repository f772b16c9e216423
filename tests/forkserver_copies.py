"""A process that has imported what every fork server imports, and is copied for each one of a test.

Nearly all of a fork server's start is imports, and hundreds of tests start one. A copy begins at
the first line of `guest.forkservers`, with the descriptors and the environment that the bot gives;
it makes namespaces, root and kernels of its own. As a child of the bot, not of this process, it is
waited for as usual. Attacks and commands start the real thing; so does who gets no copy.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

_CLONE_PARENT = 0x8000
_NR_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)
_MAX_BYTES = 65536
# The bot starts it by its real place, which `kernels` links to.
_PYTHON = os.path.join(os.path.realpath(os.path.join(sys.prefix, "kernels")), "bin", "python")


class _Copy(subprocess.Popen):
    """A process that is there already."""

    def __init__(self, pid: int) -> None:
        self.args, self.pid, self.returncode = "a copy", pid, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()


class Template:
    """The process, for as long as the `with` lasts; started when it is first wanted."""

    def __init__(self, provisioning) -> None:
        """Start nothing yet.

        Args:
            provisioning: the module `python_environments`, which the process itself does without.
        """
        self._provisioning = provisioning
        self._real_spawn = provisioning.spawn
        self._channel: socket.socket | None = None

    def __enter__(self) -> Template:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._process.wait()
            self._channel = None

    def _start(self, variables: dict[str, str]) -> socket.socket:
        guest = str(self._provisioning._GUEST.parent)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [_PYTHON, "-I", "-B", __file__, str(theirs.fileno()), guest],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=variables,
                pass_fds=[theirs.fileno()],
                cwd="/",
            )
        return ours

    def spawn(self, environment, control: int, *, cores: int, **options: str) -> subprocess.Popen:
        """Do what `python_environments.spawn` does; which is what is done for another Python."""
        # Not by real paths: several environments may share one interpreter.
        if environment.executable != _PYTHON or _NR_CLONE < 0:
            return self._real_spawn(environment, control, cores=cores, **options)
        home = options.get("home", self._provisioning.WALLED_HOME)
        variables = self._provisioning._clean_environment(environment, cores=cores, home=home)
        self._channel = self._channel or self._start(variables)
        package = self._provisioning._GUEST.parents[1]
        place = os.open(package, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            socket.send_fds(self._channel, [json.dumps(variables).encode()], [control, place])
            said = self._channel.recv(_MAX_BYTES)
        except ConnectionError:
            said = b""
        finally:
            os.close(place)
        if not said:
            # It was killed, or could not be copied, which it told of: no other test need suffer.
            self._end()
            return self._real_spawn(environment, control, cores=cores, **options)
        return _Copy(int(said))


def copied() -> int:
    """Fork a child of this process's parent: 0 in it, here its pid.

    Raises:
        OSError: that is not possible. Who took -1 for a process would kill all there are with it.
    """
    # As `os.fork` does, but for the flag; no other thread is here that could run meanwhile.
    python, system = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    python.PyOS_BeforeFork()
    pid = system.syscall(_NR_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "a fork server cannot be copied")
    return pid


def _serve(control: int, guest: pathlib.Path) -> None:
    """Copy this process whenever that is asked, until nobody can ask any more."""
    sys.path.insert(0, str(guest.parent))
    forkservers = importlib.import_module("guest.forkservers")
    importlib.import_module("guest.kernel_apps")
    preloads = importlib.import_module("guest.preloads")
    del sys.path[0]
    sys.modules["debugpy"] = None
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]
    for name in preloads._LAZY:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=control)
    while True:
        variables, descriptors, _, _ = socket.recv_fds(channel, _MAX_BYTES, 2)
        if not variables:
            return
        pid = copied()
        if pid == 0:
            channel.close()
            os.setsid()
            os.environ.clear()
            os.environ.update(json.loads(variables))
            forkservers.main(*descriptors)
            os._exit(0)
        channel.send(str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
