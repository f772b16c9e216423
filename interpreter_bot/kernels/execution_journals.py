"""Journals: numbered events of executions, stored on disk for clients that were not connected.

Appending an event does not wait for the disk; one task writes for all journals. Any number of
readers follow a journal from any event on. They read the newest events from memory and older ones
from disk, so a slow reader costs no memory. If an execution shows more than a journal may store,
its middle is left out. If the disk is full, events stay in memory, which journals share fairly;
the oldest events that do not fit are lost.

Without a directory nothing is written, and a journal keeps only its newest events, in memory.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import logging
import math
import operator
import pathlib
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from interpreter_bot import cancellation, settings
from interpreter_bot.kernels import journal_databases

_log = logging.getLogger(__name__)

MAX_RECORD_BYTES: Final = 64 * settings.MIB
"""Size of the largest record: an encoded display with its preview."""

_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_READ_BYTES: Final = settings.MIB
# Size of a row without its record.
_ROW_BYTES: Final = 64
# A full journal drops one of this many chunks at a time.
_CHUNKS_PER_JOURNAL: Final = 16
# Limits are checked this many times while the size of a limit is appended.
_CHECKS_PER_LIMIT: Final = 8
# Writes are delayed by this pause, so a quick execution is often acknowledged before its write.
_PAUSE_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the journals of one host.

    Attributes:
        execution_bytes: size of one journal: half for its beginning, half for its end.
        total_bytes: size of all journals; those that ended longest ago are dropped first.
        max_journals: number of journals; those that ended longest ago are dropped first.
        keep_seconds: how long a journal is kept after its execution ended.
        memory_bytes: size of the events of all journals in memory.
    """

    execution_bytes: int = 64 * settings.MIB
    total_bytes: int = settings.GIB
    max_journals: int = 10_000
    keep_seconds: float = 24 * 3600.0
    memory_bytes: int = 256 * settings.MIB


MEMORY_BOUNDS: Final = Bounds(max_journals=100)
"""Bounds of journals that are not written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """Event of a journal, for a reader.

    Attributes:
        number: of the event; the first is 1.
        record: the event.
        dropped_count: number of dropped events just before it.
    """

    number: int
    record: bytes
    dropped_count: int = 0


@dataclasses.dataclass(slots=True)
class _Chunk:
    """Consecutive events on disk, which are deleted together."""

    first_number: int
    last_number: int
    size_bytes: int


class Journal:
    """Journal of one execution. `Journals` creates it.

    Attributes:
        id: of the execution.
        began_at: start of the execution in seconds since the epoch.
        last_number: number of the last event, 0 before the first.
        ended_at: end of the execution in seconds since the epoch; None while it runs.
        size_bytes: size on disk.
        is_stored: whether any event is on disk, or is about to be.
        memory_bytes: size in memory.
    """

    def __init__(
        self,
        id: str,
        max_bytes: int,
        database: journal_databases.JournalDatabase | None,
        note_appended: Callable[[int], None],
        request_write: Callable[[Journal], None],
    ) -> None:
        self.id = id
        self.began_at = time.time()
        self.last_number = 0
        self.ended_at: float | None = None
        self.size_bytes = 0
        self.is_stored = False
        self.memory_bytes = 0
        self._max_bytes = max_bytes
        self._database = database
        self._note_appended = note_appended
        self._request_write = request_write
        # The newest events, including all unwritten ones.
        self._tail: collections.deque[bytes] = collections.deque()
        self._written_number = 0
        # The first chunk is kept; the second is dropped first.
        self._chunks: collections.deque[_Chunk] = collections.deque()
        self._deleted_ranges: list[tuple[int, int]] = []
        self._change_event = asyncio.Event()

    @property
    def is_written(self) -> bool:
        """Whether all events are written."""
        return self._written_number == self.last_number

    def append(self, record: bytes, *, is_end: bool = False) -> int:
        """Append an event and return its number; readers get it at once, the disk soon."""
        if self.ended_at is not None or not 0 < len(record) <= MAX_RECORD_BYTES:
            raise ValueError("the journal has ended, or the event is empty or too large")
        self.last_number += 1
        self._tail.append(record)
        self.memory_bytes += len(record)
        if is_end:
            self.ended_at = time.time()
        self.trim_memory()
        self._change_event.set()
        self._change_event = asyncio.Event()
        self._request_write_if_stored()
        self._note_appended(len(record) + _ROW_BYTES)
        return self.last_number

    async def follow(self, after: int = 0) -> AsyncIterator[Entry]:
        """Yield the events after a number as they are appended, until the end."""
        next_number = after + 1
        while True:
            change_event = self._change_event
            if next_number <= self.last_number:
                events = await self._read(next_number)
                if not events:
                    if self.ended_at is not None:
                        return  # The last events were lost on disk.
                    await change_event.wait()
                for number, record in events:
                    yield Entry(number, record, dropped_count=number - next_number)
                    next_number = number + 1
            elif self.ended_at is None:
                await change_event.wait()
            else:
                return

    @property
    def _first_number_in_memory(self) -> int:
        return self.last_number + 1 - len(self._tail)

    async def _read(self, first_number: int) -> Sequence[tuple[int, bytes]]:
        """Return some events from `first_number` on; if these were dropped, later ones."""
        first_number_in_memory = self._first_number_in_memory
        if first_number < first_number_in_memory and self._database is not None:
            try:
                read_rows = self._database.read
                events = await cancellation.in_thread(
                    read_rows, self.id, first_number, first_number_in_memory, _READ_BYTES
                )
            except sqlite3.Error:
                _log.exception("the output of execution %s cannot be read again", self.id)
            else:
                if events:
                    return events
        return self._read_from_memory(first_number)

    def _read_from_memory(self, first_number: int) -> list[tuple[int, bytes]]:
        first_number = max(first_number, self._first_number_in_memory)
        # From the end, as a reader of each new event must not copy all events in memory.
        count = max(self.last_number + 1 - first_number, 0)
        newest_first = list(itertools.islice(reversed(self._tail), count))
        return list(enumerate(reversed(newest_first), first_number))

    def trim_memory(self, max_bytes: float = math.inf) -> None:
        """Drop the oldest written events, and unwritten ones over `max_bytes`, from memory."""
        max_written_bytes = min(max_bytes, 0 if self.ended_at is not None else _READ_BYTES)
        while len(self._tail) > (self.ended_at is not None):
            is_written = self._first_number_in_memory <= self._written_number
            if self.memory_bytes <= (max_written_bytes if is_written else max_bytes):
                return
            self.memory_bytes -= len(self._tail.popleft())

    def _request_write_if_stored(self) -> None:
        if self._database is not None:
            self._request_write(self)

    def pending_change(self) -> journal_databases.Change:
        """Return the unwritten changes; once written, they are passed to `note_written`."""
        self.is_stored = True
        events = self._read_from_memory(self._written_number + 1)
        added_bytes = sum(len(record) + _ROW_BYTES for _, record in events)
        size_bytes = self.size_bytes + added_bytes
        deleted_ranges = tuple(self._deleted_ranges)
        return journal_databases.Change(
            self.id, self.began_at, events, deleted_ranges, size_bytes, self.ended_at
        )

    def note_written(self, change: journal_databases.Change) -> None:
        """Record that a change is on disk, and drop the middle if the journal is too large."""
        # Add to the size, as a sweep may have dropped events meanwhile.
        self.size_bytes += sum(len(record) + _ROW_BYTES for _, record in change.events)
        del self._deleted_ranges[: len(change.deleted_ranges)]
        for number, record in change.events:
            self._written_number = number
            self._add_to_chunk(number, len(record) + _ROW_BYTES)
        self.trim_memory()
        self.shrink(self._max_bytes)

    def _add_to_chunk(self, number: int, size_bytes: int) -> None:
        divisor = 2 if len(self._chunks) == 1 else _CHUNKS_PER_JOURNAL
        max_bytes = self._max_bytes // divisor
        if not self._chunks or self._chunks[-1].size_bytes + size_bytes > max_bytes:
            self._chunks.append(_Chunk(number, number, 0))
        self._chunks[-1].last_number = number
        self._chunks[-1].size_bytes += size_bytes

    def shrink(self, max_bytes: int) -> None:
        """Drop chunks from the middle until the journal fits into `max_bytes`, if possible."""
        while len(self._chunks) > 2 and self.size_bytes > max_bytes:
            chunk = self._chunks[1]
            del self._chunks[1]
            self._deleted_ranges.append((chunk.first_number, chunk.last_number))
            self.size_bytes -= chunk.size_bytes
        if self._deleted_ranges:
            self._request_write_if_stored()

    def restore(self, stored_journal: journal_databases.StoredJournal) -> None:
        """Continue the journal of a dead process."""
        self.last_number = self._written_number = stored_journal.last_number
        self.began_at, self.ended_at = stored_journal.began_at, stored_journal.ended_at
        self.size_bytes = stored_journal.size_bytes
        self.is_stored = True


class Journals:
    """All journals of one host: in memory, or on disk by `open`."""

    def __init__(
        self,
        bounds: Bounds = MEMORY_BOUNDS,
        database: journal_databases.JournalDatabase | None = None,
    ) -> None:
        self._bounds = bounds
        self._database = database
        self._journals: dict[str, Journal] = {}
        self._unwritten_journals: dict[str, Journal] = {}
        self._removed_ids: set[str] = set()
        self._work_added = asyncio.Event()
        self._is_closing = False
        self._is_disk_writable = True
        self._appended_bytes = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        directory: pathlib.Path,
        bounds: Bounds = Bounds(),
        *,
        busy_seconds: float = journal_databases.BUSY_SECONDS,
    ) -> AsyncIterator[Journals]:
        """Open the database of a directory, and write journals while the context is open.

        `busy_seconds` is how long a write waits for another host's.

        Raises:
            OSError: the directory cannot be used.
        """
        database = await asyncio.to_thread(
            journal_databases.JournalDatabase, directory, busy_seconds=busy_seconds
        )
        journals = cls(bounds, database)
        write_task = asyncio.create_task(journals._write_all(), name="journals")
        try:
            yield journals
        finally:
            await cancellation.shielded(journals._close(write_task, database))

    def __iter__(self) -> Iterator[Journal]:
        return iter(list(self._journals.values()))

    def find(self, id: str) -> Journal | None:
        """Return the journal of an execution, if there is one."""
        return self._journals.get(id)

    def begin(self, id: str) -> Journal:
        """Begin the journal of an execution.

        Raises:
            ValueError: the id exists, or it is not 1 to 64 letters, digits, - and _.
        """
        if not _ID_PATTERN.fullmatch(id) or id in self._journals:
            raise ValueError("an execution's id cannot be used")
        max_bytes = self._bounds.execution_bytes
        journal = Journal(id, max_bytes, self._database, self._note_appended, self._write_soon)
        self._journals[id] = journal
        if len(self._journals) > self._bounds.max_journals:
            self._make_room()
        return journal

    def remove(self, id: str) -> None:
        """Delete a journal; its readers still get the events in memory."""
        journal = self._journals.pop(id, None)
        if journal is not None:
            self._unwritten_journals.pop(id, None)
            if journal.is_stored:
                self._removed_ids.add(id)
                self._work_added.set()

    async def take_over(self) -> bool:
        """Continue the journals of dead hosts. Journals of unfinished executions have no end.

        Returns:
            Whether no other host is alive.
        """
        if self._database is None:
            return True
        # Shielded: if cancelled, this host would own database rows that it does not know.
        return await cancellation.shielded(self._take_over(self._database))

    async def _take_over(self, database: journal_databases.JournalDatabase) -> bool:
        try:
            stored_journals, is_only_host = await asyncio.to_thread(database.take_over)
        except sqlite3.Error:
            _log.exception("the executions of other hosts cannot be taken over")
            return True
        for stored_journal in stored_journals:
            # An execution of the same id may have begun here; that one keeps its journal.
            if self.find(stored_journal.id) is None:
                self.begin(stored_journal.id).restore(stored_journal)
        self._make_room()
        return is_only_host

    async def sweep(self) -> None:
        """Delete old journals and those over the limits. For a periodic job."""
        self._make_room()
        if self._database is not None:
            try:
                await cancellation.in_thread(self._database.shrink_file)
            except sqlite3.Error:
                _log.exception("the database of journals cannot shrink")

    def _make_room(self) -> None:
        ended_journals = [
            (journal.ended_at, journal) for journal in self if journal.ended_at is not None
        ]
        min_ended_at = time.time() - self._bounds.keep_seconds
        total_bytes = sum(journal.size_bytes for journal in self)
        for ended_at, journal in sorted(ended_journals, key=operator.itemgetter(0)):
            is_old = ended_at < min_ended_at
            is_over_count = len(self._journals) > self._bounds.max_journals
            if is_old or is_over_count or total_bytes > self._bounds.total_bytes:
                total_bytes -= journal.size_bytes
                self.remove(journal.id)
        if total_bytes > self._bounds.total_bytes:
            # The remaining executions still run: each keeps its beginning and its end.
            for journal in self:
                journal.shrink(0)
        # Small journals leave the unused part of their share to larger ones.
        free_bytes = self._bounds.memory_bytes
        journals_by_size = sorted(self, key=operator.attrgetter("memory_bytes"))
        for index, journal in enumerate(journals_by_size):
            journal.trim_memory(free_bytes / (len(journals_by_size) - index))
            free_bytes -= journal.memory_bytes

    def _note_appended(self, size_bytes: int) -> None:
        self._appended_bytes += size_bytes
        max_bytes = min(self._bounds.total_bytes, self._bounds.memory_bytes)
        if self._appended_bytes > max_bytes // _CHECKS_PER_LIMIT:
            self._appended_bytes = 0
            self._make_room()

    def _write_soon(self, journal: Journal) -> None:
        if self._journals.get(journal.id) is journal:
            self._unwritten_journals[journal.id] = journal
            self._work_added.set()

    async def _write_all(self) -> None:
        """Write changes of all journals until they are closed."""
        while not self._is_closing:
            await self._work_added.wait()
            await asyncio.sleep(_PAUSE_SECONDS if self._is_disk_writable else _RETRY_SECONDS)
            self._work_added.clear()
            await self._write()

    async def _write(self) -> None:
        """Write all changes; if the disk refuses, keep them for the next attempt."""
        if self._database is None or not (self._unwritten_journals or self._removed_ids):
            return
        journals, self._unwritten_journals = self._unwritten_journals, {}
        removed_ids, self._removed_ids = self._removed_ids, set()
        changes = [journal.pending_change() for journal in journals.values()]
        try:
            await cancellation.in_thread(self._database.write, changes, removed_ids)
        except Exception as error:
            # Catch everything: if this task ended, nothing would be written any more.
            if self._is_disk_writable:
                _log.exception("the output of executions cannot be written")
            if type(error) in (sqlite3.DatabaseError, sqlite3.ProgrammingError):
                # A full disk may recover; a damaged file or a closed connection does not.
                await self._replace_damaged(self._database)
            self._is_disk_writable = False
            self._removed_ids |= removed_ids
            self._work_added.set()
            for journal in journals.values():
                self._write_soon(journal)
            return
        self._is_disk_writable = True
        for journal, change in zip(journals.values(), changes, strict=True):
            journal.note_written(change)

    async def _replace_damaged(self, database: journal_databases.JournalDatabase) -> None:
        try:
            await cancellation.in_thread(database.replace_damaged_file)
        except (sqlite3.Error, OSError):
            _log.exception("the damaged database of journals cannot be replaced")

    async def _close(
        self, write_task: asyncio.Task[None], database: journal_databases.JournalDatabase
    ) -> None:
        # Do not cancel: a cancelled write would not know how much was written.
        self._is_closing = True
        self._work_added.set()
        try:
            await write_task
            await self._write()
        finally:
            await asyncio.to_thread(database.close)
