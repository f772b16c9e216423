"""Forked children that work on a copy of a session's variables, and report over a pipe.

What code has made may hang there, end Python or say odd things. That costs the child: its parent
knows from the last step which variable it was at.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from . import snapshot_files, variable_pickler

TOO_LATE = "there was no time left for it"
DIED = "it ended Python"
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
class Checked:
    """A record was read back; its first variable is named."""

    name: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text of a cell that defines functions or classes."""

    file_name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Ending:
    """The end of a child.

    Attributes:
        at: the variable that it was at; empty before the first one.
        reason: why it did not come to its end; empty if it did.
        errno: of what the system refused, if that is why.
    """

    at: str = ""
    reason: str = ""
    errno: int = 0


Message: TypeAlias = Step | Tried | Loss | Grouped | Written | Checked | Cell
Report: TypeAlias = Callable[[Message], None]
_KINDS: dict[str, type[Message | Ending]] = {
    kind.__name__: kind for kind in (Step, Tried, Loss, Grouped, Written, Checked, Cell, Ending)
}


def run(work: Callable[[Report], object], receive: Report, deadline: float) -> Ending:
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
        _work(work, writing, nonce)
    os.close(writing)
    is_done = False
    try:
        ending = _receive(reading, nonce, receive, deadline)
        is_done = not ending.reason
        return ending
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        if not is_done:
            # It may still be writing. One that is done is not waited for: it is large.
            os.waitpid(child, 0)


def _receive(pipe: int, nonce: bytes, receive: Report, deadline: float) -> Ending:
    at, until = "", deadline
    data = b""
    # Not select(), which knows no descriptor above 1023: code may have opened that many.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(data) <= _MAX_LINE_BYTES:
        seconds = until - time.monotonic()
        # However much there is to read: it may be without an end.
        if seconds < -_LATE_SECONDS or not poll.poll(max(seconds, 0) * 1000):
            return Ending(at, TOO_LATE)
        if not (chunk := os.read(pipe, _CHUNK_BYTES)):
            break
        *lines, data = (data + chunk).split(b"\n")
        for line in lines:
            try:
                message = _parse(line, nonce)
            except (ValueError, KeyError, TypeError):
                # Another process has written it.
                return Ending(at, DIED)
            if isinstance(message, Ending):
                return dataclasses.replace(message, at=at)
            if isinstance(message, Step):
                at, until = message.name, min(time.monotonic() + message.seconds, deadline)
            else:
                receive(message)
    return Ending(at, DIED)


def _parse(line: bytes, nonce: bytes) -> Message | Ending:
    if not line.startswith(nonce):
        raise ValueError("this is no report")
    kind, fields = json.loads(line[len(nonce) :])
    if kind == Written.__name__:
        return Written(snapshot_files.Record(**fields["record"]))
    return _KINDS[kind](**fields)


def _work(work: Callable[[Report], object], pipe: int, nonce: bytes) -> NoReturn:
    own = os.getpid()

    def report(message: Message | Ending) -> None:
        if os.getpid() != own:
            # Code of a variable has forked: the copy must not go on.
            os._exit(0)
        line = json.dumps([type(message).__name__, dataclasses.asdict(message)])
        view = memoryview(nonce + line.encode() + b"\n")
        while view:
            view = view[os.write(pipe, view) :]

    kept = []
    try:
        kept.append(work(report))
        report(Ending())
    except BaseException as error:
        # Anything: a variable's code may even raise SystemExit.
        number = snapshot_files.refusal(error)
        why = os.strerror(number) if number else variable_pickler.reason(error)
        report(Ending(reason=why, errno=number))
    finally:
        os._exit(0)
