"""Write to standard output and standard error in a thread, so that a slow reader blocks nothing.

A pager that shows its first page leaves the pipe full. A blocking write to it would also stop the
clock that limits running code. The thread writes everything in the order in which it came, and what
waits is bounded.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import io
import os
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeAlias, cast

from interpreter_bot.wording import terminal_words

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MOST_WAITING_BYTES = 64 * 1024 * 1024


Make: TypeAlias = Callable[[], str]
"""Makes a text that takes a while, in the thread. Should it raise, nothing more is written."""


class UnreadError(OSError):
    """More output waits to be read than is held in memory."""


class StdoutWriter:
    """Writes to descriptors in a thread of its own, which lives as long as the process."""

    def __init__(self, most_waiting_bytes: int = _MOST_WAITING_BYTES) -> None:
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: collections.deque[tuple[int, bytes | Make, int]] = collections.deque()
        self._waiting_bytes = 0
        self._fault: OSError | None = None
        self._drained: list[Callable[[], object]] = []
        self._changed = threading.Condition()
        # The end of the process does not wait for this thread: its reader may never come back.
        threading.Thread(target=self._write_for_ever, name="console", daemon=True).start()

    def file(self, standard: TextIO) -> TextIO:
        """Return a file for what goes to a standard stream; writing to it never blocks.

        Writing to it raises what an earlier write met, such as BrokenPipeError, or UnreadError.
        """
        try:
            descriptor = standard.fileno()
        except io.UnsupportedOperation:
            # A replacement in memory, which never blocks.
            return standard
        # Unlike a buffer of Python's own, it keeps nothing that could not be written.
        queue = cast("BinaryIO", _Queue(self, descriptor))
        return QueuedFile(queue, encoding=standard.encoding, write_through=True)

    def put(self, descriptor: int, data: bytes | Make, size_bytes: int) -> None:
        """Queue bytes to be written, or what makes a text, with the bytes that it holds until then.

        Raises:
            UnreadError: too much waits already.
            OSError: an earlier write failed.
        """
        with self._changed:
            self._check()
            if self._waiting_bytes + size_bytes > self._most_waiting_bytes:
                raise UnreadError(terminal_words.UNREAD)
            self._waiting.append((descriptor, data, size_bytes))
            self._waiting_bytes += size_bytes
            self._changed.notify()

    async def drain(self) -> None:
        """Wait until everything is written, as long as its readers take.

        Raises:
            OSError: something could not be written.
        """
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(done.set)

        with self._changed:
            self._check()
            self._drained.append(tell)
            self._changed.notify()
        try:
            await done.wait()
        finally:
            with self._changed:
                if tell in self._drained:
                    self._drained.remove(tell)
        with self._changed:
            self._check()

    def _check(self) -> None:
        if self._fault is not None:
            raise OSError(self._fault.errno, self._fault.strerror)

    def _write_for_ever(self) -> None:
        try:
            while True:
                self._write_next()
        finally:
            # Something made a text and failed: its traceback is shown, and nobody waits for more.
            with self._changed:
                self._fault = OSError(errno.EIO, "What was to be written could not be made.")
                self._waiting.clear()
                self._tell_drained()

    def _write_next(self) -> None:
        descriptor, data, size_bytes = self._next()
        try:
            _write(descriptor, data if isinstance(data, bytes) else data().encode())
        except OSError as error:
            with self._changed:
                self._fault = error
                self._waiting.clear()
        with self._changed:
            self._waiting_bytes -= size_bytes

    def _next(self) -> tuple[int, bytes | Make, int]:
        """Wait for bytes to write; while there are none, signal that all is written."""
        with self._changed:
            while not self._waiting:
                self._tell_drained()
                self._changed.wait()
            return self._waiting.popleft()

    def _tell_drained(self) -> None:
        while self._drained:
            self._drained.pop()()


class _Queue(io.RawIOBase):
    """The queue of bytes for one descriptor."""

    def __init__(self, writer: StdoutWriter, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer, /) -> int:
        taken = bytes(data)
        self._writer.put(self._descriptor, taken, len(taken))
        return len(taken)

    def later(self, make: Make, size_bytes: int) -> None:
        self._writer.put(self._descriptor, make, size_bytes)


class QueuedFile(io.TextIOWrapper):
    """A file that a writer's thread writes."""

    def later(self, make: Make, *, size_bytes: int) -> None:
        """Write, after what was written until now, a text that the thread makes when it is there.

        Raises:
            OSError: see `StdoutWriter.put`.
        """
        cast("_Queue", self.buffer).later(make, size_bytes)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            # The parent process set it so, and may change it back.
            select.select([], [descriptor], [])
