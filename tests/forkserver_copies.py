"""A template process with all imports of a fork server, forked for each fork server of a test.

Nearly all of a fork server's start is imports, and hundreds of tests start one. A copy begins at
the first line of `guest.forkservers`, with the descriptors and the environment that the bot passes;
it makes namespaces, root and kernels of its own. It is a child of the bot, not of the template, so
the bot waits for it as usual. Attacks and commands start real fork servers, and so does the bot if
the template cannot be forked.
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
# The bot starts Python by its real path, to which `kernels` is a link.
_PYTHON = os.path.join(os.path.realpath(os.path.join(sys.prefix, "kernels")), "bin", "python")


class _CopiedProcess(subprocess.Popen):
    """A process that was forked already, as a `Popen`."""

    def __init__(self, pid: int) -> None:
        self.args, self.pid, self.returncode = "a copy", pid, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()


class Template:
    """The template process: started by the first `spawn`, ended with the `with` block."""

    def __init__(self, provisioning) -> None:
        """Take the module `python_environments`, which the template process never imports."""
        self._provisioning = provisioning
        self._real_spawn = provisioning.spawn
        self._channel: socket.socket | None = None

    def __enter__(self) -> Template:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def kill(self) -> None:
        """Kill the process, as the system does if it needs memory."""
        self._process.kill()
        self._process.wait()

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._process.wait()
            self._channel = None

    def _start(self, variables: dict[str, str]) -> socket.socket:
        guest = str(self._provisioning._GUEST_FILE.parent)
        our_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._process = subprocess.Popen(
                [_PYTHON, "-I", "-B", __file__, str(child_end.fileno()), guest],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=variables,
                pass_fds=[child_end.fileno()],
                cwd="/",
            )
        return our_end

    def spawn(self, environment, control: int, *, cores: int, **options: str) -> subprocess.Popen:
        """Do what `python_environments.spawn` does, which is called for any other Python."""
        # Real paths are not compared: several environments may share one interpreter.
        if environment.executable != _PYTHON or _NR_CLONE < 0:
            return self._real_spawn(environment, control, cores=cores, **options)
        home = options.get("home", self._provisioning.WALLED_HOME)
        variables = self._provisioning._clean_environment(environment, cores=cores, home=home)
        self._channel = self._channel or self._start(variables)
        package = self._provisioning._GUEST_FILE.parents[1]
        package_directory = os.open(package, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            socket.send_fds(
                self._channel, [json.dumps(variables).encode()], [control, package_directory]
            )
            answer = self._channel.recv(_MAX_BYTES)
        except ConnectionError:
            answer = b""
        finally:
            os.close(package_directory)
        if not answer:
            # The template was killed, or the fork failed: start another one for the next tests.
            self._end()
            return self._real_spawn(environment, control, cores=cores, **options)
        return _CopiedProcess(int(answer))


def fork_for_parent() -> int:
    """Fork a child of this process's parent; returns 0 in the child, and here its pid.

    Raises:
        OSError: the fork failed. A pid of -1 is never returned: to kill -1 kills all processes.
    """
    # The same steps as `os.fork`, with one more flag; this process has no other threads.
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
    """Fork for each request, until the other end of `control` is closed."""
    sys.path.insert(0, str(guest.parent))
    forkservers = importlib.import_module("guest.forkservers")
    importlib.import_module("guest.kernel_apps")
    preloads = importlib.import_module("guest.preloads")
    del sys.path[0]
    sys.modules["debugpy"] = None
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]
    for name in preloads._LAZY_MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=control)
    while True:
        variables, descriptors, _, _ = socket.recv_fds(channel, _MAX_BYTES, 2)
        if not variables:
            return
        pid = fork_for_parent()
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
