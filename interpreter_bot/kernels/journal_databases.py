"""Database of journals: one SQLite file for all hosts of a data directory.

Each host owns the journals of its executions, and takes over the journals of dead hosts. All
methods block; `execution_journals` calls them in threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import pathlib
import sqlite3
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from interpreter_bot import settings
from interpreter_bot.kernels import file_locks

_log = logging.getLogger(__name__)

BUSY_SECONDS: Final = 10.0
"""How long a write waits for another host's, by default."""

_FILE_NAME: Final = "journals.sqlite"
_DAMAGED_FILE_NAME: Final = "journals.damaged"
_LOCK_SUFFIX: Final = ".lock"
_MAX_FREED_PAGES: Final = 4096
_MAX_FREE_WAL_BYTES: Final = 16 * settings.MIB
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS executions (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    began_at REAL NOT NULL,
    size_bytes INTEGER NOT NULL,
    ended_at REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    execution TEXT NOT NULL,
    number INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (execution, number)
) WITHOUT ROWID;
"""
_SELECT_JOURNALS: Final = """
SELECT id, began_at, size_bytes, ended_at,
    coalesce((SELECT max(number) FROM events WHERE execution = id), 0)
FROM executions WHERE host = ?
"""
_SELECT_EVENTS: Final = """
SELECT number, record FROM events
WHERE execution = ? AND number >= ? AND number < ? ORDER BY number
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Changes of one journal to write.

    Attributes:
        events: numbers and records of new events.
        deleted_ranges: first and last numbers of events to delete.
        size_bytes: size of all records afterwards.
        ended_at: None while the execution runs.
    """

    id: str
    began_at: float
    events: Sequence[tuple[int, bytes]]
    deleted_ranges: Sequence[tuple[int, int]]
    size_bytes: int
    ended_at: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class StoredJournal:
    """Journal of a dead host; `last_number` is the number of its last event."""

    id: str
    began_at: float
    size_bytes: int
    ended_at: float | None
    last_number: int


class JournalDatabase:
    """Open database of one host, whose lock is held until `close`."""

    def __init__(self, directory: pathlib.Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        """Open the database, or create a new one if the file is damaged.

        `busy_seconds` is how long a write waits for another host's.

        Raises:
            OSError: the directory cannot be used.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._busy_seconds = busy_seconds
        self._host = uuid.uuid4().hex
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        try:
            self._writer, self._reader = self._connect_or_replace()
            # Lock in a transaction: until then, other hosts would take this one for dead.
            with self._transaction():
                self._lock = os.open(
                    self._lock_file(self._host), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
                )
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        except sqlite3.Error as error:
            raise OSError(f"{directory / _FILE_NAME} cannot be opened: {error}") from error

    def _connect_or_replace(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        try:
            return _connect(self._directory, self._busy_seconds)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            path = self._directory / _FILE_NAME
            _log.exception("%s is damaged; its executions are lost", path)
            _move_aside(self._directory)
            return _connect(self._directory, self._busy_seconds)

    def _lock_file(self, host: str) -> pathlib.Path:
        return self._directory / f"{host}{_LOCK_SUFFIX}"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._write_lock:
            self._writer.execute("BEGIN IMMEDIATE")
            with self._writer:
                yield self._writer

    def take_over(self) -> tuple[list[StoredJournal], bool]:
        """Take over the journals of dead hosts.

        Returns:
            The journals, and whether no other host is alive.

        Raises:
            sqlite3.Error: the disk refuses.
        """
        with self._transaction() as connection:
            live_hosts = [self._host]
            for path in self._directory.glob(f"*{_LOCK_SUFFIX}"):
                if path.stem == self._host:
                    continue
                if file_locks.is_locked(path):
                    live_hosts.append(path.stem)
                else:
                    path.unlink(missing_ok=True)
            rows = []
            for (host,) in connection.execute("SELECT DISTINCT host FROM executions").fetchall():
                if host not in live_hosts:
                    rows += connection.execute(_SELECT_JOURNALS, (host,)).fetchall()
                    connection.execute(
                        "UPDATE executions SET host = ? WHERE host = ?", (self._host, host)
                    )
        return [StoredJournal(*row) for row in rows], len(live_hosts) == 1

    def write(self, changes: Collection[Change], removed_ids: Collection[str]) -> None:
        """Write changes and delete journals of this host; a repeated call does no harm.

        Raises:
            sqlite3.Error: the disk refuses; no change was written.
        """
        for id in removed_ids:
            # A transaction for each, because other hosts wait meanwhile: a gigabyte takes 12 s.
            with self._transaction() as connection:
                connection.execute("DELETE FROM executions WHERE id = ?", (id,))
                connection.execute("DELETE FROM events WHERE execution = ?", (id,))
        with self._transaction() as connection:
            for change in changes:
                self._write_change(connection, change)

    def _write_change(self, connection: sqlite3.Connection, change: Change) -> None:
        connection.execute(
            "INSERT INTO executions VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET size_bytes = excluded.size_bytes, ended_at = excluded.ended_at",
            (change.id, self._host, change.began_at, change.size_bytes, change.ended_at),
        )
        # A write that seemed to fail may have succeeded, and is then repeated.
        connection.executemany(
            "INSERT OR REPLACE INTO events VALUES (?, ?, ?)",
            ((change.id, number, record) for number, record in change.events),
        )
        connection.executemany(
            "DELETE FROM events WHERE execution = ? AND number BETWEEN ? AND ?",
            (
                (change.id, first_number, last_number)
                for first_number, last_number in change.deleted_ranges
            ),
        )

    def read(
        self, id: str, first_number: int, end_number: int, max_bytes: int
    ) -> list[tuple[int, bytes]]:
        """Read events from `first_number` to below `end_number`: as many as fit, but at least one.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        events: list[tuple[int, bytes]] = []
        size_bytes = 0
        with self._read_lock, contextlib.closing(self._reader.cursor()) as rows:
            for number, record in rows.execute(_SELECT_EVENTS, (id, first_number, end_number)):
                if events and size_bytes + len(record) > max_bytes:
                    break
                events.append((number, record))
                size_bytes += len(record)
        return events

    def shrink_file(self) -> None:
        """Shrink the file by some of the pages of deleted events.

        Raises:
            sqlite3.Error: the disk refuses.
        """
        with self._write_lock:
            # Some pages at a time, as other hosts wait for the lock. `execute` would free only one.
            self._writer.executescript(f"PRAGMA incremental_vacuum({_MAX_FREED_PAGES})")

    def replace_damaged_file(self) -> None:
        """Set a damaged file aside and create another; its executions are lost.

        Raises:
            sqlite3.Error, OSError: the disk refuses.
        """
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()
            _move_aside(self._directory)
            self._writer, self._reader = _connect(self._directory, self._busy_seconds)

    def close(self) -> None:
        """Close the database; other hosts may take over its journals."""
        self._reader.close()
        self._writer.close()
        os.close(self._lock)


def _connect(
    directory: pathlib.Path, busy_seconds: float
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    path = directory / _FILE_NAME
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(2):
            connection = sqlite3.connect(
                path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
            )
            stack.callback(connection.close)
            # `shrink_file` shrinks the file. FULL would move all pages of deleted events in the
            # transaction that deletes them: for a gigabyte, other hosts would wait too long. A file
            # that has tables already can only change between these two.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            # A killed process loses nothing; a crash of the machine may lose the last moment.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_FREE_WAL_BYTES}").fetchall()
            connection.executescript(_SCHEMA)
            connections.append(connection)
        stack.pop_all()
    return connections[0], connections[1]


def _move_aside(directory: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        (directory / _FILE_NAME).replace(directory / _DAMAGED_FILE_NAME)
    for suffix in ("-wal", "-shm"):
        (directory / f"{_FILE_NAME}{suffix}").unlink(missing_ok=True)
