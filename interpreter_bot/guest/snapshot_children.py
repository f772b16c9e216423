"""Forked processes that save variables: a leader, and its children, which report to it.

The leader is forked from the kernel with all variables, so that its failures and delays do not
affect the kernel. Objects of code may hang, kill Python or misbehave when they are pickled, so only
children of the leader touch them. A child reports each variable over a pipe before it touches it,
so that the leader knows the variable at which the child died or hung.
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
# Each round kills the children of processes killed before. A fork storm might never end.
_MAX_KILL_ROUNDS = 10
_NONCE_BYTES = 8
_GRACE_SECONDS = 1.0
_CHUNK_BYTES = 64 * 1024
# Longer than any message, even one with the text of a cell.
_MAX_LINE_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Step:
    """A child starts to work on a variable, with this time limit."""

    name: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Trial:
    """A variable can be pickled, without the missing parts."""

    name: str
    missing_parts: list[str]


@dataclasses.dataclass(frozen=True)
class Loss:
    """A variable cannot be saved."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Grouping:
    """All variables were tried; variables that share objects are in one group."""

    groups: list[list[str]]


@dataclasses.dataclass(frozen=True)
class WrittenGroup:
    """A group is written."""

    record: snapshot_files.Record


@dataclasses.dataclass(frozen=True)
class CellText:
    """Text of a cell that defines functions or classes."""

    file_name: str
    text: str


@dataclasses.dataclass(frozen=True)
class CheckedRecord:
    """The record of these variables was read back successfully."""

    names: list[str]


@dataclasses.dataclass(frozen=True)
class ChildReport:
    """How a child ended.

    Attributes:
        name: of the variable at which it ended; empty if it reached none.
        reason: why it did not finish; empty if it did.
        errno: error number if the system refused disk space or a descriptor.
    """

    name: str = ""
    reason: str = ""
    errno: int = 0


Message: TypeAlias = Step | Trial | Loss | Grouping | WrittenGroup | CellText | CheckedRecord
MessageHandler: TypeAlias = Callable[[Message], None]
_KINDS: dict[str, type[Message | ChildReport]] = {
    kind.__name__: kind
    for kind in (Step, Trial, Loss, Grouping, WrittenGroup, CellText, CheckedRecord, ChildReport)
}


# The process that the kernel forks.


def start_leader(
    work: Callable[[], None], on_failure: Callable[[BaseException], None], seconds: float
) -> int:
    """Fork the leader, which works on a copy of all variables.

    Args:
        work: called in the leader.
        on_failure: called in the leader with an exception of `work`, after closing descriptors.
        seconds: after which the leader is killed.

    Returns:
        The pid, for `kill_leader`; its process group has the same number.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            _leave_kernel(seconds)
            work()
        except Exception as error:
            # Any exception, because the bot must be told. Code may have used up all descriptors.
            os.closerange(3, _MAX_DESCRIPTORS)
            on_failure(error)
        finally:
            _end_with_descendants()
    with contextlib.suppress(OSError):
        # Both processes set the group, as either may run first. The child may have ended already.
        os.setpgid(child, child)
    return child


def kill_leader(child: int) -> None:
    """Kill the leader and its children, without waiting for their end."""
    # Until the leader is reaped, no other process can have its pid or group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def has_leader_ended(child: int) -> bool:
    """Return whether a killed leader has ended, and reap it."""
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        # Code may have reaped the leader.
        return True


def _leave_kernel(seconds: float) -> None:
    """Detach from the kernel: its streams, signals and process group."""
    # No garbage collection: finalizers, which may write to files, must run only in the kernel.
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    # The session's handler might reap the leader's children; so would Linux if it is ignored.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Kills this process even if a library never returns to Python.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.stdout = sys.stderr = io.StringIO()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    if null > 2:
        os.close(null)
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):
        # If this fails, orphans that leave the process group are not killed.
        syscalls.adopt_orphans()


def _end_with_descendants() -> NoReturn:
    """End this process and all processes that variables started while they were saved."""
    try:
        children_file = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
        for _ in range(_MAX_KILL_ROUNDS):
            # In later rounds, these are orphans of killed processes.
            children = children_file.read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            for _ in children:
                os.waitpid(-1, 0)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


# The leader's children.


def run_in_child(
    work: Callable[[MessageHandler], object], receive: MessageHandler, deadline: float
) -> ChildReport:
    """Run work in a child; kill the child if a step, or all work, takes too long.

    Args:
        work: called in the child; its result is kept alive until the child ends.
        receive: called in this process with all messages of the child, except for steps.
        deadline: of all work.
    """
    reader, writer = os.pipe()
    # Code of a variable may write to any descriptor, so messages begin with a nonce.
    nonce = os.urandom(_NONCE_BYTES).hex().encode()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # Ends the child if the leader is killed.
        signal.setitimer(signal.ITIMER_REAL, deadline - time.monotonic() + _GRACE_SECONDS)
        _run_work(work, writer, nonce)
    os.close(writer)
    has_succeeded = False
    try:
        report = _receive_messages(reader, nonce, receive, deadline)
        has_succeeded = not report.reason
        return report
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        if not has_succeeded:
            # Wait, because the child may still be writing. After success it is not, and the end of
            # a large process takes long.
            os.waitpid(child, 0)


def _receive_messages(
    pipe: int, nonce: bytes, receive: MessageHandler, deadline: float
) -> ChildReport:
    name, step_deadline = "", deadline
    incomplete = b""
    # Not select(), which knows no descriptor above 1023: code may have opened that many.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(incomplete) <= _MAX_LINE_BYTES:
        seconds = step_deadline - time.monotonic()
        # Check the deadline, even if the child writes without a pause.
        if seconds < -_GRACE_SECONDS or not poll.poll(max(seconds, 0) * 1000):
            return ChildReport(name, TOO_LATE)
        if not (chunk := os.read(pipe, _CHUNK_BYTES)):
            break
        *lines, incomplete = (incomplete + chunk).split(b"\n")
        for line in lines:
            try:
                message = _parse(line, nonce)
            except (ValueError, KeyError, TypeError):
                # Other code has written to the pipe.
                return ChildReport(name, DIED)
            if isinstance(message, ChildReport):
                return dataclasses.replace(message, name=name)
            if isinstance(message, Step):
                name, step_deadline = (
                    message.name,
                    min(time.monotonic() + message.seconds, deadline),
                )
            else:
                receive(message)
    return ChildReport(name, DIED)


def _parse(line: bytes, nonce: bytes) -> Message | ChildReport:
    if not line.startswith(nonce):
        raise ValueError("this is not a message of the child")
    kind, fields = json.loads(line[len(nonce) :])
    if kind == WrittenGroup.__name__:
        return WrittenGroup(snapshot_files.Record(**fields["record"]))
    return _KINDS[kind](**fields)


def _run_work(work: Callable[[MessageHandler], object], pipe: int, nonce: bytes) -> NoReturn:
    own_pid = os.getpid()

    def report(message: Message | ChildReport) -> None:
        if os.getpid() != own_pid:
            # Code of a variable has forked this process. The fork must not go on.
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
        # Any exception: code of a variable may even raise SystemExit.
        error_number = snapshot_files.find_refusal_errno(error)
        reason = (
            os.strerror(error_number) if error_number else variable_pickler.describe_error(error)
        )
        report(ChildReport(reason=reason, errno=error_number))
    finally:
        os._exit(0)
