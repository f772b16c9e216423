"""The active bot of a database: one bot acts, and all others stand by until it ends.

The active bot holds a lock until its process ends: a lock on a file beside an SQLite database, or
an advisory lock of a separate session on a PostgreSQL server. The bot uses that session every two
seconds. The server ends a session that is unused for eight seconds, and a bot that got no answer
for five seconds writes nothing. So two bots never act at once, even if one is suspended or its
machine loses its network.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import pathlib
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias

import sqlalchemy
from sqlalchemy import exc, pool
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot import errors
from interpreter_bot.store import engines, transactions
from interpreter_bot.wording import storage_words

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
_RECONNECT_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 2.0
_LEASE_SECONDS: Final = 5.0
_SET_IDLE_TIMEOUT: Final = sqlalchemy.text("select set_config('idle_session_timeout', '8s', false)")
# The server may be started together with the bot.
_SERVER_START_SECONDS: Final = 30.0
_STARTING_STATE: Final = "57P03"
_CONNECTION_ERRORS: Final = (exc.SQLAlchemyError, OSError)


class ActiveBot:
    """The bot that acts. Use `hold`.

    Attributes:
        id: unique among all bots that were ever active.
        lost: set when another bot may act; then this one must end at once.
    """

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.lost = asyncio.Event()
        self._is_certain = asyncio.Event()
        self._certain_until = math.inf

    async def ensure_active(self) -> None:
        """Wait until it is certain that no other bot acts.

        Raises:
            StoreError: it did not become certain in time.
        """
        try:
            async with asyncio.timeout(_LEASE_SECONDS):
                while _now() >= self._certain_until:
                    if self.lost.is_set():
                        raise TimeoutError
                    self._is_certain.clear()
                    await self._is_certain.wait()
        except TimeoutError as error:
            raise errors.StoreError(storage_words.DATABASE_DOWN) from error

    async def _watch(self, lock: _ServerLock) -> None:
        """Use the lock's session until it is lost."""
        used_at = _now()
        while True:
            self._certain_until = used_at + _LEASE_SECONDS
            self._is_certain.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await lock.is_closed.wait()
            used_at = _now()
            attempt = asyncio.create_task(lock.try_acquire(), name="store: stay active")
            # Wait twice: if the process was suspended, the answer may be there but not read yet.
            for seconds in (_LEASE_SECONDS - 1, 1):
                await asyncio.wait({attempt}, timeout=seconds)
            if not attempt.done():
                attempt.cancel()
                _log.error("the database does not answer")
                break
            if (error := attempt.exception()) is not None:
                _log.error("the connection that holds the lock is lost", exc_info=error)
                break
            if not attempt.result():
                _log.error("another session has the lock: is there a pooler before the server?")
                break
        self._certain_until = -math.inf
        self.lost.set()


@contextlib.asynccontextmanager
async def hold(url: str, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[ActiveBot]:
    """Be the active bot of a database while the context is open.

    Args:
        url: see `databases.Database.open`.
        on_wait: called once, if another bot is active.

    Raises:
        SettingsError: the URL cannot be used.
        StoreError: the database cannot be used.
    """
    address = engines.parse(url)
    bot = ActiveBot()
    with transactions.translate_opening_errors(address):
        if engines.is_sqlite(address):
            lock: _Lock = _FileLock(engines.database_file(address))
        else:
            lock = _ServerLock(address)
        try:
            await _wait_for_lock(lock, on_wait)
        except BaseException:
            await lock.release()
            raise
    watch_task = None
    if isinstance(lock, _ServerLock):
        watch_task = asyncio.create_task(bot._watch(lock), name="store: watch the lock")
    try:
        yield bot
    finally:
        if watch_task is not None:
            watch_task.cancel()
            await asyncio.wait({watch_task})
        await lock.release()


async def _wait_for_lock(lock: _Lock, on_wait: Callable[[], None]) -> None:
    """Wait until a lock is ours.

    Raises:
        SQLAlchemyError: the server refuses, or could not be reached for a while.
        OSError: likewise, or a file cannot be used.
    """
    deadline = time.monotonic() + _SERVER_START_SECONDS
    is_reported = is_unreachable = False
    while True:
        seconds = _RETRY_SECONDS
        try:
            # Statements that wait for the lock instead would keep the server from cleaning up.
            async with asyncio.timeout(_LEASE_SECONDS):
                if await lock.try_acquire():
                    return
        except _CONNECTION_ERRORS as error:
            is_late = not is_reported and time.monotonic() > deadline
            if is_late or not (is_reported or _may_be_starting(error)):
                raise
            if not is_unreachable:
                _log.warning("the database cannot be reached yet: %s", error)
            is_unreachable, seconds = True, _RECONNECT_SECONDS
        else:
            is_unreachable = False
            if not is_reported:
                is_reported = True
                on_wait()
        await asyncio.sleep(seconds)


def _may_be_starting(error: Exception) -> bool:
    original = error.orig if isinstance(error, exc.DBAPIError) else error
    return isinstance(original, OSError) or getattr(original, "sqlstate", "") == _STARTING_STATE


class _FileLock:
    """Lock on a file beside an SQLite database."""

    def __init__(self, database: pathlib.Path) -> None:
        # Resolved, because bots may reach the same database by different links.
        database = database.resolve()
        path = database.with_name(f"{database.name}-active")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    async def try_acquire(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def release(self) -> None:
        os.close(self._descriptor)


class _ServerLock:
    """Advisory lock of a session on a server.

    Attributes:
        is_closed: set when the connection was closed.
    """

    def __init__(self, url: sqlalchemy.URL) -> None:
        self.is_closed = asyncio.Event()
        self._engine = sa_asyncio.create_async_engine(
            url,
            poolclass=pool.NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            connect_args={"server_settings": {"application_name": "interpreter-bot active"}},
        )
        self._connection: sa_asyncio.AsyncConnection | None = None

    async def try_acquire(self) -> bool:
        # The session that holds the lock acquires it once more. Behind a pooler this may be another
        # session, which fails.
        try:
            if self._connection is None:
                self._connection = await self._engine.connect()
                await self._prepare(self._connection)
            query = sqlalchemy.select(
                sqlalchemy.func.pg_try_advisory_lock(engines.lock_number("active"))
            )
            return bool((await self._connection.execute(query)).scalar_one())
        except BaseException:
            await self._close()
            raise

    async def _prepare(self, connection: sa_asyncio.AsyncConnection) -> None:
        await connection.execute(_SET_IDLE_TIMEOUT)
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None, "it is connected"  # noqa: S101
        driver.add_termination_listener(lambda _: self.is_closed.set())

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                await connection.close()
        self.is_closed.clear()

    async def release(self) -> None:
        await self._close()
        await self._engine.dispose()


_Lock: TypeAlias = _FileLock | _ServerLock


def _now() -> float:
    """Return the time in seconds, including those for which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
