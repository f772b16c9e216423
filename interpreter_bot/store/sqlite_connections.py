"""SQLite connections whose statements each take one trip to their thread.

SQLAlchemy's adapter asks a driver for a cursor, then for the statement, its rows and the cursor's
end; where a driver has a thread, as aiosqlite does, each of them is a trip of a quarter of a
millisecond, and a turn of one step waited for eighty.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sqlite3
from collections.abc import Iterable
from typing import Any

import aiosqlite


async def connect(path: pathlib.Path) -> aiosqlite.Connection:
    """Open the file; for the `async_creator` of an engine."""
    return await _Connection(path)


class _Connection(aiosqlite.Connection):
    def __init__(self, path: pathlib.Path) -> None:
        # SQLAlchemy registers its functions from the thread of the event loop.
        connector = functools.partial(sqlite3.connect, path, check_same_thread=False)
        super().__init__(connector, iter_chunk_size=64)
        # The interpreter's end does not wait for one that was never closed.
        self._thread.daemon = True
        self._is_between = False

    def cursor(self) -> _Cursor:  # type: ignore[override]  # A trip less; the adapter enters it.
        return _Cursor(self)

    async def commit(self) -> None:
        await super().commit()
        self._is_between = True

    async def rollback(self) -> None:
        """Roll back what was begun; a pool asks for it at each return, mostly for nothing."""
        if not self._is_between:
            await super().rollback()

    async def run(self, method: str, statement: str, parameters: Iterable[Any]) -> _Result:
        """Run a statement by this method of a cursor, and take all its rows."""
        self._is_between = False
        result: _Result = await self._execute(self._run, method, statement, parameters)  # type: ignore[no-untyped-call]
        return result

    def _run(self, method: str, statement: str, parameters: Iterable[Any]) -> _Result:
        cursor = self._conn.cursor()
        try:
            getattr(cursor, method)(statement, parameters)
            rows = cursor.fetchall() if cursor.description else []
            # After the rows: before, those that a statement changes and returns are not counted.
            return _Result(cursor.description, rows, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Result:
    """What a statement left, with PEP 249's names."""

    description: Any = None
    rows: list[Any] = dataclasses.field(default_factory=list)
    rowcount: int = -1
    lastrowid: int | None = None


class _Cursor:
    """As much of a cursor as SQLAlchemy's adapter of asynchronous drivers wants."""

    arraysize = 1

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._result = _Result()

    async def __aenter__(self) -> _Cursor:
        return self

    @property
    def description(self) -> Any:  # noqa: ANN401
        return self._result.description

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._result.lastrowid

    async def execute(self, statement: str, parameters: Iterable[Any] = ()) -> None:
        self._result = await self._connection.run("execute", statement, parameters)

    async def executemany(self, statement: str, parameters: Iterable[Any]) -> None:
        self._result = await self._connection.run("executemany", statement, parameters)

    async def fetchall(self) -> list[Any]:
        return self._result.rows

    async def close(self) -> None:
        """Nothing is open: all was read, and closed, in the statement's own trip."""
