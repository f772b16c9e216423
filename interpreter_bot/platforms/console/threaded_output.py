"""Writes to standard output and standard error in a thread, so that a slow reader blocks nothing.

A pager that shows its first page leaves the pipe full, and a blocking write would also stop the
clock that limits running code. The thread writes everything in order, from a queue of bounded size.
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

_MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024


class OutputQueueFullError(OSError):
    """Too much output waits for its reader."""


class OutputWriter:
    """Writes to descriptors in a thread, which lives as long as the process."""

    def __init__(self, max_queued_bytes: int = _MAX_QUEUED_BYTES) -> None:
        self._max_queued_bytes = max_queued_bytes
        self._queue = queue.SimpleQueue[tuple[int, bytes] | Callable[[], object]]()
        self._queued_bytes = 0
        self._error: OSError | None = None
        self._lock = threading.Lock()
        # Not an executor: at exit the process would wait for it, perhaps for ever.
        threading.Thread(target=self._write_queued, name="console", daemon=True).start()

    def file(self, standard: TextIO) -> TextIO:
        """Return a file in place of a standard stream; writing to it never blocks.

        Writing raises the error of an earlier write, such as BrokenPipeError, or
        OutputQueueFullError.
        """
        try:
            descriptor = standard.fileno()
        except io.UnsupportedOperation:
            # A replacement in memory, which never blocks.
            return standard
        # After an error, Python's own buffer would try again to write; this one drops the bytes.
        buffer = cast("BinaryIO", _QueueFile(self, descriptor))
        return io.TextIOWrapper(buffer, encoding=standard.encoding, write_through=True)

    def put(self, descriptor: int, data: bytes) -> None:
        """Queue bytes to be written.

        Raises:
            OutputQueueFullError: too many bytes wait.
            OSError: an earlier write failed.
        """
        self._raise_error()
        with self._lock:
            if self._queued_bytes + len(data) > self._max_queued_bytes:
                raise OutputQueueFullError(terminal_words.OUTPUT_UNREAD)
            self._queued_bytes += len(data)
        self._queue.put((descriptor, data))

    async def drain(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: something could not be written.
        """
        self._raise_error()
        loop, is_written = asyncio.get_running_loop(), asyncio.Event()
        self._queue.put(lambda: loop.call_soon_threadsafe(is_written.set))
        await is_written.wait()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror)

    def _write_queued(self) -> None:
        while True:
            entry = self._queue.get()
            if callable(entry):
                # The loop may be closed, and then nobody waits.
                with contextlib.suppress(RuntimeError):
                    entry()
                continue
            descriptor, data = entry
            try:
                if self._error is None:
                    _write(descriptor, data)
            except OSError as error:
                self._error = error
            with self._lock:
                self._queued_bytes -= len(data)


class _QueueFile(io.RawIOBase):
    """The queue of bytes for one descriptor."""

    def __init__(self, writer: OutputWriter, descriptor: int) -> None:
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
