"""Work on untrusted data in a child process with bounded memory and time.

A small picture or file may unpack to gigabytes. Then only the child fails; the kernel and its
variables survive.
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
_LENGTH_BYTES = 8
_READ_BYTES = 1 << 16


def run(work: Callable[[], bytes], *, seconds: float, max_bytes: int) -> bytes:
    """Return the bytes of `work`, called in a child; empty if it fails or exceeds a limit.

    `work` must not import modules: a forked child could wait for an import lock for ever.
    """
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # Code has as many processes and threads as it may have.
        os.close(reader)
        os.close(writer)
        raise
    if not child:
        try:
            _limit_resources(seconds)
            answer = work()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(len(answer).to_bytes(_LENGTH_BYTES, "big") + answer)
        finally:
            # After any error too: the parent notices that the answer is missing or incomplete.
            os._exit(0)
    os.close(writer)
    try:
        answer = _read(reader, seconds, _LENGTH_BYTES + max_bytes)
    finally:
        os.close(reader)
        # If code ignores SIGCHLD or reaps all children, this child is already reaped.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    is_complete = len(answer) == _LENGTH_BYTES + int.from_bytes(answer[:_LENGTH_BYTES], "big")
    return answer[_LENGTH_BYTES:] if is_complete else b""


def _limit_resources(seconds: float) -> None:
    """Bound the memory and time of this process from now on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    # Collection would write to pages shared with the kernel, and so copy them.
    gc.disable()
    with open("/proc/self/statm", encoding="ascii") as file:
        address_bytes, resident_bytes = (
            int(pages) * resource.getpagesize() for pages in file.read().split()[:2]
        )
    # Half of the free memory: the kernel needs some to receive the answer.
    data_limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    extra_bytes = (
        _MEMORY_BYTES
        if data_limit == resource.RLIM_INFINITY
        else max(data_limit - resident_bytes, 0) // 2
    )
    for kind, maximum in (
        (resource.RLIMIT_AS, address_bytes + min(extra_bytes, _MEMORY_BYTES)),
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
        if not (chunk := os.read(descriptor, _READ_BYTES)):
            return bytes(answer)
        answer += chunk
    return b""
