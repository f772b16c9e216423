"""Work on what may be hostile, in a child process whose memory and time are bounded.

A few bytes of a picture or of a file may unpack to gigabytes. Where they do, the child ends, and
the kernel and its variables survive.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable

_MEMORY_BYTES = 500 * 1024 * 1024
_HEAD_BYTES = 8
_PIECE_BYTES = 1 << 16


def run(work: Callable[[], bytes], *, seconds: float, max_bytes: int) -> bytes:
    """Return what work returns; nothing if it fails, or takes too much memory or time.

    Args:
        work: is called in the child. What it imports is to be imported before, as an import there
            could wait for a lock for ever.
        seconds: that it may take.
        most_bytes: that it may return.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            _limit_resources(seconds)
            answer = work()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(len(answer).to_bytes(_HEAD_BYTES, "big") + answer)
        finally:
            # Any error: the parent reads too little, or nothing.
            os._exit(0)
    os.close(writing)
    try:
        answer = _read(reading, seconds, _HEAD_BYTES + max_bytes)
    finally:
        os.close(reading)
        # Code may ignore its children, or wait for all there are: this one is gone then.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    is_whole = len(answer) == _HEAD_BYTES + int.from_bytes(answer[:_HEAD_BYTES], "big")
    return answer[_HEAD_BYTES:] if is_whole else b""


def _limit_resources(seconds: float) -> None:
    """Bound the memory and time of this process from now on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    # It would touch all that is shared with the kernel, which were copied then.
    gc.disable()
    with open("/proc/self/statm", encoding="ascii") as file:
        size, resident = (int(pages) * resource.getpagesize() for pages in file.read().split()[:2])
    # Of what the kernel's variables leave, half: its own share is needed to take the answer.
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    room = _MEMORY_BYTES if data == resource.RLIM_INFINITY else max(data - resident, 0) // 2
    for kind, maximum in (
        (resource.RLIMIT_AS, size + min(room, _MEMORY_BYTES)),
        (resource.RLIMIT_CPU, int(seconds)),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        limit = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(kind, (limit, limit))


def _read(descriptor: int, seconds: float, max_bytes: int) -> bytes:
    """Read until the end, a limit, or the timeout."""
    deadline = time.monotonic() + seconds
    answer = bytearray()
    # Not select(), which knows no descriptor above 1023: code may have opened that many.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(answer) <= max_bytes:
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            return b""
        if not (part := os.read(descriptor, _PIECE_BYTES)):
            return bytes(answer)
        answer += part
    return b""
