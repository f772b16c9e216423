"""Journals: what executions showed, numbered and on disk, for clients that were not connected.

An event is appended without waiting for the disk; one task writes for all journals. Any number of
readers follow a journal from any event on: the newest events come out of memory, older ones from
the disk, so a slow reader costs no memory. If an execution shows more than a journal may hold, the
middle is left out. On a full disk only what memory does not hold is lost: all journals share it
fairly, and the end of each is always there.

Without a directory nothing is written: a journal then keeps its newest events in memory.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
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
"""Longest record: a display with its preview, as encoded."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_READ_BYTES: Final = settings.MIB
# What a row takes besides its record.
_ROW_BYTES: Final = 64
# Of a journal that is full, this share of its bytes is dropped at a time.
_CHUNK_SHARE: Final = 16
# Room is looked for whenever this share of it was appended.
_CHECK_SHARE: Final = 8
# A quick execution that is acknowledged within this time is never written.
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
        memory_bytes: of all, what memory has of them.
    """

    execution_bytes: int = 64 * settings.MIB
    total_bytes: int = settings.GIB
    executions: int = 10_000
    keep_seconds: float = 24 * 3600.0
    memory_bytes: int = 256 * settings.MIB


IN_MEMORY: Final = Bounds(executions=100)
"""Bounds of journals that are not written."""


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


@dataclasses.dataclass(slots=True)
class _Chunk:
    """Consecutive events on disk, which are deleted together."""

    first: int
    last: int
    size_bytes: int


class Journal:
    """Journal of one execution. `Journals` makes it.

    Attributes:
        id: of the execution.
        about: what it is about, as given at its beginning.
        last: number of the last event, 0 before the first.
        ended_at: when the execution ended, in seconds since the epoch; None while it runs.
        size_bytes: its size on disk.
        is_stored: whether the disk has, or is about to get, anything of it.
        memory_bytes: its size in memory.
    """

    def __init__(
        self,
        id: str,
        about: bytes,
        max_bytes: int,
        database: journal_databases.JournalDatabase | None,
        note_appended: Callable[[int], None],
        write_soon: Callable[[Journal], None],
    ) -> None:
        self.id = id
        self.about = about
        self.last = 0
        self.ended_at: float | None = None
        self.size_bytes = 0
        self.is_stored = False
        self.memory_bytes = 0
        self._max_bytes = max_bytes
        self._database = database
        self._note_appended = note_appended
        self._request_write = write_soon
        # The newest events, at least those that are not written yet.
        self._tail: collections.deque[bytes] = collections.deque()
        self._written = 0
        # How it began stays; of the rest the oldest chunk goes first.
        self._chunks: collections.deque[_Chunk] = collections.deque()
        self._surplus: list[tuple[int, int]] = []
        self._changed = asyncio.Event()

    @property
    def is_written(self) -> bool:
        """Whether nothing waits to be written."""
        return self._written == self.last

    def append(self, record: bytes, *, is_end: bool = False) -> int:
        """Append an event; return its number. Readers get it at once, the disk soon.

        Args:
            record: the event, neither empty nor above `MAX_RECORD_BYTES`.
            is_end: it is the last one.
        """
        if self.ended_at is not None or not 0 < len(record) <= MAX_RECORD_BYTES:
            raise ValueError("a journal takes no event after its end, nor an empty or endless one")
        self.last += 1
        self._tail.append(record)
        self.memory_bytes += len(record)
        if is_end:
            self.ended_at = time.time()
        self.trim_memory()
        self._changed.set()
        self._changed = asyncio.Event()
        self._write_soon()
        self._note_appended(len(record) + _ROW_BYTES)
        return self.last

    async def follow(self, after: int = 0) -> AsyncIterator[Entry]:
        """Yield the events after a number, as they come, up to and with the end."""
        expected = after + 1
        while True:
            changed = self._changed
            if expected <= self.last:
                events = await self._read(expected)
                if not events:
                    if self.ended_at is not None:
                        return  # The disk has lost the end, which no one will append again.
                    await changed.wait()
                for number, record in events:
                    yield Entry(number, record, left_out=number - expected)
                    expected = number + 1
            elif self.ended_at is None:
                await changed.wait()
            else:
                return

    @property
    def _first_in_memory(self) -> int:
        return self.last + 1 - len(self._tail)

    async def _read(self, first: int) -> Sequence[tuple[int, bytes]]:
        """Return events from `first` on; later ones if that is not kept."""
        before = self._first_in_memory
        if first < before and self._database is not None:
            try:
                read = self._database.read
                events = await cancellation.in_thread(read, self.id, first, before, _READ_BYTES)
            except sqlite3.Error:
                _log.exception("the output of execution %s cannot be read again", self.id)
            else:
                if events:
                    return events
        return self._in_memory(first)

    def _in_memory(self, first: int) -> list[tuple[int, bytes]]:
        first = max(first, self._first_in_memory)
        return list(enumerate(list(self._tail)[first - self._first_in_memory :], first))

    def trim_memory(self, max_bytes: float = math.inf) -> None:
        """Forget the oldest events that are written, and others as long as they take too much."""
        max_written_bytes = min(max_bytes, 0 if self.ended_at is not None else _READ_BYTES)
        while len(self._tail) > (self.ended_at is not None):
            is_written = self._first_in_memory <= self._written
            if self.memory_bytes <= (max_written_bytes if is_written else max_bytes):
                return
            self.memory_bytes -= len(self._tail.popleft())

    def keep_in_memory(self) -> None:
        """Have nothing to do with the disk, which does not take this journal."""
        self._database = None
        self.is_stored = False

    def _write_soon(self) -> None:
        if self._database is not None:
            self._request_write(self)

    def pending(self) -> journal_databases.Change:
        """Return what waits to be written, for `note_written`."""
        self.is_stored = True
        events = self._in_memory(self._written + 1)
        added = sum(len(record) + _ROW_BYTES for _, record in events)
        size_bytes = self.size_bytes + added
        return journal_databases.Change(
            self.id, self.about, events, tuple(self._surplus), size_bytes, self.ended_at
        )

    def note_written(self, change: journal_databases.Change) -> None:
        """Note that a change is on disk, and leave out the middle of what is too much."""
        # Added, not replaced: a sweep may have left out something meanwhile.
        self.size_bytes += sum(len(record) + _ROW_BYTES for _, record in change.events)
        del self._surplus[: len(change.surplus)]
        for number, record in change.events:
            self._written = number
            self._add_to_chunk(number, len(record) + _ROW_BYTES)
        self.trim_memory()
        self.shrink(self._max_bytes)

    def _add_to_chunk(self, number: int, size_bytes: int) -> None:
        share = 2 if len(self._chunks) == 1 else _CHUNK_SHARE
        max_bytes = self._max_bytes // share
        if not self._chunks or self._chunks[-1].size_bytes + size_bytes > max_bytes:
            self._chunks.append(_Chunk(number, number, 0))
        self._chunks[-1].last = number
        self._chunks[-1].size_bytes += size_bytes

    def shrink(self, max_bytes: int) -> None:
        """Leave out the middle until it is no larger than `max_bytes`, as far as that goes."""
        while len(self._chunks) > 2 and self.size_bytes > max_bytes:
            chunk = self._chunks[1]
            del self._chunks[1]
            self._surplus.append((chunk.first, chunk.last))
            self.size_bytes -= chunk.size_bytes
        if self._surplus:
            self._write_soon()

    def restore(self, stored: journal_databases.StoredJournal) -> None:
        """Continue what a dead process has left."""
        self.last = self._written = stored.last
        self.ended_at = stored.ended_at
        self.size_bytes = stored.size_bytes
        self.is_stored = True


class Journals:
    """All journals of one host: in memory, or on disk by `open`."""

    def __init__(
        self,
        bounds: Bounds = IN_MEMORY,
        database: journal_databases.JournalDatabase | None = None,
    ) -> None:
        self._bounds = bounds
        self._database = database
        self._journals: dict[str, Journal] = {}
        self._waiting: dict[str, Journal] = {}
        self._removed: set[str] = set()
        self._is_wanted = asyncio.Event()
        self._is_closing = False
        self._is_disk_good = True
        self._unchecked_bytes = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        directory: pathlib.Path,
        bounds: Bounds = Bounds(),
        *,
        busy_seconds: float = journal_databases.BUSY_SECONDS,
    ) -> AsyncIterator[Journals]:
        """Open the database of a directory, and write until the end.

        Args:
            directory: of the journals of all hosts.
            bounds: of this host's.
            busy_seconds: how long one write waits for another host's.

        Raises:
            OSError: the directory cannot be used.
        """
        database = await asyncio.to_thread(
            journal_databases.JournalDatabase, directory, busy_seconds=busy_seconds
        )
        journals = cls(bounds, database)
        writing = asyncio.create_task(journals._write_all(), name="journals")
        try:
            yield journals
        finally:
            await cancellation.shielded(journals._close(writing, database))

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
        journal = Journal(
            id,
            about,
            self._bounds.execution_bytes,
            self._database,
            self._note_appended,
            self._write_soon,
        )
        self._journals[id] = journal
        if len(self._journals) > self._bounds.executions:
            self._make_room()
        return journal

    def remove(self, id: str) -> None:
        """Forget an execution; readers still get what is in memory."""
        journal = self._journals.pop(id, None)
        if journal is not None:
            self._waiting.pop(id, None)
            if journal.is_stored:
                self._removed.add(id)
                self._is_wanted.set()

    async def take_over(self) -> bool:
        """Continue the journals of hosts that are gone, without an end if they had none.

        Returns:
            Whether no other host is there that may leave more.
        """
        if self._database is None:
            return True
        # To its end: rows that are ours by then would be nobody's here.
        return await cancellation.shielded(self._take_over(self._database))

    async def _take_over(self, database: journal_databases.JournalDatabase) -> bool:
        try:
            stored, is_complete = await asyncio.to_thread(database.take_over)
        except sqlite3.Error:
            _log.exception("the executions of other hosts cannot be taken over")
            return True
        for one in stored:
            if one.id in self._journals:
                self._removed.add(one.id)
            else:
                self.begin(one.id, one.about).restore(one)
        self._make_room()
        return is_complete

    async def sweep(self) -> None:
        """Forget executions that ended long ago, and make room. For a periodic job."""
        self._make_room()
        if self._database is not None:
            try:
                await cancellation.in_thread(self._database.give_back_space)
            except sqlite3.Error:
                _log.exception("the database of journals cannot shrink")

    def _make_room(self) -> None:
        ended = [(one.ended_at, one) for one in self if one.ended_at is not None]
        oldest = time.time() - self._bounds.keep_seconds
        total = sum(journal.size_bytes for journal in self)
        for ended_at, journal in sorted(ended, key=operator.itemgetter(0)):
            is_old = ended_at < oldest
            is_many = len(self._journals) > self._bounds.executions
            if is_old or is_many or total > self._bounds.total_bytes:
                total -= journal.size_bytes
                self.remove(journal.id)
        if total > self._bounds.total_bytes:
            # All of these still run: each keeps its beginning and what came last.
            for journal in self:
                journal.shrink(0)
        # What the small ones leave of their shares is for the large ones.
        free_bytes = self._bounds.memory_bytes
        by_size = sorted(self, key=operator.attrgetter("memory_bytes"))
        for index, journal in enumerate(by_size):
            journal.trim_memory(free_bytes / (len(by_size) - index))
            free_bytes -= journal.memory_bytes

    def _note_appended(self, size_bytes: int) -> None:
        self._unchecked_bytes += size_bytes
        max_bytes = min(self._bounds.total_bytes, self._bounds.memory_bytes)
        if self._unchecked_bytes > max_bytes // _CHECK_SHARE:
            self._unchecked_bytes = 0
            self._make_room()

    def _write_soon(self, journal: Journal) -> None:
        if self._journals.get(journal.id) is journal:
            self._waiting[journal.id] = journal
            self._is_wanted.set()

    async def _write_all(self) -> None:
        """Write for all journals, until they are closed."""
        while not self._is_closing:
            await self._is_wanted.wait()
            await asyncio.sleep(_PAUSE_SECONDS if self._is_disk_good else _RETRY_SECONDS)
            self._is_wanted.clear()
            await self._write()

    async def _write(self) -> None:
        """Write what waits; if the disk refuses, it waits on."""
        if self._database is None or not (self._waiting or self._removed):
            return
        waiting, self._waiting = self._waiting, {}
        removed, self._removed = self._removed, set()
        changes = [journal.pending() for journal in waiting.values()]
        try:
            refused = await cancellation.in_thread(self._database.write, changes, removed)
        except Exception as error:
            # The last net as well: without this task nothing would be written any more.
            if self._is_disk_good:
                _log.exception("the output of executions cannot be written")
            if type(error) in (sqlite3.DatabaseError, sqlite3.ProgrammingError):
                # Damage, unlike a full disk, does not go away. Nor does what was closed for it.
                await self._begin_anew(self._database)
            self._is_disk_good = False
            self._removed |= removed
            self._is_wanted.set()
            for journal in waiting.values():
                self._write_soon(journal)
            return
        self._is_disk_good = True
        for journal, change in zip(waiting.values(), changes, strict=True):
            if journal.id in refused:
                journal.keep_in_memory()
            else:
                journal.note_written(change)

    async def _begin_anew(self, database: journal_databases.JournalDatabase) -> None:
        try:
            await cancellation.in_thread(database.begin_anew)
        except (sqlite3.Error, OSError):
            _log.exception("the damaged database of journals cannot be replaced")

    async def _close(
        self, writing: asyncio.Task[None], database: journal_databases.JournalDatabase
    ) -> None:
        # Not cancelled: in the middle of a write it would not know how much was written.
        self._is_closing = True
        self._is_wanted.set()
        try:
            await writing
            await self._write()
        finally:
            await asyncio.to_thread(database.close)
