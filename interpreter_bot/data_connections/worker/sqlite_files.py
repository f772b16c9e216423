"""SQLite files, by Python's own module, with an authorizer that refuses other actions."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

from interpreter_bot.data_connections import worker_messages
from interpreter_bot.data_connections.worker import arrow_results, ports, statements

_READ_ACTIONS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_WRITE_ACTIONS: Final = _READ_ACTIONS | {
    *(sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE),
    sqlite3.SQLITE_TRANSACTION,
}
# Functions that load code or read files.
_FORBIDDEN_FUNCTIONS: Final = frozenset(
    ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
)
_LIMITS: Final = (
    (sqlite3.SQLITE_LIMIT_LENGTH, 100_000_000),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_STEPS_BETWEEN_CHECKS: Final = 100_000
_BUSY_SECONDS: Final = 5.0
_MAX_TABLES: Final = 2000


class SqliteFile(ports.Database):
    """A SQLite file."""

    has_reading_transactions = True

    def __init__(self, specification: ports.Specification) -> None:
        address = specification.address.removeprefix("sqlite://")
        self._path = pathlib.Path(address.removeprefix("sqlite:"))
        self._may_write = specification.writes
        self._connection: sqlite3.Connection | None = None
        self._is_cancelled = False

    @contextlib.contextmanager
    def _open(self, *, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"file:{urllib.parse.quote(str(self._path))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        # The sandbox allows no temporary files.
        connection.execute("pragma temp_store = memory")
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._connection, self._is_cancelled = connection, False
        try:
            yield connection
        finally:
            self._connection = None
            connection.close()

    def query(
        self,
        statement: statements.Statement,
        limits: worker_messages.Limits,
        results: arrow_results.ResultStream,
    ) -> None:
        allowed_actions = _WRITE_ACTIONS if self._may_write else _READ_ACTIONS

        def authorize(action: int, _: str | None, name: str | None, *__: str | None) -> int:
            is_function = action == sqlite3.SQLITE_FUNCTION
            is_allowed = action in allowed_actions and not (
                is_function and name in _FORBIDDEN_FUNCTIONS
            )
            return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

        def should_abort() -> bool:
            return self._is_cancelled or results.seconds_left < 0

        with self._open(mode="rw" if self._may_write else "ro") as connection:
            for kind, limit in _LIMITS:
                connection.setlimit(kind, limit)
            connection.set_progress_handler(should_abort, _STEPS_BETWEEN_CHECKS)
            connection.set_authorizer(authorize)
            text = statement.render(lambda name: f":{name}")
            try:
                cursor = connection.execute(text, dict(statement.values))
                names = [column[0] for column in cursor.description or ()]
                results.send_rows(names, cursor)
            except sqlite3.OperationalError:
                results.check()
                raise

    def tables(self) -> list[ports.Table]:
        tables = []
        with self._open(mode="ro") as connection:
            names = connection.execute(
                "select name from sqlite_master where type in ('table', 'view') "
                "and name not like 'sqlite\\_%' escape '\\' order by name limit ?",
                (_MAX_TABLES,),
            ).fetchall()
            for (name,) in names:
                columns = connection.execute(
                    "select name, type from pragma_table_info(?)", (name,)
                ).fetchall()
                tables.append(ports.Table(name, columns, rows=_estimate_rows(connection, name)))
        return tables

    def cancel(self) -> None:
        self._is_cancelled = True
        if (connection := self._connection) is not None:
            connection.interrupt()


def _estimate_rows(connection: sqlite3.Connection, name: str) -> int:
    """Estimate the rows of a table by its last row id; -1 if it has none.

    Counting would read the whole table. The estimate is too high if rows were deleted.
    """
    quoted_name = name.replace('"', '""')
    try:
        query = f'select max(rowid) from "{quoted_name}"'  # noqa: S608
        last_row_id: Any = connection.execute(query).fetchone()[0]
    except sqlite3.Error:
        return -1
    return last_row_id if isinstance(last_row_id, int) else 0
