"""A template process with all imports of commands, forked for each command that a test starts.

Two thirds of a command's time are imports, and the suites of `acceptance` start hundreds. In each
run of the tests the first start of a subcommand is a real process; later ones are copies. A copy
begins at the first line of `cli.main`, with the same arguments, environment, directory and streams.
It is a child of the test, which waits for it and kills it as usual. Processes that a command starts
itself (a host, a fork server, a worker) are always real.
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
# Commands import these late, and only if they need them.
_LATE_IMPORTS = (
    *("app.service_startup", "app.execution_startup", "kernel_host.host_server"),
    *("agent.llms.chat_completions", "agent.llms.openai_clients", "platforms.web.server"),
)
# Options of `Popen` that cannot be applied to a process that runs already.
_UNSUPPORTED_OPTIONS = ("preexec_fn", "pass_fds", "shell", "executable", "uid", "gid", "gids")
_EXECUTE_CHILD = subprocess.Popen._execute_child
_PARAMETERS = inspect.signature(_EXECUTE_CHILD)


class Template:
    """The template process: started by the first copy, ended with the `with` block."""

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

    def execute_child(self, popen: subprocess.Popen, *positional: object) -> None:
        """Do what `Popen._execute_child` does, with a copy if the program is a command of ours."""
        options = _PARAMETERS.bind(popen, *positional).arguments
        arguments = _command_arguments(options)
        if arguments is None or self._is_first(arguments):
            _EXECUTE_CHILD(popen, *positional)
            return
        pipes = [options[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        request = {
            "arguments": arguments,
            "directory": os.path.abspath(options["cwd"] or os.curdir),
            "environment": dict(os.environ if options["env"] is None else options["env"]),
            "has_session": bool(options["start_new_session"]),
        }
        with self._lock:
            self._channel = self._channel or self._start()
            socket.send_fds(self._channel, [json.dumps(request).encode()], streams)
            popen.pid = int(self._channel.recv(_MAX_BYTES))
        popen._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        popen._close_pipe_fds(*(options[name] for name in ends))

    def _is_first(self, arguments: list[str]) -> bool:
        subcommand = next(filter(str.isidentifier, arguments[1:]), "")
        is_first = subcommand not in self._started
        self._started.add(subcommand)
        return is_first

    def _start(self) -> socket.socket:
        our_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.command_copies", str(child_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
                pass_fds=[child_end.fileno()],
                cwd=_ROOT,
            )
        return our_end


def _command_arguments(options: dict[str, object]) -> list[str] | None:
    """Return the command's `sys.argv`; None for another program, or if it cannot be copied."""
    if isinstance(options["args"], str | os.PathLike) or any(
        options[name] for name in _UNSUPPORTED_OPTIONS
    ):
        return None
    line = [os.fspath(argument) for argument in options["args"]]
    if line[:3] == [sys.executable, "-m", _MODULE]:
        return [str(_ROOT / _MODULE / "__main__.py"), *line[3:]]
    return line if line[:1] == [str(_SCRIPT)] else None


def _serve(channel: socket.socket) -> tuple[dict, list[int]]:
    """Fork for each request until the channel is closed; returns the request, in a copy only."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _MAX_BYTES, 3)
        if not request:
            sys.exit()
        pid = forkserver_copies.fork_for_parent()
        if pid == 0:
            channel.close()
            return json.loads(request), descriptors
        channel.send(str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _open_stream(number: int, mode: str) -> io.TextIOWrapper:
    # The same arguments as Python's own: these are its error handlers without a locale.
    errors = "backslashreplace" if number == 2 else "surrogateescape"
    return open(
        number,
        mode,
        encoding="utf-8",
        errors=errors,
        closefd=False,
        buffering=1 if number == 2 or os.isatty(number) else -1,
    )


def _take_over_request(request: dict, descriptors: list[int]) -> None:
    """Turn this copy into the process that was asked for."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["has_session"]:
        os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    sys.path[0] = request["directory"]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        file = _open_stream(number, mode)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _main(channel: socket.socket) -> int:
    gc.disable()
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    commands = importlib.import_module(f"{_MODULE}.commands")
    for name in _LATE_IMPORTS:
        importlib.import_module(f"{_MODULE}.{name}")
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}")
    cli = importlib.import_module(f"{_MODULE}.cli")
    gc.freeze()
    _take_over_request(*_serve(channel))
    return cli.main()


if __name__ == "__main__":
    sys.exit(_main(socket.socket(fileno=int(sys.argv[1]))))
