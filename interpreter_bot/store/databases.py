"""The database as a whole: opened first, upgraded to the newest schema, closed last."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import pathlib
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final, cast

import sqlalchemy
from sqlalchemy import pool
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot import cancellation, errors
from interpreter_bot.store import (
    accounts,
    active_bot,
    activities,
    blobs,
    deliveries,
    engines,
    executions,
    fleet_hosts,
    notes,
    placements,
    preferences,
    records,
    schedules,
    session_copies,
    sessions,
    transactions,
    turn_parts,
    turn_questions,
    turns,
    usage,
)
from interpreter_bot.wording import storage_words

if TYPE_CHECKING:
    import alembic.config

_UPGRADE_LOCK_NUMBER: Final = engines.lock_number("upgrading")
_CLOSE_TIMEOUT_SECONDS: Final = 5.0
# Alembic keeps the running migration in a global variable.
_upgrade_lock = threading.Lock()

_log = logging.getLogger(__name__)


def alembic_config(connection: sqlalchemy.Connection | None = None) -> alembic.config.Config:
    """Return Alembic's configuration; `migrations/env.py` uses the connection, if given."""
    import alembic.config

    configuration = alembic.config.Config()
    configuration.set_main_option(
        "script_location", str(_migrations_directory()).replace("%", "%%")
    )
    configuration.set_main_option("path_separator", "os")
    configuration.attributes["connection"] = connection
    return configuration


def upgrade(url: sqlalchemy.URL) -> None:
    """Upgrade to the newest schema, under a lock against upgrades by other bots.

    It blocks, so call it in a thread.

    Raises:
        StoreError: the database is of another version.
        OSError: the file cannot be used, or the server cannot be reached.
        SQLAlchemyError: the database refused.
    """
    with _upgrade_lock, _locked_file(url):
        asyncio.run(_upgrade(url))


async def _upgrade(url: sqlalchemy.URL) -> None:
    engine = engines.make_for_upgrade(url)
    try:
        writers = engine.execution_options(**{engines.WRITING_OPTION: True})
        async with writers.begin() as connection:
            if not engines.is_sqlite(url):
                lock = sqlalchemy.func.pg_advisory_xact_lock(_UPGRADE_LOCK_NUMBER)
                await connection.execute(sqlalchemy.select(lock))
            await connection.run_sync(_migrate)
    finally:
        await engine.dispose()


def _migrate(connection: sqlalchemy.Connection) -> None:
    if _has_newest_schema(connection):
        return
    # Imported only if needed, because the import takes longer than all other database work at a
    # start.
    import alembic.command
    import alembic.util

    try:
        alembic.command.upgrade(alembic_config(connection), "head")
    except alembic.util.CommandError as error:
        raise errors.StoreError(storage_words.DATABASE_OF_OTHER_VERSION) from error


def _has_newest_schema(connection: sqlalchemy.Connection) -> bool:
    """Return whether the schema is the newest, by Alembic's version and the names of files."""
    version_table = sqlalchemy.table("alembic_version", sqlalchemy.column("version_num"))
    if not sqlalchemy.inspect(connection).has_table(version_table.name):
        return False
    newest = max(file.name for file in _migrations_directory().glob("versions/[0-9]*_*.py"))
    return connection.scalars(sqlalchemy.select(version_table.c.version_num)).all() == [newest[:4]]


def _migrations_directory() -> pathlib.Path:
    """Return the directory of migrations: in an installed package, or at the top of a checkout."""
    package = pathlib.Path(__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"


@contextlib.contextmanager
def _locked_file(url: sqlalchemy.URL) -> Iterator[None]:
    """Lock an SQLite file against other upgrades.

    SQLite does not wait for another process when the write-ahead log is enabled.
    """
    if not engines.is_sqlite(url):
        yield
        return
    database = engines.database_file(url)
    path = database.with_name(f"{database.name}-upgrade")
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


async def _close(engine: sa_asyncio.AsyncEngine) -> None:
    """Wait until cancelled tasks have returned their connections, then close all of them.

    A connection that is in use when its pool is closed is never closed.
    """
    connections = cast(pool.QueuePool, engine.pool)
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            # Let tasks run that were cancelled just now.
            await asyncio.sleep(0)
            while connections.checkedout():  # noqa: ASYNC110 - a pool has no event for it.
                await asyncio.sleep(0.005)
    except TimeoutError:
        _log.warning("closed while in use: %s", connections.status())
    await engine.dispose()


class Database:
    """All persistent data. Use `open`.

    Every method of an aggregate is one transaction, unless several calls are made within one
    `transaction`. It raises StoreError if the database cannot be used. A cancelled call has done
    everything or nothing.

    Attributes:
        engine: for libraries with tables of their own; all other code uses the aggregates.
        transaction: makes one transaction of several calls; see `transactions.Transactions`.
        orphans: the turns that a dead bot left running; they are now interrupted, or this bot's.
        unshown: the turns that a dead bot may not have shown in full, see `Turns.list_unshown`.
    """

    def __init__(
        self,
        engine: sa_asyncio.AsyncEngine,
        blob_files: blobs.Blobs,
        bot: active_bot.ActiveBot | None = None,
    ) -> None:
        self.engine = engine
        if bot is not None:
            engines.check_commits(engine, bot.ensure_active)
        runner = transactions.Transactions(engine)
        owner = bot.id if bot is not None else uuid.uuid4().hex
        self.transaction = runner.transaction
        self.orphans: tuple[records.Turn, ...] = ()
        self.unshown: tuple[records.Turn, ...] = ()
        self.blobs = blob_files
        self.sessions = sessions.Sessions(runner)
        self.session_copies = session_copies.SessionCopies(runner, owner)
        self.turns = turns.Turns(runner, owner)
        self.parts = turn_parts.TurnParts(runner, blob_files)
        self.questions = turn_questions.TurnQuestions(runner)
        self.grants = turn_questions.Grants(runner)
        self.executions = executions.Executions(runner)
        self.artifacts = executions.Artifacts(runner)
        self.usage = usage.Usage(runner)
        self.placements = placements.Placements(runner)
        self.fleet_hosts = fleet_hosts.FleetHosts(runner)
        self.choices = preferences.Preferences(runner)
        self.notes = notes.Notes(runner)
        self.events = turns.ClaimedEvents(runner, owner)
        self.deliveries = deliveries.Deliveries(runner)
        self.activities = activities.Activities(runner)
        self.schedules = schedules.Schedules(runner)
        self.accounts = accounts.Accounts(runner)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        blobs_directory: pathlib.Path,
        takes_orphans: bool = True,
        bot: active_bot.ActiveBot | None = None,
    ) -> AsyncIterator[Database]:
        """Open a database: upgrade its schema, and take the turns that other bots left running.

        Args:
            url: `sqlite:////absolute/file.db` or `postgresql://…`; see `engines.default_url`.
            blobs_directory: directory of blobs, created when needed.
            takes_orphans: whether to take running turns of other bots; False beside an active bot.
            bot: the active bot, which owns new turns; None if no lock was taken.

        Raises:
            SettingsError: the URL cannot be used.
            StoreError: the database cannot be used, or is of another version.
        """
        address = engines.parse(url)
        async with contextlib.AsyncExitStack() as stack:
            with transactions.translate_opening_errors(address):
                if engines.is_sqlite(address):
                    engines.make_file(address)
                await asyncio.to_thread(upgrade, address)
            engine = engines.make(address)
            # A second cancellation of the caller must not leave connections and their threads open.
            stack.push_async_callback(lambda: cancellation.shielded(_close(engine)))
            database = cls(engine, blobs.Blobs(blobs_directory), bot)
            if takes_orphans:
                # First, as turns that become interrupted now are orphans.
                database.unshown = await database.turns.list_unshown()
                database.orphans = await database.turns.take_orphans()
            if database.orphans:
                _log.warning("%d turns were left behind by a bot that died", len(database.orphans))
            yield database
