"""Journals: what executions showed, numbered and on disk, for whoever was not there.

An event is appended without waiting for the disk; one task writes for all. Any number of readers
follow a journal from any event on: the newest out of memory, what lies behind from the disk, so a
reader that is slow costs no memory. Of an execution that shows more than a journal may hold, the
middle is left out. A full disk costs what memory does not hold; the end is always there.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import operator
import pathlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from interpreter_bot import cancellation, settings
from interpreter_bot.kernels import journal_files

_log = logging.getLogger(__name__)

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUFFIX: Final = ".journal"
_READ_BYTES: Final = settings.MIB
# Segments after the first are of this share, so that the middle goes in steps.
_TAIL_SHARE: Final = 8
# Room is looked for whenever this share of it was written.
_TOTAL_SHARE: Final = 16
# What is over and acknowledged by then needs no file.
_PAUSE_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the journals of one host.

    Attributes:
        execution_bytes: of one execution: half for how it began, half for what came last.
        total_bytes: of all; executions that ended longest ago go first.
        executions: how many; the same go first.
        keep_seconds: how long a journal is kept after its execution ended.
        memory_bytes: of one execution, what the disk does not take.
    """

    execution_bytes: int = 64 * settings.MIB
    total_bytes: int = settings.GIB
    executions: int = 10_000
    keep_seconds: float = 24 * 3600.0
    memory_bytes: int = 4 * settings.MIB


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """Event of a journal, as a reader gets it.

    Attributes:
        number: of the event; the first is 1.
        record: the event.
        left_out: how many events just before it are not kept.
    """

    number: int
    record: bytes
    left_out: int = 0


class Journal:
    """Journal of one execution. `Journals` makes it.

    Attributes:
        id: of the execution.
        about: what it is about, as given at its beginning.
        last: number of the last event, 0 before the first.
        ended_at: when the execution ended, in seconds since the epoch; None while it runs.
        is_disk_good: whether the disk took what was written last.
    """

    def __init__(
        self,
        id: str,
        about: bytes,
        directory: pathlib.Path,
        bounds: Bounds,
        write_soon: Callable[[Journal], None],
    ) -> None:
        self.id = id
        self.about = about
        self.last = 0
        self.ended_at: float | None = None
        self.is_disk_good = True
        self._directory = directory
        self._bounds = bounds
        self._write_soon = write_soon
        self._segments: list[journal_files.Segment] = []
        self._writer: journal_files.Writer | None = None
        # Held by whoever changes the files.
        self._files = asyncio.Lock()
        # The newest events, at least those that are not written yet.
        self._tail: collections.deque[bytes] = collections.deque()
        self._tail_bytes = 0
        self._written = 0
        self._changed = asyncio.Event()
        self._is_removed = False

    @property
    def size_bytes(self) -> int:
        """Its size on disk."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def is_written(self) -> bool:
        """Whether nothing waits to be written."""
        return self._written == self.last or self._is_removed

    def append(self, record: bytes, *, is_end: bool = False) -> int:
        """Append an event; return its number. Readers get it at once, the disk soon.

        Args:
            record: the event, neither empty nor above `journal_files.RECORD_BYTES`.
            is_end: it is the last one.
        """
        if self.ended_at is not None or not 0 < len(record) <= journal_files.RECORD_BYTES:
            raise ValueError("a journal takes no event after its end, nor an empty or endless one")
        self.last += 1
        self._tail.append(record)
        self._tail_bytes += len(record)
        self._trim_memory()
        if is_end:
            self.ended_at = time.time()
        self._changed.set()
        self._changed = asyncio.Event()
        self._write_soon(self)
        return self.last

    async def follow(self, after: int = 0) -> AsyncIterator[Entry]:
        """Yield the events after a number, as they come, up to and with the end."""
        wanted = after + 1
        while True:
            changed = self._changed
            if wanted <= self.last:
                first, records = await self._read(wanted)
                if not records:
                    return  # A dead process's last file was damaged since it was recovered.
                for number, record in enumerate(records, first):
                    yield Entry(number, record, left_out=number - wanted)
                    wanted = number + 1
            elif self.ended_at is None:
                await changed.wait()
            else:
                return

    async def _read(self, wanted: int) -> tuple[int, Sequence[bytes]]:
        """Return events from `wanted` on, at least one, and the number of the first of them: a
        later one where that is not kept."""
        while wanted < (newest := self.last + 1 - len(self._tail)):
            # The last one may be empty yet.
            whole = (one for one in self._segments if one.next > max(wanted, one.first))
            found = next(whole, None)
            if found is None or found.first >= newest:
                break
            first = max(wanted, found.first)
            try:
                return first, await cancellation.in_thread(found.read, first, _READ_BYTES)
            except OSError:
                if found in self._segments:
                    _log.exception("what an execution showed cannot be read again")
                    self._segments.remove(found)
        first = max(wanted, self.last + 1 - len(self._tail))
        return first, list(self._tail)[first - self.last - 1 :]

    def _trim_memory(self) -> None:
        """Forget the oldest events that are written, or that the disk does not take."""
        most = 0 if self.ended_at is not None else _READ_BYTES
        while len(self._tail) > 1 and self._tail_bytes > most:
            is_unwritten = self.last + 1 - len(self._tail) > self._written
            # What waits for a slow disk was bounded where the kernel's output was read.
            is_needed = self.is_disk_good or self._tail_bytes <= self._bounds.memory_bytes
            if is_unwritten and is_needed and not self._is_removed:
                return
            self._tail_bytes -= len(self._tail.popleft())

    async def write(self) -> None:
        """Write some of what waits to be written, and leave out the middle of what is too much."""
        async with self._files:
            if self.is_written:
                return
            first = max(self._written + 1, self.last + 1 - len(self._tail))
            records = list(self._tail)[first - self.last - 1 :]
            has_end = self.ended_at is not None
            try:
                writer = await self._ready_writer(first)
                await cancellation.in_thread(writer.append, records, has_end=has_end)
            except OSError:
                if self.is_disk_good:
                    _log.exception("what executions show cannot be written down")
                self.is_disk_good = False
                # What is half written ends this file; the next attempt makes another.
                await self.close()
                self._segments = [one for one in self._segments if one.next > one.first]
            else:
                self.is_disk_good = True
                self._written = first + len(records) - 1
                if has_end:
                    self._writer = None
            self._trim_memory()
        await self.shrink(self._bounds.execution_bytes)

    async def _ready_writer(self, first: int) -> journal_files.Writer:
        """Return the writer of the segment that takes an event."""
        share = 2 if len(self._segments) == 1 else _TAIL_SHARE
        if self._writer is not None:
            segment = self._writer.segment
            if segment.next == first and segment.size_bytes < self._bounds.execution_bytes // share:
                return self._writer
            await self.close()
        path = self._directory / f"{self.id}.{first}{_SUFFIX}"
        self._writer = journal_files.Writer(path, first, self.about)
        self._segments.append(self._writer.segment)
        return self._writer

    async def shrink(self, most_bytes: int) -> None:
        """Leave out the middle until it is no larger than `most_bytes`, as far as that goes."""
        async with self._files:
            while len(self._segments) > 2 and self.size_bytes > most_bytes:
                await cancellation.in_thread(self._segments.pop(1).path.unlink, missing_ok=True)

    async def remove(self) -> None:
        """Delete its files; who follows it gets what is still in memory."""
        async with self._files:
            self._is_removed = True
            await self.close()
            segments, self._segments = self._segments, []
            for segment in segments:
                await cancellation.in_thread(segment.path.unlink, missing_ok=True)

    async def close(self) -> None:
        """Close its files, which stay."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            await cancellation.in_thread(writer.close)

    def restore(self, segments: Sequence[journal_files.Segment], ended_at: float | None) -> None:
        """Take over what a dead process has left."""
        self._segments = sorted(segments, key=lambda segment: segment.first)
        self.last = self._written = self._segments[-1].next - 1
        self.ended_at = ended_at


class Journals:
    """All journals of one host. Use `open`."""

    def __init__(self, directory: pathlib.Path, bounds: Bounds) -> None:
        self._directory = directory
        self._bounds = bounds
        self._journals: dict[str, Journal] = {}
        self._waiting: dict[str, Journal] = {}
        self._is_wanted = asyncio.Event()
        self._is_closing = False
        # Held while room is made: whoever asked for it has it, also where another had begun.
        self._sweeping = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, directory: pathlib.Path, bounds: Bounds = Bounds()
    ) -> AsyncIterator[Journals]:
        """Take over what a dead host left in a directory, and write until the end.

        Journals that it left without an end are for the caller to end.

        Raises:
            OSError: the directory cannot be used.
        """
        journals = cls(directory, bounds)
        await journals.recover()
        writing = asyncio.create_task(journals._write_all(), name="journals")
        try:
            yield journals
        finally:
            await cancellation.shielded(journals._close(writing))

    def __iter__(self) -> Iterator[Journal]:
        return iter(list(self._journals.values()))

    def find(self, id: str) -> Journal | None:
        """Return the journal of an execution, if there is one."""
        return self._journals.get(id)

    def begin(self, id: str, about: bytes) -> Journal:
        """Begin the journal of an execution.

        Args:
            id: of the execution, not used before: letters, digits, - and _, at most 64.
            about: what it is about, for whoever finds the journal after this process died.

        Raises:
            ValueError: the id cannot be used.
        """
        if not _ID.fullmatch(id) or id in self._journals:
            raise ValueError("an execution's id cannot be used")
        journal = Journal(id, about, self._directory, self._bounds, self._write_soon)
        self._journals[id] = journal
        return journal

    async def remove(self, id: str) -> None:
        """Forget an execution: all that it showed was recorded elsewhere."""
        if (journal := self._journals.pop(id, None)) is not None:
            await journal.remove()

    async def sweep(self) -> None:
        """Forget executions that ended long ago, and make room. For a periodic job."""
        async with self._sweeping:
            ended = [(one.ended_at, one) for one in self if one.ended_at is not None]
            oldest = time.time() - self._bounds.keep_seconds
            total = sum(journal.size_bytes for journal in self)
            for ended_at, journal in sorted(ended, key=operator.itemgetter(0)):
                is_old = ended_at < oldest
                is_many = len(self._journals) > self._bounds.executions
                if is_old or is_many or total > self._bounds.total_bytes:
                    total -= journal.size_bytes
                    await self.remove(journal.id)
            if total > self._bounds.total_bytes:
                # All of these still run: each keeps its beginning and what came last.
                for journal in self:
                    await journal.shrink(0)

    def _write_soon(self, journal: Journal) -> None:
        self._waiting[journal.id] = journal
        self._is_wanted.set()

    async def _write_all(self) -> None:
        """Write for all journals, until they are closed."""
        unchecked_bytes = 0
        while not self._is_closing:
            await self._is_wanted.wait()
            await asyncio.sleep(_PAUSE_SECONDS)
            self._is_wanted.clear()
            waiting, self._waiting = self._waiting, {}
            for journal in waiting.values():
                before = journal.size_bytes
                try:
                    await journal.write()
                except Exception:
                    # The last net: the journals of all others must not end with this one's.
                    _log.exception("a journal could not be written")
                    continue
                unchecked_bytes += max(journal.size_bytes - before, 0)
                if not journal.is_written:
                    delay = 0.0 if journal.is_disk_good else _RETRY_SECONDS
                    asyncio.get_running_loop().call_later(delay, self._write_soon, journal)
            is_many = len(self._journals) > self._bounds.executions
            if is_many or unchecked_bytes > self._bounds.total_bytes // _TOTAL_SHARE:
                unchecked_bytes = 0
                await self.sweep()

    async def _close(self, writing: asyncio.Task[None]) -> None:
        # Not cancelled: in the middle of a write it would not know how much was written.
        self._is_closing = True
        self._is_wanted.set()
        await writing
        for journal in self:
            journal.is_disk_good = True  # One more attempt.
            try:
                while not journal.is_written and journal.is_disk_good:
                    await journal.write()
                await journal.close()
            except Exception:
                _log.exception("a journal could not be written to its end")

    async def recover(self, names: Iterable[str] = (f"*{_SUFFIX}",)) -> None:
        """Take over files of the directory, by default all; what cannot be read is removed."""
        found: dict[str, list[journal_files.Segment]] = {}
        for path, one in await cancellation.in_thread(journal_files.found, self._directory, names):
            id = path.name.partition(".")[0]
            if one is not None and _ID.fullmatch(id):
                found.setdefault(id, []).append(one)
                continue
            await cancellation.in_thread(path.unlink, missing_ok=True)
        for id, segments in found.items():
            last = max(segments, key=lambda segment: segment.first)
            ended_at = last.path.stat().st_mtime if last.has_end else None
            self.begin(id, last.about).restore(segments, ended_at)
        await self.sweep()
