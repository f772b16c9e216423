"""Standard output and error of a kernel: in the order of the code, bounded, for the code of now.

Both streams, and a pipe behind each of the descriptors 1 and 2, end in one `Printer`. It sends text
in chunks rather than per write, always for the execution that runs: what a thread or a program of
an earlier one prints is shown there as well. What is printed while none runs waits for the next.
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
"""How long printed text waits for more."""

_NAMES = ("stdout", "stderr")
_MAX_CHUNK_CHARACTERS = 32 * 1024
_MAX_TAIL_BYTES = 32 * 1024
# A tail that is sent before the end of the output is shorter by this factor.
_EARLY_TAIL_DIVISOR = 8
# Stands for the number of missing characters, which is known at the end of the output only.
_CUT_FROM_HERE = -1
_MAX_WAITING_BYTES = 64 * 1024
# Beyond so many, text of the two streams keeps its order only from one sending to the next: each
# change of the stream costs a message.
_MAX_CHANGES = 2000
_PIPE_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_SET_PIPE_SIZE = 1031
now = time.monotonic
"""The clock as it is before code puts another in its place, which tests of what waits do."""


class _Share:
    """One stream's part of an execution's output: its beginning, and its end if that is full."""

    def __init__(self, limit_bytes: int) -> None:
        self._max_tail_bytes = min(_MAX_TAIL_BYTES, limit_bytes // 8)
        # Twice: for the end of all, and for what comes before text of the other stream.
        self._tail_left = 2 * self._max_tail_bytes
        self._head_left = limit_bytes - self._tail_left
        self._tail: collections.deque[str] = collections.deque()
        self._tail_bytes = 0
        self._cut_characters = 0
        self.is_cut = False
        """Whether the head is full; then one notice follows."""

    def take_head(self, text: str) -> str:
        """Return the part of a text to send now; the rest is kept as the end of the output."""
        if not self._tail and not self._cut_characters:
            size = _size(text)
            if size <= self._head_left:
                self._head_left -= size
                return text
            head = text[: self._head_left if text.isascii() else self._head_left // 4]
            self.is_cut = self.is_cut or self._head_left > 0
            self._head_left = 0
            self._add_to_tail(text, len(head))
            return head
        self._add_to_tail(text, 0)
        return ""

    def _add_to_tail(self, text: str, start: int) -> None:
        max_characters = self._max_tail_bytes if text.isascii() else self._max_tail_bytes // 4
        first = max(start, len(text) - max_characters)
        self._cut_characters += first - start
        text = text[first:]
        self._tail.append(text)
        self._tail_bytes += _size(text)
        while self._tail_bytes > self._max_tail_bytes:
            dropped = self._tail.popleft()
            excess = self._tail_bytes - self._max_tail_bytes
            if dropped.isascii() and len(dropped) > excess:
                self._tail.appendleft(dropped[excess:])
                dropped = dropped[:excess]
            self._tail_bytes -= _size(dropped)
            self._cut_characters += len(dropped)

    def take_tail(self, *, is_last: bool) -> tuple[str, int]:
        """Return the kept end of the output, and the number of dropped characters before it.

        Unless it `is_last`, the end is short, and returned only a few times.
        """
        max_bytes = self._max_tail_bytes // (1 if is_last else _EARLY_TAIL_DIVISOR)
        if not self._tail or not (is_last or self._tail_left >= self._max_tail_bytes + max_bytes):
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
        self._tail_left -= _size(text)
        self._tail.clear()
        self._tail_bytes = self._cut_characters = 0
        return text, cut_characters


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Printer:
    """Sends printed text, in order, for the running execution."""

    def __init__(self, publish: Publish, push_soon: Callable[[], None], limit_bytes: int) -> None:
        """Keep text until an execution begins.

        Args:
            publish: sends the content of a `stream` message for an execution.
            push_soon: schedules a call of `push`.
            limit_bytes: of each stream and execution.
        """
        self._publish = publish
        self._push_soon = push_soon
        self._limit_bytes = limit_bytes
        self.owner_pid = os.getpid()
        # Reentrant, because a signal handler may print, and read commands' output, during a read.
        self._lock = threading.RLock()
        self._is_reading = False
        self._parent: Parent | None = None
        self._muted_thread = 0
        self._pending_texts: list[tuple[str, str, int]] = []
        self._size = 0
        self._changes = 0
        self._sent_at = 0.0
        self._shares = {name: _Share(_MAX_WAITING_BYTES) for name in _NAMES}
        self._epoll = select.epoll()
        self.streams = tuple(Stream(self, name, number) for number, name in enumerate(_NAMES, 1))
        self._pipes = tuple(map(_Pipe, _NAMES))
        for pipe in self._pipes:
            self._epoll.register(pipe.reading, select.EPOLLIN)

    def connect(self) -> None:
        """Connect descriptors 1 and 2 to the pipes again, as code may have redirected them."""
        for number, pipe in enumerate(self._pipes, 1):
            os.dup2(pipe.writing, number, inheritable=True)

    def begin(self, parent: Parent) -> None:
        """Send waiting and later text for this execution."""
        self.read()
        with self._lock:
            self._end_shares()
            pending_texts, self._pending_texts = self._pending_texts, []
            self._shares = {name: _Share(self._limit_bytes) for name in _NAMES}
            self._parent, self._size, self._changes = parent, 0, 0
            for name, text, cut_characters in pending_texts:
                self._add(name, self._shares[name].take_head(text), cut_characters)
        self.connect()

    def end(self) -> None:
        """Send the rest of the execution's text; later text waits for the next execution."""
        self.read()
        for pipe, stream in zip(self._pipes, self.streams, strict=True):
            self.write(stream.name, pipe.decoder.decode(b"", final=True))
            self.write(stream.name, stream.buffer.decoder.decode(b"", final=True))
        with self._lock:
            self._end_shares()
            self.push()
            self._parent = None
            self._shares = {name: _Share(_MAX_WAITING_BYTES) for name in _NAMES}

    @contextlib.contextmanager
    def muted(self) -> Any:
        """Drop text that this thread prints while it runs code of the bot."""
        self._muted_thread = threading.get_ident()
        try:
            yield
        finally:
            self._muted_thread = 0

    def write(self, name: str, text: str) -> None:
        """Add text of a stream, after the output of programs so far."""
        if not text or threading.get_ident() == self._muted_thread:
            return
        if self._epoll.poll(0):
            self.read()
        self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        with self._lock:
            if self._changes <= _MAX_CHANGES:
                for other, share in self._shares.items():
                    if other != name:
                        self._add(other, *share.take_tail(is_last=False))
            share = self._shares[name]
            self._add(name, share.take_head(text), 0)
            if share.is_cut:
                share.is_cut = False
                self._pending_texts.append((name, "", _CUT_FROM_HERE))
            if self._size >= _MAX_CHUNK_CHARACTERS:
                self.push()
                return
        self._push_soon()

    def _add(self, name: str, text: str, cut_characters: int) -> None:
        if text:
            self._changes += bool(self._pending_texts) and self._pending_texts[-1][0] != name
            self._pending_texts.append((name, text, cut_characters))
            self._size += len(text)

    def _end_shares(self) -> None:
        for name, share in self._shares.items():
            self._add(name, *share.take_tail(is_last=True))

    def flush(self) -> None:
        """Send what waits, unless something was sent a moment ago."""
        if os.getpid() == self.owner_pid and now() - self._sent_at > PAUSE_SECONDS:
            self.push()

    def push(self) -> None:
        """Send what waits, if there is an execution to send it for."""
        with self._lock:
            if self._parent is None or not self._pending_texts:
                return
            parts, self._pending_texts, self._size = self._pending_texts, [], 0
            self._sent_at = now()
            if self._changes > _MAX_CHANGES:
                parts.sort(key=lambda part: part[0])
            start = 0
            for place in range(1, len(parts) + 1):
                if (
                    place < len(parts)
                    and parts[place][0] == parts[start][0]
                    and not parts[place][2]
                ):
                    continue
                name, _, cut_characters = parts[start]
                self._send(name, "".join(text for _, text, _ in parts[start:place]), cut_characters)
                start = place

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
        """Take what has been written to descriptors 1 and 2 so far."""
        with self._lock:
            if self._is_reading:
                return
            self._is_reading = True
            try:
                # Errors are read first and shown last: what was printed before one of them is in
                # the other pipe by then.
                errors = list(self._pipes[1].read())
                for pipe, texts in zip(self._pipes, (self._pipes[0].read(), errors), strict=True):
                    for text in texts:
                        self._write(pipe.name, text)
            finally:
                self._is_reading = False

    def read_after_programs(self) -> None:
        """From now on, read what a program wrote as soon as code has waited for it.

        So it is shown before what code prints afterwards.
        """

        def read_after(run: Callable[..., int]) -> Callable[..., int]:
            @functools.wraps(run)
            def run_then_read(*arguments: Any, **options: Any) -> int:
                try:
                    return run(*arguments, **options)
                finally:
                    # In a forked child, this would take what belongs to the kernel.
                    if os.getpid() == self.owner_pid:
                        self.read()

            return run_then_read

        subprocess.Popen.wait = read_after(subprocess.Popen.wait)  # type: ignore[method-assign]
        os.system = read_after(os.system)
        # Importable name, by which a variable that is this function is pickled.
        os.system.__module__ = "os"


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a kernel. Nothing that code does to it closes it."""

    encoding = "utf-8"
    errors = "replace"
    line_buffering = True
    mode = "w"

    def __init__(self, printer: Printer, name: str, descriptor: int) -> None:
        """Print to `descriptor` instead in a forked child."""
        self.name = name
        self._printer = printer
        self._descriptor = descriptor
        self.buffer = _Bytes(self)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """Return the descriptor that programs started by the code should write to."""
        return self._descriptor

    def write(self, text: str) -> int:
        """Print text for the execution that runs."""
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
        """Return the stream of bytes, and stay as it is."""
        return self.buffer

    def reconfigure(self, **_: Any) -> None:
        """Stay as it is: every text can be printed, and is sent soon."""


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes in UTF-8, of which a character may come in two pieces."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def raw(self) -> Any:
        """Itself: there is no buffer of its own."""
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
        """Stay open: what wraps it, such as `io.TextIOWrapper`, closes it when it is dropped."""


class _Pipe:
    """Pipe behind a descriptor to which programs write."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Writers block when the pipe is full; only its reader must not.
        os.set_blocking(self.writing, True)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.reading, _SET_PIPE_SIZE, _PIPE_BYTES)

    def read(self) -> Iterable[str]:
        """Read available bytes, but not more than a full pipe."""
        for _ in range(_PIPE_BYTES // _READ_BYTES):
            try:
                data = os.read(self.reading, _READ_BYTES)
            except BlockingIOError:
                return
            yield self.decoder.decode(data)
