"""Checks of a kernel's limits: run in it, after `in_kernel_walls` and in the same way."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot.doctor.in_kernel_walls import ALLOWED, Seen, Told, attempt

_MIB = 1024 * 1024
_SPIN_SECONDS = 0.5
_NICENESS = 10


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
    """Fork until it is refused; where the bot counts the processes, that is tried from outside."""
    if told["is_counted_by_bot"]:
        return [], "counted by the bot's watchdog"
    children: list[int] = []

    def fork_on() -> None:
        while len(children) < 2 * told["processes"]:
            if (pid := os.fork()) == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)

    result = attempt(fork_on)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    _await(children)
    seen = f"fork {len(children) + 1}: {result}"
    return ([] if result == "EAGAIN" else [seen]), seen


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
        if attempt(lambda: os.sched_setaffinity(0, everything)) == ALLOWED:
            wrong.append("processors can be chosen freely")
    return wrong, seen


def priority(_told: Told) -> Seen:
    """Ask for an earlier place at the processors than behind the bot."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    result = attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, nice - 1))
    seen = f"niceness {nice}, a lower one: {result}"
    return ([] if nice >= _NICENESS and result != ALLOWED else [seen]), seen


def file_size(told: Told) -> Seen:
    """Create a sparse file larger than allowed."""
    path = os.path.join(tempfile.gettempdir(), "doctor")
    with open(path, "wb") as file:
        result = attempt(lambda: os.ftruncate(file.fileno(), told["file_bytes"] + 1))
    os.unlink(path)
    seen = f"{told['file_bytes'] // _MIB} MiB and a byte: {result}"
    return ([] if result == "EFBIG" else [seen]), seen


def open_files(told: Told) -> Seen:
    """Open files until it is refused."""
    opened: list[int] = []

    def open_on() -> None:
        while len(opened) <= told["open_files"]:
            opened.append(os.open("/dev/null", os.O_RDONLY))

    result = attempt(open_on)
    for descriptor in opened:
        os.close(descriptor)
    seen = f"file {len(opened) + 1} beside those of the kernel: {result}"
    return ([] if result == "EMFILE" else [seen]), seen


CHECKS = (process_memory, processes, cpu, priority, file_size, open_files)
