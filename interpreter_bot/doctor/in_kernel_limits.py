"""Checks of a kernel's limits: sent to it as source by `trial_kernels`, and run there.

As in `in_kernel_walls`, every check returns (what exceeded the limit, what was seen), and needs the
standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from typing import Any

Told = dict[str, Any]
Seen = tuple[list[str], str]

_MIB = 1024 * 1024
_ALLOWED = "allowed"
_SPIN_SECONDS = 0.5
_NICENESS = 10


def _answer(action: Callable[[], object]) -> str:
    """Return the name of the error that an action fails with."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "error")
    return _ALLOWED


def _await(children: list[int]) -> None:
    for pid in children:
        # Another handler of SIGCHLD in this process may have been faster.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def process_memory(told: Told) -> Seen:
    """Ask for more memory than one process may have."""
    size = told["memory_bytes"] + 128 * _MIB
    try:
        bytearray(size)
    except MemoryError:
        return [], f"{size // _MIB} MiB: MemoryError"
    return [f"{size // _MIB} MiB were given to one process"], ""


def processes(told: Told) -> Seen:
    """Fork until it is refused."""
    children: list[int] = []

    def fork_on() -> None:
        while len(children) < 2 * told["processes"]:
            if (pid := os.fork()) == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)

    answer = _answer(fork_on)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    _await(children)
    seen = f"fork {len(children) + 1}: {answer}"
    return ([] if answer == "EAGAIN" else [seen]), seen


def cpu(told: Told) -> Seen:
    """Keep more cores busy than the session may use, where the machine has them."""
    started, before = time.monotonic(), os.times()
    children = []
    for _ in range(told["spinners"]):
        if (pid := os.fork()) == 0:
            while time.monotonic() < started + _SPIN_SECONDS:
                pass
            os._exit(0)
        children.append(pid)
    _await(children)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    cores = used / (time.monotonic() - started)
    seen = f"{len(children)} busy processes got {cores:.1f} cores"
    wrong = [seen] if cores > 1.5 * told["cpu_cores"] else []
    if told["is_by_affinity"]:
        everything = range(told["processors"])
        if _answer(lambda: os.sched_setaffinity(0, everything)) == _ALLOWED:
            wrong.append("processors can be chosen freely")
    return wrong, seen


def priority(_told: Told) -> Seen:
    """Ask for an earlier place at the processors than behind the bot."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    answer = _answer(lambda: os.setpriority(os.PRIO_PROCESS, 0, nice - 1))
    seen = f"niceness {nice}, a lower one: {answer}"
    return ([] if nice >= _NICENESS and answer != _ALLOWED else [seen]), seen


def file_size(told: Told) -> Seen:
    """Create a sparse file larger than allowed."""
    path = "/tmp/doctor"  # noqa: S108 - in a tmpfs that each kernel has to itself
    with open(path, "wb") as file:
        answer = _answer(lambda: os.ftruncate(file.fileno(), told["file_bytes"] + 1))
    os.unlink(path)
    seen = f"{told['file_bytes'] // _MIB} MiB and a byte: {answer}"
    return ([] if answer == "EFBIG" else [seen]), seen


def open_files(told: Told) -> Seen:
    """Open files until it is refused."""
    opened: list[int] = []

    def open_on() -> None:
        while len(opened) <= told["open_files"]:
            opened.append(os.open("/dev/null", os.O_RDONLY))

    answer = _answer(open_on)
    for descriptor in opened:
        os.close(descriptor)
    seen = f"file {len(opened) + 1} beside those of the kernel: {answer}"
    return ([] if answer == "EMFILE" else [seen]), seen


def temporary(told: Told) -> Seen:
    """Fill the tmpfs directories, which are memory."""
    answers = {place: _fill(place, told) for place in ("/tmp", "/dev/shm")}  # noqa: S108
    wrong = [f"{p}: {n}" for p, n in answers.items() if n != "ENOSPC"]
    size = told["temporary_bytes"] // _MIB
    return wrong, f"more than {size} MiB: " + ", ".join(f"{p} {n}" for p, n in answers.items())


def _fill(place: str, told: Told) -> str:
    made: list[str] = []
    chunk = bytes(min(told["file_bytes"], told["temporary_bytes"]))

    def write_on() -> None:
        while len(made) * len(chunk) <= told["temporary_bytes"]:
            made.append(f"{place}/doctor-{len(made)}")
            with open(made[-1], "wb") as file:
                file.write(chunk)

    answer = _answer(write_on)
    for path in made:
        os.unlink(path)
    return answer


CHECKS = (process_memory, processes, cpu, priority, file_size, open_files, temporary)
