"""A process that has imported what commands import, and is copied for each one that a test starts.

Two thirds of what a command costs are imports, and the suites of `acceptance` start hundreds. The
first start of each subcommand is the real thing, in each run of the tests; later ones are copies,
which begin at the first line of `cli.main` with the arguments, environment, directory and streams
that they would have had. As a child of whoever starts it, a copy is waited for and killed as usual.
What a command starts itself (a host, a fork server, a worker) is the real thing always.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import io
import json
import os
import pathlib
import pkgutil
import socket
import subprocess
import sys
import threading

from tests import forkserver_copies

_ROOT = pathlib.Path(__file__).parents[1]
_SCRIPT = pathlib.Path(sys.executable).with_name("interpreter-bot")
_MODULE = "interpreter_bot"
_MAX_BYTES = 1 << 17
# Of these, commands import some once they know that they are wanted.
_WANTED = (
    *("app.service_startup", "app.execution_startup", "kernel_host.host_server"),
    *("agent.llms.chat_completions", "agent.llms.openai_clients", "platforms.web.server"),
)
# What a copy cannot be given any more.
_REFUSED = ("preexec_fn", "pass_fds", "shell", "executable", "uid", "gid", "gids")
_REAL = subprocess.Popen._execute_child
_PARAMETERS = inspect.signature(_REAL)


class Template:
    """The process, for as long as the `with` lasts; started when it is first wanted."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._started: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Template:
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel is not None:
            self._channel.close()
            self._process.wait()

    def execute_child(self, popen: subprocess.Popen, *given: object) -> None:
        """Do what `Popen._execute_child` does, by a copy where that is the same."""
        told = _PARAMETERS.bind(popen, *given).arguments
        arguments = _arguments(told)
        if arguments is None or self._is_first(arguments):
            _REAL(popen, *given)
            return
        pipes = [told[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [own if pipe == -1 else pipe for own, pipe in enumerate(pipes)]
        wanted = {
            "arguments": arguments,
            "directory": os.path.abspath(told["cwd"] or os.curdir),
            "environment": dict(os.environ if told["env"] is None else told["env"]),
            "has_session": bool(told["start_new_session"]),
        }
        with self._lock:
            self._channel = self._channel or self._start()
            socket.send_fds(self._channel, [json.dumps(wanted).encode()], streams)
            popen.pid = int(self._channel.recv(_MAX_BYTES))
        popen._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        popen._close_pipe_fds(*(told[name] for name in ends))

    def _is_first(self, arguments: list[str]) -> bool:
        subcommand = next(filter(str.isidentifier, arguments[1:]), "")
        is_first = subcommand not in self._started
        self._started.add(subcommand)
        return is_first

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.command_copies", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
                pass_fds=[theirs.fileno()],
                cwd=_ROOT,
            )
        return ours


def _arguments(told: dict[str, object]) -> list[str] | None:
    """`sys.argv` as a command would have it; None where this is none, or not to be copied."""
    if isinstance(told["args"], str | os.PathLike) or any(told[name] for name in _REFUSED):
        return None
    line = [os.fspath(one) for one in told["args"]]
    if line[:3] == [sys.executable, "-m", _MODULE]:
        return [str(_ROOT / _MODULE / "__main__.py"), *line[3:]]
    return line if line[:1] == [str(_SCRIPT)] else None


def _serve(channel: socket.socket) -> tuple[dict, list[int]]:
    """Copy this process whenever that is asked, until nobody can; only copies come back."""
    while True:
        wanted, descriptors, _, _ = socket.recv_fds(channel, _MAX_BYTES, 3)
        if not wanted:
            sys.exit()
        pid = forkserver_copies.copied()
        if pid == 0:
            channel.close()
            return json.loads(wanted), descriptors
        channel.send(str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _stream(number: int, mode: str) -> io.TextIOWrapper:
    # As Python opens them; it has no locale here, whose errors are these.
    errors = "backslashreplace" if number == 2 else "surrogateescape"
    return open(
        number,
        mode,
        encoding="utf-8",
        errors=errors,
        closefd=False,
        buffering=1 if number == 2 or os.isatty(number) else -1,
    )


def _become(wanted: dict, descriptors: list[int]) -> None:
    """Be a process that was just started."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if wanted["has_session"]:
        os.setsid()
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = wanted["arguments"]
    sys.path[0] = wanted["directory"]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        opened = _stream(number, mode)
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


def _main(channel: socket.socket) -> int:
    gc.disable()
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    commands = importlib.import_module(f"{_MODULE}.commands")
    for name in _WANTED:
        importlib.import_module(f"{_MODULE}.{name}")
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}")
    cli = importlib.import_module(f"{_MODULE}.cli")
    gc.freeze()
    _become(*_serve(channel))
    return cli.main()


if __name__ == "__main__":
    sys.exit(_main(socket.socket(fileno=int(sys.argv[1]))))
