"""SQLAlchemy engines, their pragmas and their URLs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import sqlalchemy
from sqlalchemy import event, exc, pool
from sqlalchemy.engine import interfaces
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot import errors
from interpreter_bot.wording import storage_words

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
# Options of a URL that the driver supports; any other would fail late and obscurely.
_URL_OPTIONS: Final = {"host", "port", "ssl", "passfile", "target_session_attrs"}
_FILE_NAME: Final = "interpreter-bot.db"


WRITING_OPTION: Final = "interpreter_bot_writing"
"""Execution option: take SQLite's write lock at once.

Otherwise a transaction that reads and then writes fails at once if another one wrote in between.
"""
_BUSY_MILLISECONDS: Final = 30_000
_POOL_SIZE: Final = 10
# The transaction of a suspended bot ends before another bot becomes active (`active_bot`).
_SERVER_SETTINGS: Final = {"idle_in_transaction_session_timeout": "5s"}


def default_url(data: pathlib.Path) -> str:
    """Return the URL of the default database: a file in the data directory."""
    return sqlalchemy.URL.create("sqlite", database=str(data / _FILE_NAME)).render_as_string()


def parse(url: str) -> sqlalchemy.URL:
    """Parse an operator's URL for the drivers in use.

    Raises:
        SettingsError: it is no URL of a usable database. The sentence contains no password.
    """
    try:
        database_url = sqlalchemy.make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise errors.SettingsError(storage_words.NOT_A_URL) from error
    driver = _DRIVERS.get(database_url.drivername)
    if driver is None:
        raise errors.SettingsError(storage_words.other_database(database_url.drivername))
    database_url = database_url.set(drivername=driver)
    if is_sqlite(database_url):
        # In memory, every connection would have a database of its own.
        if database_url.database in {None, "", ":memory:"} or "file:" in (
            database_url.database or ""
        ):
            raise errors.SettingsError(storage_words.NOT_A_FILE)
        return database_url
    # libpq calls this option `sslmode`, asyncpg `ssl`, with the same values.
    ssl_mode = database_url.query.get("sslmode")
    if ssl_mode is not None:
        database_url = database_url.difference_update_query(["sslmode"]).update_query_dict(
            {"ssl": ssl_mode}
        )
    unknown = database_url.query.keys() - _URL_OPTIONS
    if unknown:
        names = ", ".join(sorted(unknown))
        raise errors.SettingsError(storage_words.unknown_options(names))
    return database_url


def is_sqlite(url: sqlalchemy.URL) -> bool:
    """Return whether a URL is of an SQLite file, rather than a server."""
    return url.get_backend_name() == "sqlite"


def database_file(url: sqlalchemy.URL) -> pathlib.Path:
    """Return the file of an SQLite database."""
    return pathlib.Path(url.database or "")


def describe(url: sqlalchemy.URL) -> str:
    """Return which database it is, without the login."""
    if is_sqlite(url):
        return str(database_file(url))
    return f"{url.database or ''} at {url.host or 'this machine'}".strip()


def lock_number(name: str) -> int:
    """Return the number of an advisory lock: 64 bits, signed, unlikely to collide."""
    digest = hashlib.sha256(f"interpreter-bot {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def make(url: sqlalchemy.URL) -> sa_asyncio.AsyncEngine:
    """Create the engine of a running bot."""
    options: dict[str, Any] = {"pool_size": _POOL_SIZE, "max_overflow": 0, "hide_parameters": True}
    if is_sqlite(url):
        engine = sa_asyncio.create_async_engine(url, **options)
        _prepare_sqlite(engine.sync_engine, foreign_keys=True)
    else:
        # A server that was restarted leaves dead connections.
        options |= {"pool_pre_ping": True, "connect_args": {"server_settings": _SERVER_SETTINGS}}
        engine = sa_asyncio.create_async_engine(url, **options)
    _wrap_system_errors(engine.sync_engine)
    return engine


def check_commits(
    engine: sa_asyncio.AsyncEngine, check: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Await `check` before each commit, also of libraries; if it raises, the commit fails."""

    @event.listens_for(engine.sync_engine, "commit")
    def commit(connection: sqlalchemy.Connection) -> None:
        driver: Any = connection.connection.dbapi_connection
        driver.run_async(lambda _: check())


def make_for_upgrade(url: sqlalchemy.URL) -> sa_asyncio.AsyncEngine:
    """Create an engine for migrations: no pool, write-ahead log, permission to rebuild tables.

    SQLite alters a table by copying and dropping it. With foreign keys on, dropping would delete
    what refers to it.
    """
    engine = sa_asyncio.create_async_engine(url, poolclass=pool.NullPool, hide_parameters=True)
    if is_sqlite(url):
        _prepare_sqlite(engine.sync_engine, foreign_keys=False)
        _enable_write_ahead_log(engine.sync_engine)
    return engine


def make_file(url: sqlalchemy.URL) -> None:
    """Create the file of an SQLite database, readable only by this user, if missing.

    Raises:
        OSError: it cannot be created.
    """
    path = database_file(url)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its -wal and -shm files the same mode. An existing file must not be opened here:
    # closing it would release the locks of all connections of this process, and another process
    # would delete the log that they write to.
    with contextlib.suppress(FileExistsError):
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        # Resolved, because SQLite follows a link to a missing file and would create that itself.
        os.close(os.open(path.resolve(), flags, 0o600))


def _wrap_system_errors(engine: sqlalchemy.Engine) -> None:
    """Let SQLAlchemy raise a driver's OSError as its own.

    An OSError that leaves a transaction then comes from the caller, not from the database.
    """

    @event.listens_for(engine, "do_connect")
    def connect(
        dialect: sqlalchemy.Dialect, _: object, arguments: list[Any], options: dict[str, Any]
    ) -> interfaces.DBAPIConnection:
        try:
            return dialect.connect(*arguments, **options)
        except OSError as error:
            raise exc.OperationalError(None, None, error) from error

    @event.listens_for(engine, "handle_error")
    def wrap(context: sqlalchemy.ExceptionContext) -> None:
        if isinstance(error := context.original_exception, OSError):
            context.chained_exception = exc.OperationalError(context.statement, None, error)


def _prepare_sqlite(engine: sqlalchemy.Engine, *, foreign_keys: bool) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: object) -> None:  # noqa: ANN401
        # By default, the driver itself begins transactions: too late, and only before some
        # statements.
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
        is_writing = connection.get_execution_options().get(WRITING_OPTION, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    @event.listens_for(engine, "handle_error")
    def keep_connection(context: sqlalchemy.ExceptionContext) -> None:
        # The connection's thread ends the statement and then accepts the ROLLBACK. By default, the
        # connection would be closed instead, and hold the write lock until the statement is
        # garbage-collected.
        if isinstance(context.original_exception, asyncio.CancelledError):
            context.is_disconnect = False


def _enable_write_ahead_log(engine: sqlalchemy.Engine) -> None:
    """Enable the write-ahead log for good, so that readers and a writer do not block each other."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: object) -> None:  # noqa: ANN401
        cursor = connection.cursor()
        # The log cannot be enabled inside a transaction.
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()
