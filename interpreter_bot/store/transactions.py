"""Transactions: the only way to the database, and where its errors become ours."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TypeAlias

import sqlalchemy
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot import errors
from interpreter_bot.store import engines

_log = logging.getLogger(__name__)

Transaction: TypeAlias = sa_asyncio.AsyncConnection
"""What is done through one happens as a whole, or not at all."""
UpsertingInsert: TypeAlias = sqlite.Insert | postgresql.Insert


class Transactions:
    """Begins transactions on one engine. Nothing may be awaited in one but the database."""

    def __init__(self, engine: sa_asyncio.AsyncEngine) -> None:
        self._readers = engine
        self._writers = engine.execution_options(**{engines.WRITING: True})
        self.is_sqlite = engine.dialect.name == "sqlite"
        # SQLite lets others wait by sleeping, ever longer and in no order; so of our own writers
        # only one at a time gets that far, in the order they came.
        self._turnstile = asyncio.Lock() if self.is_sqlite else contextlib.nullcontext()

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        """Begin a transaction that changes nothing.

        Raises:
            StoreError: the database cannot be used.
        """
        with translated():
            async with self._readers.begin() as transaction:
                yield transaction

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[Transaction]:
        """Begin a transaction that changes something; undone where its block is left by an error.

        Raises:
            StoreError: the database cannot be used.
        """
        with translated():
            async with self._turnstile, self._writers.begin() as transaction:
                yield transaction

    def insert(self, table: sqlalchemy.Table) -> UpsertingInsert:
        """Begin an INSERT that can say what is to happen `on_conflict`."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn what databases raise into a sentence.

    Raises:
        StoreError: the database cannot be used.
    """
    try:
        yield
    except (exc.SQLAlchemyError, OSError) as error:
        _log.warning("the database could not be used", exc_info=error)
        raise errors.StoreError("The database cannot be used right now.") from error
