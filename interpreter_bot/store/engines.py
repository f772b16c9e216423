"""Engines: how connections are made, and how their transactions begin."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import sqlalchemy
from sqlalchemy import event, pool
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot.store import urls

WRITING: Final = "interpreter_bot_writing"
"""Execution option: take SQLite's write lock at once.

Otherwise a transaction that first reads and then writes fails when another one wrote meanwhile,
and no waiting helps.
"""
_BUSY_MILLISECONDS: Final = 30_000
_CONNECTIONS: Final = 10


def make(url: sqlalchemy.URL, **options: Any) -> sa_asyncio.AsyncEngine:
    """Make the engine of a running bot."""
    options = {"pool_size": _CONNECTIONS, "max_overflow": 0, "hide_parameters": True, **options}
    if urls.is_sqlite(url):
        engine = sa_asyncio.create_async_engine(url, **options)
        _prepare_sqlite(engine.sync_engine, foreign_keys=True)
        return engine
    # A server that was restarted leaves dead connections in the pool.
    return sa_asyncio.create_async_engine(url, pool_pre_ping=True, **options)


def make_for_upgrade(url: sqlalchemy.URL) -> sa_asyncio.AsyncEngine:
    """Make an engine that keeps no connection, switches to a write-ahead log, may rebuild tables.

    SQLite alters a table by copying and dropping it. With foreign keys on, dropping would delete
    what refers to it.
    """
    engine = sa_asyncio.create_async_engine(url, poolclass=pool.NullPool, hide_parameters=True)
    if urls.is_sqlite(url):
        _prepare_sqlite(engine.sync_engine, foreign_keys=False)
        _switch_to_log(engine.sync_engine)
    return engine


def make_file(url: sqlalchemy.URL) -> None:
    """Make the file of an SQLite database, for our eyes only, where there is none.

    Raises:
        OSError: it cannot be made.
    """
    path = urls.file(url)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its -wal and -shm files the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _prepare_sqlite(engine: sqlalchemy.Engine, *, foreign_keys: bool) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: object) -> None:  # noqa: ANN401
        # The driver would begin transactions by itself, too late and only before some statements.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        cursor.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        # With a write-ahead log this loses nothing when the bot is killed; a power cut may lose
        # the last moments, but damages nothing.
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        is_writing = connection.get_execution_options().get(WRITING, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    @event.listens_for(engine, "handle_error")
    def keep_cancelled(context: sqlalchemy.ExceptionContext) -> None:
        # The connection's thread ends the statement and is then of use for the ROLLBACK. Closed
        # instead, as it would be, it holds the write lock until nobody refers to the statement.
        if isinstance(context.original_exception, asyncio.CancelledError):
            context.is_disconnect = False


def _switch_to_log(engine: sqlalchemy.Engine) -> None:
    """Let readers and a writer not wait for each other; it stays with the file."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: object) -> None:  # noqa: ANN401
        cursor = connection.cursor()
        # Here, because it cannot be done inside of a transaction.
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()
