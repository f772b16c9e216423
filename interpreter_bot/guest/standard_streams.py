"""Standard output and error of a kernel: buffered, bounded, attributed to the right execution.

Text printed by Python is sent in chunks rather than per write. Text that other programs write to
descriptors 1 and 2 comes through a pair of pipes made anew for each execution, so what a left-over
process prints later is still attributed to its own execution.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import fcntl
import functools
import io
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

Parent = dict[str, Any]
Publish = Callable[[str, str, Parent], None]

_CHUNK_CHARACTERS = 32 * 1024
PAUSE_SECONDS = 0.05
"""How long printed text waits for more."""

_PARENTS_REMEMBERED = 16
_PIPES_KEPT = 32
_PIPE_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_SET_PIPE_SIZE = 1031
now = time.monotonic
"""The clock as it is before code puts another in its place, which tests of what waits do."""


class Budget:
    """Output budget of each execution. The bot counts again; this saves the transport."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._sent: collections.OrderedDict[str, int] = collections.OrderedDict()

    def allows(self, parent: Parent, text: str) -> bool:
        """Count `text`; False once the limit has been exceeded."""
        name = parent.get("header", {}).get("msg_id", "")
        sent = self._sent.get(name, 0)
        if sent > self._limit_bytes:
            return False
        self._sent[name] = sent + len(text)
        while len(self._sent) > _PARENTS_REMEMBERED:
            self._sent.popitem(last=False)
        return True


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a kernel."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(
        self,
        name: str,
        descriptor: int,
        *,
        publish: Publish,
        parent: Callable[[], Parent],
        push_soon: Callable[[], None],
    ) -> None:
        """Publish nothing yet.

        Args:
            name: of the stream in messages.
            descriptor: that other programs write to instead.
            publish: sends text of an execution.
            parent: tells the execution that runs in this context.
            push_soon: has `push` called in a moment.
        """
        self.name = name
        self._descriptor = descriptor
        self._publish = publish
        self._parent = parent
        self._push_soon = push_soon
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._parts: list[str] = []
        self._size = 0
        self._owner: Parent = {}
        self._sent_at = 0.0
        self.budget = Budget(0)
        self.buffer = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False), 1)

    def writable(self) -> bool:
        """Say that this stream is for writing."""
        return True

    def isatty(self) -> bool:
        """Return False: there is no terminal."""
        return False

    def fileno(self) -> int:
        """Return the descriptor that programs started by the code should write to."""
        return self._descriptor

    def write(self, text: str) -> int:
        """Buffer text for the execution that runs in this context."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if os.getpid() != self._pid:
            # A forked child has no connection to the bot; its parent reads the descriptor.
            os.write(self._descriptor, text.encode(errors="replace"))
            return len(text)
        self.write_for(self._parent(), text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Buffer several texts."""
        for line in lines:
            self.write(line)

    def write_for(self, parent: Parent, text: str) -> None:
        """Buffer text for one execution."""
        if not text or not self.budget.allows(parent, text):
            return
        with self._lock:
            if parent is not self._owner:
                self.push()
                self._owner = parent
            self._parts.append(text)
            self._size += len(text)
            if self._size >= _CHUNK_CHARACTERS:
                self.push()
                return
        self._push_soon()

    def flush(self) -> None:
        """Send the buffer, unless something was sent a moment ago."""
        if os.getpid() == self._pid and now() - self._sent_at > PAUSE_SECONDS:
            self.push()

    def push(self) -> None:
        """Send the buffer now."""
        with self._lock:
            if not self._parts:
                return
            text, owner = "".join(self._parts), self._owner
            self._parts, self._size = [], 0
            self._sent_at = now()
            for start in range(0, len(text), 2 * _CHUNK_CHARACTERS):
                self._publish(self.name, text[start : start + 2 * _CHUNK_CHARACTERS], owner)


class _Pipe:
    def __init__(self, stream: Stream, parent: Parent) -> None:
        self.stream = stream
        self._parent = parent
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.reading, _SET_PIPE_SIZE, _PIPE_BYTES)

    def read(self) -> bool:
        """Pass on what is readable, of a flood no more than a full pipe; False at the end."""
        for _ in range(_PIPE_BYTES // _READ_BYTES):
            try:
                data = os.read(self.reading, _READ_BYTES)
            except BlockingIOError:
                return True
            self.stream.write_for(self._parent, self._decoder.decode(data, final=not data))
            if not data:
                return False
        return True


class Descriptors:
    """Reader of what any process writes to descriptors 1 and 2."""

    def __init__(self, streams: tuple[Stream, Stream]) -> None:
        self._streams = streams
        self._selector = selectors.EpollSelector()
        # A handler of a signal may run a command, and read what it wrote, amid another reading.
        self._lock = threading.RLock()
        self._is_reading = False
        self._pipes: collections.deque[_Pipe] = collections.deque()

    def begin(self, parent: Parent) -> None:
        """Point the descriptors at fresh pipes, which belong to `parent`."""
        with self._lock:
            for number, stream in enumerate(self._streams, start=1):
                pipe = _Pipe(stream, parent)
                # Writers block when the pipe is full; only this reader must not.
                os.set_blocking(pipe.writing, True)
                os.dup2(pipe.writing, number, inheritable=True)
                os.close(pipe.writing)
                self._selector.register(pipe.reading, selectors.EVENT_READ, pipe)
                self._pipes.append(pipe)
            # Those before have ended, mostly: the code to come sees none of them vanish.
            self.read()
            while len(self._pipes) > _PIPES_KEPT:
                self._drop(self._pipes.popleft())

    def read_after_programs(self) -> None:
        """From now on, read what a program wrote as soon as code has waited for it.

        So it is shown before what code prints afterwards.
        """
        own = os.getpid()

        def then_read(run: Callable[..., int]) -> Callable[..., int]:
            @functools.wraps(run)
            def waiting(*arguments: Any, **options: Any) -> int:
                try:
                    return run(*arguments, **options)
                finally:
                    # In a forked child, this would take what belongs to the kernel.
                    if os.getpid() == own:
                        self.read()

            return waiting

        subprocess.Popen.wait = then_read(subprocess.Popen.wait)  # type: ignore[method-assign]
        os.system = then_read(os.system)
        # Where it is found, by which a variable that is this function is saved.
        os.system.__module__ = "os"

    def fileno(self) -> int:
        """Return a descriptor that is readable while `read` would read something."""
        return self._selector.fileno()

    def read(self) -> None:
        """Pass on what has been written so far."""
        with self._lock:
            is_nested, self._is_reading = self._is_reading, True
            try:
                ended = [key.data for key, _ in self._selector.select(0) if not key.data.read()]
                # Another reading, amid which this one was called, may be at one of them.
                for pipe in () if is_nested else ended:
                    self._pipes.remove(pipe)
                    self._drop(pipe)
            finally:
                self._is_reading = is_nested

    def _drop(self, pipe: _Pipe) -> None:
        self._selector.unregister(pipe.reading)
        os.close(pipe.reading)
