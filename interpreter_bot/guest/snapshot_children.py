"""Forked children that work on a copy of a session's variables, and tell what they come to.

What code has made may hang there, end Python or say odd things. That costs the child: its parent
knows by what it told last which variable it was at.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from . import variable_pickler

_MARK_BYTES = 8
_LATE_SECONDS = 1.0
# More than the text of a cell.
_MOST_MESSAGE_BYTES = 16 * 1024 * 1024

Message = dict[str, Any]
Tell = Callable[[Message], None]
# What it returns is kept until the child ends, without ending any of it.
Stage = Callable[[Tell], object]


class Told(NamedTuple):
    """What a child told in one stage.

    Attributes:
        messages: as they came.
        seconds: until the last one; in the first stage, with what it takes to fork.
        longest_seconds: of that, the most that passed before one of them.
        is_done: whether it came to the end of the stage.
        is_late: whether it was ended because it took too long.
        error: what the stage raised, in words.
        errno: of that, if the system refused something.
    """

    messages: list[Message]
    seconds: float = 0.0
    longest_seconds: float = 0.0
    is_done: bool = False
    is_late: bool = False
    error: str = ""
    errno: int | None = None

    @property
    def at(self) -> str:
        """What it began last; empty before anything."""
        return next((one["at"] for one in reversed(self.messages) if "at" in one), "")


def ask(*stages: tuple[Stage, float]) -> list[Told]:
    """Run stages of work in one child, each with the seconds that it may take.

    A child that is late is killed, also where it told with what it is at how many ``"seconds"`` it
    may take until it tells something else. One whose pipe somebody else writes to counts as dead.
    """
    told, tell = os.pipe()
    mark = os.urandom(_MARK_BYTES).hex().encode()
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(told)
        # Where its parent is ended, too.
        signal.setitimer(signal.ITIMER_REAL, sum(seconds for _, seconds in stages) + _LATE_SECONDS)
        _work([work for work, _ in stages], tell, mark)
    os.close(tell)
    data = bytearray()
    answers: list[Told] = []
    try:
        for _, seconds in stages:
            is_there = not answers or answers[-1].is_done
            answer = _read_stage(told, data, mark, begun, seconds) if is_there else Told([])
            answers.append(answer)
            begun = time.monotonic()
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
    if not answers[-1].is_done:
        # It may still be in the middle of writing. One that is done is not waited for: it is large.
        os.waitpid(child, 0)
    return answers


def _read_stage(told: int, data: bytearray, mark: bytes, begun: float, seconds: float) -> Told:
    """Read messages up to the end of a stage, as long as there are any in time.

    Args:
        told: the pipe they come through.
        data: what was read of it already; what is left belongs to the next stage.
        mark: what each message begins with.
        begun: when the stage was.
        seconds: that it may take.
    """
    heard, longest = begun, 0.0
    until = deadline = begun + seconds
    messages: list[Message] = []
    ending: dict[str, Any] = {}
    # Not select(), which knows no descriptor above 1023: code may have opened that many.
    poll = select.poll()
    poll.register(told, select.POLLIN)
    while not ending:
        if time.monotonic() > deadline + _LATE_SECONDS:
            # However much there still is to be read: it may be without an end.
            ending = {"is_late": True}
        elif (size := data.find(b"\n") + 1) > 0:
            if not data.startswith(mark):
                break
            message = json.loads(data[len(mark) : size])
            del data[:size]
            now = time.monotonic()
            longest, heard = max(longest, now - heard), now
            until = min(heard + message.get("seconds", seconds), deadline)
            if "ending" in message:
                ending = message["ending"]
            else:
                messages.append(message)
        elif len(data) > _MOST_MESSAGE_BYTES:
            break
        elif not poll.poll(max(until - time.monotonic(), 0) * 1000):
            ending = {"is_late": True}
        elif chunk := os.read(told, 1 << 16):
            data += chunk
        else:
            break
    return Told(messages, heard - begun, longest, **ending)


def _work(stages: Iterable[Stage], tell: int, mark: bytes) -> NoReturn:
    own = os.getpid()
    with open(tell, "wb", closefd=False) as pipe:

        def tell_parent(message: Message) -> None:
            end_copy(own)
            pipe.write(mark + json.dumps(message).encode() + b"\n")
            pipe.flush()

        kept = []
        try:
            for work in stages:
                kept.append(work(tell_parent))
                tell_parent({"ending": {"is_done": True}})
        except Exception as error:
            # Nothing of a variable's own, which is caught where that is written or read.
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number else variable_pickler.reason(error)
            tell_parent({"ending": {"error": why, "errno": number}})
        finally:
            os._exit(0)


def end_copy(process: int) -> None:
    """End this process if it is not the one that is meant: code that it ran has forked it."""
    if os.getpid() != process:
        os._exit(0)
