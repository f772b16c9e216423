"""Transactions: the only access to the database, which translates its errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext import asyncio as sa_asyncio
from sqlalchemy.sql import selectable

from interpreter_bot import errors
from interpreter_bot.store import engines, records
from interpreter_bot.wording import storage_words

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_log = logging.getLogger(__name__)

# No record in memory needs to learn of changes.
_EXECUTION_OPTIONS: Final = {"synchronize_session": False, "render_nulls": True}

UpsertingInsert: TypeAlias = "sqlite.Insert | postgresql.Insert"
_Row = TypeVar("_Row")


class Transactions:
    """Transactions on one engine: one for each statement, or one for all of a block."""

    def __init__(self, engine: sa_asyncio.AsyncEngine) -> None:
        self._reading_engine = engine
        self._writing_engine = engine.execution_options(**{engines.WRITING_OPTION: True})
        self.is_sqlite = engine.dialect.name == "sqlite"
        # SQLite lets waiting writers sleep, longer each time and in no order. With this lock,
        # writers of this process take turns in the order of arrival.
        self._write_lock = asyncio.Lock() if self.is_sqlite else contextlib.nullcontext()
        # By task, and not in context variables, which new tasks would inherit.
        self._reading_sessions: dict[asyncio.Task[Any] | None, sa_asyncio.AsyncSession] = {}
        self._writing_sessions: dict[asyncio.Task[Any] | None, sa_asyncio.AsyncSession] = {}

    @contextlib.asynccontextmanager
    async def transaction(self, *, is_writing: bool) -> AsyncIterator[sa_asyncio.AsyncSession]:
        """Make one transaction of everything that this task does with the database in the block.

        The block must await nothing but the database.

        Raises:
            StoreError: the database cannot be used.
        """
        task = asyncio.current_task()
        outer_session = self._writing_sessions.get(task) or (
            None if is_writing else self._reading_sessions.get(task)
        )
        if outer_session is not None:
            yield outer_session
            return
        sessions = self._writing_sessions if is_writing else self._reading_sessions
        async with self._write_lock if is_writing else contextlib.nullcontext():
            with translate_errors():
                # The connection commits: a session whose commit fails gives its connection back
                # with the transaction open, and so with SQLite's write lock.
                connecting = (
                    self._writing_engine.begin() if is_writing else self._reading_engine.connect()
                )
                async with connecting as connection, sa_asyncio.AsyncSession(connection) as session:
                    sessions[task] = session
                    try:
                        yield session
                    finally:
                        del sessions[task]

    async def all(self, query: selectable.TypedReturnsRows[_Row]) -> tuple[_Row, ...]:
        """Return the records, or the values, that a query finds."""
        async with self.transaction(is_writing=not query.is_select) as session:
            values = (await session.scalars(query, execution_options=_EXECUTION_OPTIONS)).all()
            # Detach the records, so that no later statement or rollback changes them.
            session.expunge_all()
            return tuple(values)

    async def first(self, query: selectable.TypedReturnsRows[_Row]) -> _Row | None:
        """Return the first of `all`; None if there is none."""
        return next(iter(await self.all(query)), None)

    async def one(self, query: selectable.TypedReturnsRows[_Row]) -> _Row:
        """Return the only one of `all`."""
        (value,) = await self.all(query)
        return value

    async def rows(self, query: sa.Select[*tuple[Any, ...]]) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Return the rows that a query of several columns finds."""
        async with self.transaction(is_writing=False) as session:
            rows = (await session.execute(query, execution_options=_EXECUTION_OPTIONS)).all()
            session.expunge_all()
            return rows

    async def change(self, statement: sa.UpdateBase) -> int:
        """Run a statement that returns no rows; return how many it changed."""
        async with self.transaction(is_writing=True) as session:
            result = await session.execute(statement, execution_options=_EXECUTION_OPTIONS)
            assert isinstance(result, sa.CursorResult)  # noqa: S101 - of any such statement.
            return result.rowcount

    async def add(self, insert: sa.Insert, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows that all have the same columns."""
        async with self.transaction(is_writing=True) as session:
            await session.execute(insert, rows, execution_options=_EXECUTION_OPTIONS)

    async def lock(self, name: str) -> None:
        """Wait until no other writing transaction has this lock; hold it until this one ends.

        Take it before a check on which a write depends. SQLite has one writer at a time anyway.
        """
        if not self.is_sqlite:
            lock = sa.func.pg_advisory_xact_lock(engines.lock_number(name))
            async with self.transaction(is_writing=True) as session:
                await session.execute(sa.select(lock))

    def insert(self, table: type[records.Record]) -> UpsertingInsert:
        """Begin an INSERT that supports `on_conflict`."""
        if self.is_sqlite:
            return sqlite.insert(table)
        # Imported here to save 50 ms at a start with SQLite.
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)


class Aggregate:
    """Tables that belong together, and the statements on them.

    Args:
        owner: the bot to which new turns, and claimed events, belong.
    """

    def __init__(self, transactions: Transactions, owner: str = "") -> None:
        self._transactions = transactions
        self._owner = owner


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate SQLAlchemy's exceptions into StoreError.

    Raises:
        StoreError: the database cannot be used.
    """
    try:
        yield
    except exc.SQLAlchemyError as error:
        _log.warning("the database could not be used", exc_info=error)
        raise errors.StoreError(storage_words.DATABASE_DOWN) from error


@contextlib.contextmanager
def translate_opening_errors(url: sa.URL) -> Iterator[None]:
    """Translate exceptions while a database is opened; an operator reads the sentence.

    Raises:
        StoreError: the database cannot be used; the sentence says which one, and why.
    """
    try:
        yield
    except (exc.SQLAlchemyError, OSError) as error:
        _log.info("the database could not be opened", exc_info=error)
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        reason = str(cause).partition("\n")[0]
        if isinstance(cause, OSError) and cause.errno:
            reason = os.strerror(cause.errno)
        sentence = storage_words.database_unusable(engines.describe(url), reason)
        raise errors.StoreError(sentence) from error
