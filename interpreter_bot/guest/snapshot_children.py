"""Forked processes that save variables: one that leads, and its children, which report to it.

The first process is forked from the kernel and has all variables as they were then: what it does
wrong, or takes long for, costs the kernel nothing. What code has made may hang there, end Python or
answer oddly, so it is touched only in children of that process. Each reports over a pipe which
variable it is at; if it ends or hangs there, the variable is known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import json
import os
import pathlib
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from . import snapshot_files, syscalls, variable_pickler

TOO_LATE = "there was no time left for it"
DIED = "it ended Python"
_NICENESS = 5
_MAX_DESCRIPTORS = 1 << 16
# Processes that started each other; a storm of forks might never end.
_MAX_DESCENTS = 10
_NONCE_BYTES = 8
_LATE_SECONDS = 1.0
_CHUNK_BYTES = 64 * 1024
# More than the text of a cell.
_MAX_LINE_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Step:
    """A child comes to a variable, for which it has so many seconds."""

    name: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Tried:
    """A variable can be pickled, except for some parts of it."""

    name: str
    missing: list[str]


@dataclasses.dataclass(frozen=True)
class Loss:
    """A variable is lost."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Grouped:
    """All variables are tried: those that share objects are in one group."""

    groups: list[list[str]]


@dataclasses.dataclass(frozen=True)
class Written:
    """A group is written."""

    record: snapshot_files.Record


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text of a cell that defines functions or classes."""

    file_name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Checked:
    """The record with these variables was read back."""

    names: list[str]


@dataclasses.dataclass(frozen=True)
class ChildReport:
    """How a child ended.

    Attributes:
        at: the variable that it was at; empty before the first one.
        reason: why it did not finish; empty if it did.
        errno: of what the system refused, if that is why.
    """

    at: str = ""
    reason: str = ""
    errno: int = 0


Message: TypeAlias = Step | Tried | Loss | Grouped | Written | Cell | Checked
Report: TypeAlias = Callable[[Message], None]
_KINDS: dict[str, type[Message | ChildReport]] = {
    kind.__name__: kind
    for kind in (Step, Tried, Loss, Grouped, Written, Cell, Checked, ChildReport)
}


# The process that the kernel forks.


def begin(
    work: Callable[[], None], on_failure: Callable[[BaseException], None], seconds: float
) -> int:
    """Fork a process that works on a copy of all variables, with all that it starts.

    Args:
        work: is called there.
        on_failure: is called there with what `work` raised, when every descriptor is free again.
        seconds: after which the process is ended.

    Returns:
        Its number, for `end`; it leads a group of processes.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            _leave_kernel(seconds)
            work()
        except Exception as error:
            # Whatever it is, the bot has to learn it. Code may have taken all descriptors.
            os.closerange(3, _MAX_DESCRIPTORS)
            on_failure(error)
        finally:
            _end_with_descendants()
    with contextlib.suppress(OSError):
        # Whichever of the two comes first; the child may be gone already.
        os.setpgid(child, child)
    return child


def end(child: int) -> None:
    """End what `begin` began, whether it is done or not, without waiting until it is gone."""
    # Its number and its group are its own until it is waited for.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def is_gone(child: int) -> bool:
    """Return whether a process that was ended is gone; if so, nothing is left of it."""
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        # Code may have waited for all children there are.
        return True


def _leave_kernel(seconds: float) -> None:
    """Leave everything that belongs to the kernel; its streams lead to its sockets."""
    # Garbage is the kernel's to end: a file would be written by both.
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    # The session's may wait for all children there are, or let none be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Ends this process even if a library never returns to Python.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.stdout = sys.stderr = io.StringIO()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    if nowhere > 2:
        os.close(nowhere)
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        # If the system has no such thing, what leaves the group of processes is not ended.
        syscalls.adopt_orphans()


def _end_with_descendants() -> NoReturn:
    """End this process with what variables started while they were saved."""
    try:
        listing = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
        for _ in range(_MAX_DESCENTS):
            # Those that the last ones left behind.
            children = listing.read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            for _ in children:
                os.waitpid(-1, 0)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


# Its children.


def run_in_child(work: Callable[[Report], object], receive: Report, deadline: float) -> ChildReport:
    """Run work in a child; end the child when a step, or all of it, takes too long.

    Args:
        work: is called in the child; what it returns is kept until the child ends.
        receive: is called here with all that the child reports, except for its steps.
        deadline: of all work.
    """
    reading, writing = os.pipe()
    # Code of a variable may write to any descriptor.
    nonce = os.urandom(_NONCE_BYTES).hex().encode()
    child = os.fork()
    if child == 0:
        os.close(reading)
        # In case its parent is ended, too.
        signal.setitimer(signal.ITIMER_REAL, deadline - time.monotonic() + _LATE_SECONDS)
        _run_work(work, writing, nonce)
    os.close(writing)
    is_done = False
    try:
        report = _receive_all(reading, nonce, receive, deadline)
        is_done = not report.reason
        return report
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        if not is_done:
            # It may still be writing. One that is done is not waited for: it is large.
            os.waitpid(child, 0)


def _receive_all(pipe: int, nonce: bytes, receive: Report, deadline: float) -> ChildReport:
    at, until = "", deadline
    data = b""
    # Not select(), which knows no descriptor above 1023: code may have opened that many.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(data) <= _MAX_LINE_BYTES:
        seconds = until - time.monotonic()
        # However much there is to read: it may be without an end.
        if seconds < -_LATE_SECONDS or not poll.poll(max(seconds, 0) * 1000):
            return ChildReport(at, TOO_LATE)
        if not (chunk := os.read(pipe, _CHUNK_BYTES)):
            break
        *lines, data = (data + chunk).split(b"\n")
        for line in lines:
            try:
                message = _parse(line, nonce)
            except (ValueError, KeyError, TypeError):
                # Another process has written it.
                return ChildReport(at, DIED)
            if isinstance(message, ChildReport):
                return dataclasses.replace(message, at=at)
            if isinstance(message, Step):
                at, until = message.name, min(time.monotonic() + message.seconds, deadline)
            else:
                receive(message)
    return ChildReport(at, DIED)


def _parse(line: bytes, nonce: bytes) -> Message | ChildReport:
    if not line.startswith(nonce):
        raise ValueError("this is no report")
    kind, fields = json.loads(line[len(nonce) :])
    if kind == Written.__name__:
        return Written(snapshot_files.Record(**fields["record"]))
    return _KINDS[kind](**fields)


def _run_work(work: Callable[[Report], object], pipe: int, nonce: bytes) -> NoReturn:
    own = os.getpid()

    def report(message: Message | ChildReport) -> None:
        if os.getpid() != own:
            # Code of a variable has forked: the copy must not go on.
            os._exit(0)
        line = json.dumps([type(message).__name__, dataclasses.asdict(message)])
        view = memoryview(nonce + line.encode() + b"\n")
        while view:
            view = view[os.write(pipe, view) :]

    keep_alive = []
    try:
        keep_alive.append(work(report))
        report(ChildReport())
    except BaseException as error:
        # Anything: a variable's code may even raise SystemExit.
        number = snapshot_files.refusal(error)
        why = os.strerror(number) if number else variable_pickler.reason(error)
        report(ChildReport(reason=why, errno=number))
    finally:
        os._exit(0)
