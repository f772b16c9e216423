"""Transactions: the only access to the database, which translates its errors."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlalchemy
from sqlalchemy import exc
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot import errors
from interpreter_bot.store import columns, engines
from interpreter_bot.wording import storage_words

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_log = logging.getLogger(__name__)

Transaction: TypeAlias = sa_asyncio.AsyncConnection
"""Database transaction: done as a whole, or not at all."""
UpsertingInsert: TypeAlias = "sqlite.Insert | postgresql.Insert"


class Transactions:
    """Transactions on one engine. In one, await nothing but the database.

    Args:
        engine: of the database.
    """

    def __init__(self, engine: sa_asyncio.AsyncEngine) -> None:
        self._readers = engine
        self._writers = engine.execution_options(**{engines.WRITING: True})
        self.is_sqlite = engine.dialect.name == "sqlite"
        alone = {} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._alone = engine.execution_options(**alone)
        # SQLite lets writers wait by sleeping, ever longer and in no order; so only one writer of
        # this process at a time gets that far, in the order they came.
        self._turnstile = asyncio.Lock() if self.is_sqlite else contextlib.nullcontext()
        # By task, and not by a context variable, which the tasks that it begins would inherit.
        self._read: dict[asyncio.Task[Any] | None, Transaction] = {}
        self._written: dict[asyncio.Task[Any] | None, Transaction] = {}

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        """Begin a read-only transaction, or go on with that of `together`.

        Raises:
            StoreError: the database cannot be used.
        """
        task = asyncio.current_task()
        if (joined := self._read.get(task) or self._written.get(task)) is not None:
            yield joined
            return
        with translated():
            # Without a commit, which may be refused.
            async with self._readers.connect() as transaction:
                yield transaction

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[Transaction]:
        """Begin a writing transaction, or go on with that of `together`; rolled back if its block
        raises.

        Raises:
            StoreError: the database cannot be used.
        """
        if (joined := self._written.get(asyncio.current_task())) is not None:
            yield joined
            return
        async with self._turnstile:
            with translated():
                async with self._writers.begin() as transaction:
                    yield transaction

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[Transaction]:
        """Read by one statement, a transaction by itself; or go on with that of `together`.

        A server need not be told where it begins and ends: that is half of the time of a short one.

        Raises:
            StoreError: the database cannot be used.
        """
        task = asyncio.current_task()
        if self.is_sqlite or task in self._written or task in self._read:
            async with self.reading() as transaction:
                yield transaction
            return
        with translated():
            async with self._alone.connect() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def together(self, *, is_writing: bool) -> AsyncIterator[None]:
        """Let all that this task does within the block be one transaction.

        Raises:
            StoreError: the database cannot be used.
        """
        task = asyncio.current_task()
        joined = self._written if is_writing else self._read
        async with self.writing() if is_writing else self.reading() as transaction:
            joined[task] = transaction
            try:
                yield
            finally:
                del joined[task]

    def clock(self, *, ago: datetime.timedelta) -> sqlalchemy.ColumnElement[datetime.datetime]:
        """Return a time of now or before, by the one clock that all bots of a database share."""
        if self.is_sqlite:
            return sqlalchemy.literal(columns.now() - ago, columns.Moment)
        now = sqlalchemy.func.clock_timestamp(type_=sqlalchemy.DateTime(timezone=True))
        return now - ago

    def insert(self, table: sqlalchemy.Table) -> UpsertingInsert:
        """Begin an INSERT that supports `on_conflict`."""
        if self.is_sqlite:
            return sqlite.insert(table)
        # Imported here: a start with SQLite would take a twentieth of a second longer.
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)


@contextlib.contextmanager
def translated(
    kinds: tuple[type[Exception], ...] = (exc.SQLAlchemyError,),
) -> Iterator[None]:
    """Translate a database's exceptions, by default SQLAlchemy's, into a sentence.

    Raises:
        StoreError: the database cannot be used.
    """
    try:
        yield
    except kinds as error:
        _log.warning("the database could not be used", exc_info=error)
        raise errors.StoreError(storage_words.DATABASE_DOWN) from error
