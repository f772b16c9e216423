"""The database as a whole: opened first, closed last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import AsyncIterator

from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot.store import (
    blobs,
    choices,
    engines,
    executions,
    liveness,
    records,
    schema_upgrades,
    sessions,
    transactions,
    turn_parts,
    turns,
    usage,
)

_log = logging.getLogger(__name__)


class Database:
    """All persistent data. Use `open`.

    Every method of an aggregate is one transaction and raises StoreError where the database cannot
    be used. One that is cancelled has done all or nothing.

    Attributes:
        engine: for libraries with tables of their own; all other code uses the aggregates.
        orphans: the turns that a dead bot left running, now interrupted.
    """

    def __init__(
        self,
        engine: sa_asyncio.AsyncEngine,
        instance: liveness.Instance,
        files: blobs.Blobs,
    ) -> None:
        self.engine = engine
        begin = transactions.Transactions(engine)
        self.orphans: tuple[records.Turn, ...] = ()
        self.files = files
        self.sessions = sessions.Sessions(begin)
        self.turns = turns.Turns(begin, instance)
        self.parts = turn_parts.TurnParts(begin, files)
        self.executions = executions.Executions(begin)
        self.artifacts = executions.Artifacts(begin)
        self.usage = usage.Usage(begin)
        self.choices = choices.Choices(begin)
        self.events = turns.ClaimedEvents(begin)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str, *, files: pathlib.Path) -> AsyncIterator[Database]:
        """Open a database: upgrade its schema, and interrupt the turns of dead bots.

        Args:
            url: `sqlite:////absolute/file.db` or `postgresql://…`; see `engines.default`.
            files: directory for what is too large for a database, made when needed.

        Raises:
            SettingsError: the URL cannot be used.
            StoreError: the database cannot be used, or is newer than this code.
        """
        address = engines.parse(url)
        async with contextlib.AsyncExitStack() as stack:
            with transactions.translated():
                if engines.is_sqlite(address):
                    engines.make_file(address)
                await asyncio.to_thread(schema_upgrades.upgrade, address)
                instance = await stack.enter_async_context(liveness.alive(address))
            engine = engines.make(address)
            stack.push_async_callback(engine.dispose)
            database = cls(engine, instance, blobs.Blobs(files))
            database.orphans = await database.turns.interrupt_orphans()
            if database.orphans:
                _log.warning("%d turns were left behind by a bot that died", len(database.orphans))
            yield database
