"""Liveness of the bot's instances: each holds a lock that its death releases.

A turn that is left running belongs to an instance. Clocks cannot tell whether that one is dead or
only slow: it holds a lock as long as it lives, on a file beside an SQLite database, on the server
otherwise. So a restart finds its own orphans at once, however soon it comes, and never mistakes
another replica's turns for orphans.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import pathlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

import sqlalchemy
from sqlalchemy import exc, pool
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot.store import engines, transactions

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 10.0
_YOUNG_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5
_MOST_POLLS: Final = 20
# Who asks others waits for longer (`sessions.replica_calls`), as a notification may be missed.
_HEAR_SECONDS: Final = 1.0
_CHANNEL: Final = "interpreter_bot"
_APPLICATION: Final = "interpreter-bot "
_REPLICA: Final = _APPLICATION + "replica "
_IDLE: Final = _APPLICATION + "idle "
_SERVING_BYTES: Final = 1
_IDLE_BYTES: Final = 2
_SERVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_NAME: Final = sqlalchemy.text("select set_config('application_name', :name, false)")
_REPLICAS: Final = f"^{_APPLICATION}(replica )?[0-9a-f]{{32}}$"
_IDENTITY = re.compile(r"[0-9a-f]{32}")
# A machine that vanishes closes no connection: the server has to probe. Seconds, and times.
_KEEPALIVES: Final = {
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
_OTHERS: Final = sqlalchemy.text(
    # A name without a kind is of a replica of an earlier release.
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and application_name ~ :all and application_name <> :mine"
)


class Instance(Protocol):
    """One running instance of the bot.

    Attributes:
        id: its name among all instances, never used again.
    """

    id: str

    async def is_dead(self, transaction: transactions.Transaction, owner: str) -> bool:
        """Return whether another instance is certainly dead."""

    async def serve(self, *, is_serving: bool) -> None:
        """Be one that others ask, or no more. Commands and bots that begin are none."""

    async def count_others(self, transaction: transactions.Transaction) -> int:
        """Count the other instances that can be asked."""

    async def notify(self, transaction: transactions.Transaction) -> None:
        """Let the others hear of what a transaction does, once it is done."""

    async def wait(self) -> None:
        """Wait until another instance may have done something that this one should hear of."""


@contextlib.asynccontextmanager
async def alive(url: sqlalchemy.URL) -> AsyncIterator[Instance]:
    """Register an instance of the bot on that database as long as the context is open.

    Raises:
        OSError: a file cannot be created.
        SQLAlchemyError: the server cannot be reached.
    """
    if engines.is_sqlite(url):
        with _FileInstance.hold(locks(url)) as instance:
            yield instance
        return
    holder = _ServerInstance(url)
    await holder.hold()
    watch = asyncio.create_task(holder.watch(), name="store: stay an instance")
    try:
        yield holder
    finally:
        watch.cancel()
        await asyncio.wait([watch])
        await holder.release()


def locks(url: sqlalchemy.URL) -> pathlib.Path:
    """Return the directory of lock files beside an SQLite database."""
    return engines.file(url).with_name(engines.file(url).name + "-instances")


class _FileInstance:
    """Instance that holds a lock on a file of its own."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.id = uuid.uuid4().hex
        self._directory = directory
        self._file = -1

    @classmethod
    @contextlib.contextmanager
    def hold(cls, directory: pathlib.Path) -> Iterator[_FileInstance]:
        directory.mkdir(mode=0o700, exist_ok=True)
        instance = cls(directory)
        instance._clear()
        path = directory / instance.id
        instance._file = file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.truncate(file, _IDLE_BYTES)
            yield instance
        finally:
            path.unlink(missing_ok=True)
            os.close(file)

    def _clear(self) -> None:
        """Remove the files of dead instances. The owner of a young one may be about to lock it."""
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _YOUNG_SECONDS:
                    self._is_dead(path.name)

    async def is_dead(self, transaction: transactions.Transaction, owner: str) -> bool:
        return self._is_dead(owner)

    async def serve(self, *, is_serving: bool) -> None:
        os.truncate(self._file, _SERVING_BYTES if is_serving else _IDLE_BYTES)

    async def count_others(self, transaction: transactions.Transaction) -> int:
        return self._count_others()

    async def notify(self, transaction: transactions.Transaction) -> None:
        """Do nothing: a file tells nobody, so all look."""

    async def wait(self) -> None:
        # A directory tells nobody. Also who is alone looks now and then: what died left something.
        for _ in range(_MOST_POLLS):
            await asyncio.sleep(_POLL_SECONDS)
            if self._count_others():
                return

    def _count_others(self) -> int:
        self._clear()
        count = 0
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                # One without any is of a replica of an earlier release, or about to be locked.
                is_served = path.name != self.id and path.stat().st_size <= _SERVING_BYTES
                count += is_served and not (path.stat().st_size and self._is_dead(path.name))
        return count

    def _is_dead(self, owner: str) -> bool:
        if not _IDENTITY.fullmatch(owner):
            return True
        path = self._directory / owner
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        path.unlink(missing_ok=True)
        return True


class _ServerInstance:
    """Instance that holds an advisory lock through a connection of its own."""

    def __init__(self, url: sqlalchemy.URL) -> None:
        self.id = uuid.uuid4().hex
        self._engine = sa_asyncio.create_async_engine(
            url,
            poolclass=pool.NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"server_settings": _KEEPALIVES | {"application_name": _IDLE + self.id}},
        )
        self._is_changed = asyncio.Event()
        self._is_lost = asyncio.Event()
        # A connection does one thing at a time.
        self._use = asyncio.Lock()
        self._is_serving = False
        self._connection: sa_asyncio.AsyncConnection | None = None

    async def hold(self) -> None:
        connection = await self._engine.connect()
        try:
            await connection.execute(
                sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(key(self.id)))
            )
            await self._name(connection)
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None, "it is connected"  # noqa: S101
            await driver.add_listener(_CHANNEL, lambda *_: self._is_changed.set())
            driver.add_termination_listener(lambda *_: self._is_lost.set())
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def _name(self, connection: sa_asyncio.AsyncConnection) -> None:
        name = (_REPLICA if self._is_serving else _IDLE) + self.id
        await connection.execute(_NAME, {"name": name})

    async def serve(self, *, is_serving: bool) -> None:
        self._is_serving = is_serving
        # Where the connection is lost, or silent, the next one is called so.
        with contextlib.suppress(exc.SQLAlchemyError, OSError):
            async with asyncio.timeout(_SERVE_SECONDS), self._use:
                if self._connection is not None:
                    await self._name(self._connection)

    async def watch(self) -> None:
        """Take the lock again whenever the connection that held it was lost.

        A replica that starts just then mistakes this instance's turns for orphans; their ends
        correct that.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._is_lost.wait()
            self._is_lost.clear()
            async with self._use:
                try:
                    if self._connection is None:
                        await self.hold()
                    else:
                        await self._name(self._connection)
                    continue
                except (exc.SQLAlchemyError, OSError) as error:
                    if self._connection is not None:
                        _log.warning("the lock that says we live was lost", exc_info=error)
                    await self._close_connection()
            # Others take this instance for gone meanwhile.
            self._is_lost.set()
            await asyncio.sleep(_RETRY_SECONDS)

    async def release(self) -> None:
        await self._close_connection()
        await self._engine.dispose()

    async def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(exc.SQLAlchemyError, OSError):
                await connection.close()

    async def is_dead(self, transaction: transactions.Transaction, owner: str) -> bool:
        # Getting the lock proves that no instance held it; the transaction releases it.
        attempt = sqlalchemy.select(sqlalchemy.func.pg_try_advisory_xact_lock(key(owner)))
        return bool((await transaction.execute(attempt)).scalar_one())

    async def count_others(self, transaction: transactions.Transaction) -> int:
        found = await transaction.execute(_OTHERS, {"all": _REPLICAS, "mine": _REPLICA + self.id})
        return int(found.scalar_one())

    async def notify(self, transaction: transactions.Transaction) -> None:
        await transaction.execute(sqlalchemy.select(sqlalchemy.func.pg_notify(_CHANNEL, self.id)))

    async def wait(self) -> None:
        # Nothing is heard while the connection is lost.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEAR_SECONDS):
                await self._is_changed.wait()
        self._is_changed.clear()


def key(name: str) -> int:
    """Return the number of an advisory lock: 64 bits, signed, unlikely to collide."""
    digest = hashlib.sha256(f"interpreter-bot {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
