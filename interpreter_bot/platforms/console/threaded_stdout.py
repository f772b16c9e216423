"""Write to standard output and standard error in a thread, so that a slow reader blocks nothing.

A pager that shows its first page leaves the pipe full, and a blocking write to it would also stop
the clock that limits running code. The thread writes everything in order, and the size of what
waits is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, cast

from interpreter_bot.wording import terminal_words

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MAX_WAITING_BYTES: Final = 64 * 1024 * 1024


class UnreadError(OSError):
    """More output waits to be read than the limit in memory."""


class StdoutWriter:
    """Writes to descriptors in a thread of its own, which lives as long as the process."""

    def __init__(self, max_waiting_bytes: int = _MAX_WAITING_BYTES) -> None:
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting = queue.SimpleQueue[tuple[int, bytes] | Callable[[], object]]()
        self._waiting_bytes = 0
        self._fault: OSError | None = None
        self._lock = threading.Lock()
        # Not an executor: the end of the process would wait for it, and a reader may never come
        # back.
        threading.Thread(target=self._write_for_ever, name="console", daemon=True).start()

    def file(self, standard: TextIO) -> TextIO:
        """Return a file in place of a standard stream; writing to it never blocks.

        Writing to it raises the fault of an earlier write, such as BrokenPipeError, or UnreadError.
        """
        try:
            descriptor = standard.fileno()
        except io.UnsupportedOperation:
            # A replacement in memory, which never blocks.
            return standard
        # Unlike Python's own buffer, it drops what could not be written.
        buffer = cast("BinaryIO", _QueueFile(self, descriptor))
        return io.TextIOWrapper(buffer, encoding=standard.encoding, write_through=True)

    def put(self, descriptor: int, data: bytes) -> None:
        """Queue bytes to be written.

        Raises:
            UnreadError: too many bytes wait.
            OSError: an earlier write failed.
        """
        self._raise_fault()
        with self._lock:
            if self._waiting_bytes + len(data) > self._max_waiting_bytes:
                raise UnreadError(terminal_words.OUTPUT_UNREAD)
            self._waiting_bytes += len(data)
        self._waiting.put((descriptor, data))

    async def drain(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: something could not be written.
        """
        self._raise_fault()
        loop, written = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.put(lambda: loop.call_soon_threadsafe(written.set))
        await written.wait()
        self._raise_fault()

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise OSError(self._fault.errno, self._fault.strerror)

    def _write_for_ever(self) -> None:
        while True:
            entry = self._waiting.get()
            if callable(entry):
                # The loop may be closed, and then nobody waits.
                with contextlib.suppress(RuntimeError):
                    entry()
                continue
            descriptor, data = entry
            try:
                if self._fault is None:
                    _write(descriptor, data)
            except OSError as error:
                self._fault = error
            with self._lock:
                self._waiting_bytes -= len(data)


class _QueueFile(io.RawIOBase):
    """The queue of bytes for one descriptor."""

    def __init__(self, writer: StdoutWriter, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer, /) -> int:
        copy = bytes(data)
        self._writer.put(self._descriptor, copy)
        return len(copy)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            # The parent process made it non-blocking, and may change it back.
            select.select([], [descriptor], [])
