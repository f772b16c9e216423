"""Standard output and error of a kernel: in order, limited, and sent for the running execution.

Both streams, and a pipe behind each of the descriptors 1 and 2, lead to one `Printer`, which sends
text in chunks. All text belongs to the running execution, even text of a thread or program that an
earlier execution started. Between executions, text waits for the next one.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import fcntl
import functools
import io
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

Parent = dict[str, Any]
Publish = Callable[[dict[str, Any], Parent], None]

PAUSE_SECONDS = 0.05
"""Time for which printed text waits for more text."""

_NAMES = ("stdout", "stderr")
_MAX_CHUNK_CHARACTERS = 32 * 1024
_MAX_TAIL_BYTES = 32 * 1024
# Divides the length of a tail that is sent before the end of the output.
_EARLY_TAIL_DIVISOR = 8
# Stands for the number of missing characters, which is known only at the end of the output.
_UNKNOWN_CUT = -1
_MAX_WAITING_BYTES = 64 * 1024
# Each change between the two streams costs a message. After this many changes, the text of each
# stream is joined before it is sent, which loses their mutual order.
_MAX_STREAM_CHANGES = 2000
_PIPE_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_SET_PIPE_SIZE = 1031
now = time.monotonic
"""The clock; a reference to it, as code (often in tests) may replace `time.monotonic`."""


class _StreamOutput:
    """One stream's output of an execution, limited to a head and a tail.

    The head is sent at once. If it is full, the latest text is kept as the tail.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._max_tail_bytes = min(_MAX_TAIL_BYTES, limit_bytes // 8)
        # For the tail at the end, and for shorter tails before text of the other stream.
        self._remaining_tail_bytes = 2 * self._max_tail_bytes
        self._remaining_head_bytes = limit_bytes - self._remaining_tail_bytes
        self._tail: collections.deque[str] = collections.deque()
        self._tail_bytes = 0
        self._cut_characters = 0
        self.is_cut = False
        """Whether the head has just become full, so that a notice must follow."""

    def take_head(self, text: str) -> str:
        """Return the part of a text that fits into the head; the rest is kept for the tail."""
        if not self._tail and not self._cut_characters:
            size = _measure_bytes(text)
            if size <= self._remaining_head_bytes:
                self._remaining_head_bytes -= size
                return text
            head = text[
                : self._remaining_head_bytes if text.isascii() else self._remaining_head_bytes // 4
            ]
            self.is_cut = self.is_cut or self._remaining_head_bytes > 0
            self._remaining_head_bytes = 0
            self._add_to_tail(text, len(head))
            return head
        self._add_to_tail(text, 0)
        return ""

    def _add_to_tail(self, text: str, start: int) -> None:
        max_characters = self._max_tail_bytes if text.isascii() else self._max_tail_bytes // 4
        tail_start = max(start, len(text) - max_characters)
        self._cut_characters += tail_start - start
        text = text[tail_start:]
        self._tail.append(text)
        self._tail_bytes += _measure_bytes(text)
        while self._tail_bytes > self._max_tail_bytes:
            dropped = self._tail.popleft()
            excess = self._tail_bytes - self._max_tail_bytes
            if dropped.isascii() and len(dropped) > excess:
                self._tail.appendleft(dropped[excess:])
                dropped = dropped[:excess]
            self._tail_bytes -= _measure_bytes(dropped)
            self._cut_characters += len(dropped)

    def take_tail(self, *, is_last: bool) -> tuple[str, int]:
        """Return the tail, and the number of dropped characters before it.

        Unless it `is_last`, the tail is short, and soon empty.
        """
        max_bytes = self._max_tail_bytes // (1 if is_last else _EARLY_TAIL_DIVISOR)
        if not self._tail or not (
            is_last or self._remaining_tail_bytes >= self._max_tail_bytes + max_bytes
        ):
            return "", 0
        text, cut_characters = "".join(self._tail), self._cut_characters
        max_bytes = max_bytes if text.isascii() else max_bytes // 4
        if len(text) > max_bytes:
            text, cut_characters = (
                text[len(text) - max_bytes :],
                cut_characters + len(text) - max_bytes,
            )
        if cut_characters and 0 <= (start := text.find("\n")) < len(text) - 1:
            text, cut_characters = text[start + 1 :], cut_characters + start + 1
        self._remaining_tail_bytes -= _measure_bytes(text)
        self._tail.clear()
        self._tail_bytes = self._cut_characters = 0
        return text, cut_characters


def _measure_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Printer:
    """Sends printed text, in order, as output of the running execution."""

    def __init__(self, publish: Publish, push_soon: Callable[[], None], limit_bytes: int) -> None:
        """Create the streams and pipes; text waits until an execution begins.

        Args:
            publish: sends the content of a `stream` message for an execution.
            push_soon: schedules a call of `push`.
            limit_bytes: of each stream and execution.
        """
        self._publish = publish
        self._push_soon = push_soon
        self._limit_bytes = limit_bytes
        self.owner_pid = os.getpid()
        # Reentrant, because a signal handler may print, or wait for a program, during a read.
        self._lock = threading.RLock()
        self._is_reading = False
        self._parent: Parent | None = None
        self._muted_thread = 0
        self._pending_texts: list[tuple[str, str, int]] = []
        self._size = 0
        self._stream_changes = 0
        self._send_time = 0.0
        self._outputs = {name: _StreamOutput(_MAX_WAITING_BYTES) for name in _NAMES}
        self._epoll = select.epoll()
        self.streams = tuple(
            Stream(self, name, descriptor) for descriptor, name in enumerate(_NAMES, 1)
        )
        self._pipes = tuple(map(_Pipe, _NAMES))
        for pipe in self._pipes:
            self._epoll.register(pipe.reader, select.EPOLLIN)

    def connect(self) -> None:
        """Connect descriptors 1 and 2 to the pipes, as code may have redirected them."""
        for descriptor, pipe in enumerate(self._pipes, 1):
            os.dup2(pipe.writer, descriptor, inheritable=True)

    def begin(self, parent: Parent) -> None:
        """Send waiting and later text for this execution."""
        self.read()
        with self._lock:
            self._take_tails()
            pending_texts, self._pending_texts = self._pending_texts, []
            self._outputs = {name: _StreamOutput(self._limit_bytes) for name in _NAMES}
            self._parent, self._size, self._stream_changes = parent, 0, 0
            for name, text, cut_characters in pending_texts:
                self._add_pending(name, self._outputs[name].take_head(text), cut_characters)
        self.connect()

    def end(self) -> None:
        """Send the rest of the execution's text; later text waits for the next execution."""
        self.read()
        for pipe, stream in zip(self._pipes, self.streams, strict=True):
            self.write(stream.name, pipe.decoder.decode(b"", final=True))
            self.write(stream.name, stream.buffer.decoder.decode(b"", final=True))
        with self._lock:
            self._take_tails()
            self.push()
            self._parent = None
            self._outputs = {name: _StreamOutput(_MAX_WAITING_BYTES) for name in _NAMES}

    @contextlib.contextmanager
    def muted(self) -> Any:
        """Drop text that this thread prints, while it runs code of the bot."""
        self._muted_thread = threading.get_ident()
        try:
            yield
        finally:
            self._muted_thread = 0

    def write(self, name: str, text: str) -> None:
        """Add text of a stream, after reading the output of programs."""
        if not text or threading.get_ident() == self._muted_thread:
            return
        if self._epoll.poll(0):
            self.read()
        self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        with self._lock:
            if self._stream_changes <= _MAX_STREAM_CHANGES:
                for other_name, output in self._outputs.items():
                    if other_name != name:
                        self._add_pending(other_name, *output.take_tail(is_last=False))
            output = self._outputs[name]
            self._add_pending(name, output.take_head(text), 0)
            if output.is_cut:
                output.is_cut = False
                self._pending_texts.append((name, "", _UNKNOWN_CUT))
            if self._size >= _MAX_CHUNK_CHARACTERS:
                self.push()
                return
        self._push_soon()

    def _add_pending(self, name: str, text: str, cut_characters: int) -> None:
        if text:
            self._stream_changes += bool(self._pending_texts) and self._pending_texts[-1][0] != name
            self._pending_texts.append((name, text, cut_characters))
            self._size += len(text)

    def _take_tails(self) -> None:
        for name, output in self._outputs.items():
            self._add_pending(name, *output.take_tail(is_last=True))

    def flush(self) -> None:
        """Send waiting text, unless some was sent a moment ago."""
        if os.getpid() == self.owner_pid and now() - self._send_time > PAUSE_SECONDS:
            self.push()

    def push(self) -> None:
        """Send waiting text, if an execution is running."""
        with self._lock:
            if self._parent is None or not self._pending_texts:
                return
            parts, self._pending_texts, self._size = self._pending_texts, [], 0
            self._send_time = now()
            if self._stream_changes > _MAX_STREAM_CHANGES:
                parts.sort(key=lambda part: part[0])
            start = 0
            for index in range(1, len(parts) + 1):
                if (
                    index < len(parts)
                    and parts[index][0] == parts[start][0]
                    and not parts[index][2]
                ):
                    continue
                name, _, cut_characters = parts[start]
                self._send(name, "".join(text for _, text, _ in parts[start:index]), cut_characters)
                start = index

    def _send(self, name: str, text: str, cut_characters: int) -> None:
        for start in range(0, max(len(text), 1), 2 * _MAX_CHUNK_CHARACTERS):
            content: dict[str, Any] = {
                "name": name,
                "text": text[start : start + 2 * _MAX_CHUNK_CHARACTERS],
            }
            if cut_characters and not start:
                content["cut"] = cut_characters
            if self._parent is not None:
                self._publish(content, self._parent)

    def fileno(self) -> int:
        """Return a descriptor that is readable while `read` would read something."""
        return self._epoll.fileno()

    def read(self) -> None:
        """Read all text that programs have written to descriptors 1 and 2."""
        with self._lock:
            if self._is_reading:
                return
            self._is_reading = True
            try:
                # Errors are read first and shown last. So output that a program printed before an
                # error is already in the other pipe, and is shown before the error.
                errors = list(self._pipes[1].read())
                for pipe, texts in zip(self._pipes, (self._pipes[0].read(), errors), strict=True):
                    for text in texts:
                        self._write(pipe.name, text)
            finally:
                self._is_reading = False

    def read_after_programs(self) -> None:
        """From now on, read a program's output whenever code has waited for the program.

        Otherwise, text that code prints afterwards might be shown first.
        """

        def read_after(run: Callable[..., int]) -> Callable[..., int]:
            @functools.wraps(run)
            def run_then_read(*arguments: Any, **options: Any) -> int:
                try:
                    return run(*arguments, **options)
                finally:
                    # A forked child must not read the kernel's pipes.
                    if os.getpid() == self.owner_pid:
                        self.read()

            return run_then_read

        subprocess.Popen.wait = read_after(subprocess.Popen.wait)  # type: ignore[method-assign]
        os.system = read_after(os.system)
        # The importable name, by which variables with this function are pickled.
        os.system.__module__ = "os"


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a kernel, which code cannot close."""

    encoding = "utf-8"
    errors = "replace"
    line_buffering = True
    mode = "w"

    def __init__(self, printer: Printer, name: str, descriptor: int) -> None:
        """Print to the printer, or in a forked child to `descriptor`."""
        self.name = name
        self._printer = printer
        self._descriptor = descriptor
        self.buffer = _ByteStream(self)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """Return the descriptor that programs started by the code should write to."""
        return self._descriptor

    def write(self, text: str) -> int:
        """Print text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if os.getpid() != self._printer.owner_pid:
            # A forked child has no connection to the bot; its parent reads the descriptor.
            os.write(self._descriptor, text.encode(errors="replace"))
        else:
            self._printer.write(self.name, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Send what was printed, unless something was sent a moment ago."""
        self._printer.flush()

    def close(self) -> None:
        self.flush()

    def detach(self) -> Any:
        """Return the stream of bytes, without detaching it."""
        return self.buffer

    def reconfigure(self, **_: Any) -> None:
        """Do nothing, because the stream prints any text, and sends it soon."""


class _ByteStream(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes in UTF-8; a character may be split between two writes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def raw(self) -> Any:
        """This object, because it has no buffer."""
        return self

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Any) -> int:
        size_bytes = memoryview(data).nbytes
        self._stream.write(self.decoder.decode(bytes(data)))
        return size_bytes

    def flush(self) -> None:
        """Send what was printed, unless something was sent a moment ago."""
        self._stream.flush()

    def close(self) -> None:
        """Stay open: a wrapper, such as `io.TextIOWrapper`, closes its stream when it is freed."""


class _Pipe:
    """Pipe behind a descriptor to which programs write."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # A full pipe must block writers; an empty one must not block the reader.
        os.set_blocking(self.writer, True)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.reader, _SET_PIPE_SIZE, _PIPE_BYTES)

    def read(self) -> Iterable[str]:
        """Read available bytes, but not more than a full pipe."""
        for _ in range(_PIPE_BYTES // _READ_BYTES):
            try:
                data = os.read(self.reader, _READ_BYTES)
            except BlockingIOError:
                return
            yield self.decoder.decode(data)
