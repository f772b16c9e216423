"""Tables that a platform's library keeps in our database, with their secrets encrypted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.ext import asyncio as sa_asyncio

from interpreter_bot import encryption, errors
from interpreter_bot.store import engines, transactions

_log = logging.getLogger(__name__)


class EncryptedText(types.TypeDecorator[str]):
    """Text that is encrypted in the database; older rows may still be in clear."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, keys: encryption.KeyRing) -> None:
        super().__init__()
        self.keys = keys

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Encrypt it."""
        return None if value is None else self.keys.encrypt(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Decrypt it."""
        return None if value is None else self.keys.decrypt(value)


class LibraryTables:
    """Access to the database for a library that sends its own statements.

    Attributes:
        engine: for the library.
        encrypted_count: how many rows in clear, or with an older key, were encrypted so far.
    """

    def __init__(self, engine: sa_asyncio.AsyncEngine, keys: encryption.KeyRing) -> None:
        self.engine = engine
        self._writers = engine.execution_options(**{engines.WRITING_OPTION: True})
        self.encrypted_count = 0
        self._keys = keys
        if not sa.event.contains(engine.sync_engine, "handle_error", _unwrap):
            sa.event.listen(engine.sync_engine, "handle_error", _unwrap)

    async def create(self, metadata: sa.MetaData, *, secrets: Collection[str] = ()) -> None:
        """Create missing tables of a library, and encrypt their secret columns.

        Secrets in clear, or with an older key, are encrypted with the first key.

        Args:
            metadata: of tables that the library has not used yet; their primary key is `id`.
            secrets: names of the columns to encrypt.

        Raises:
            SettingsError: a key is missing.
            StoreError: the database cannot be used.
        """
        secret_columns = {
            table: [column for column in table.columns if column.name in secrets]
            for table in metadata.tables.values()
        }
        for column in (column for columns in secret_columns.values() for column in columns):
            column.type = EncryptedText(self._keys)
        encrypted_before = self.encrypted_count
        with transactions.translate_errors():
            async with self._writers.begin() as connection:
                await connection.run_sync(metadata.create_all)
                for table, columns in secret_columns.items():
                    if columns:
                        await connection.run_sync(_widen, table, secrets)
                        await self._encrypt(connection, table, columns)
        if self.encrypted_count > encrypted_before:
            _log.warning(
                "encrypted %d rows with the first key", self.encrypted_count - encrypted_before
            )

    async def _encrypt(
        self,
        connection: sa_asyncio.AsyncConnection,
        table: sa.Table,
        columns: Sequence[sa.Column[Any]],
    ) -> None:
        encrypted_columns = [
            sa.type_coerce(column, sa.Text).label(column.name) for column in columns
        ]
        # Locked, because a token that the library renews now must not be replaced by the older one.
        rows = await connection.execute(sa.select(table.c.id, *encrypted_columns).with_for_update())
        for row in rows.mappings().all():
            stored_texts = [row[column.name] for column in columns if row[column.name] is not None]
            if not all(map(self._keys.is_current, stored_texts)):
                decrypted = {
                    name: self._keys.decrypt(text)
                    for name, text in row.items()
                    if name != "id" and text is not None
                }
                update = sa.update(table).where(table.c.id == row["id"]).values(**decrypted)
                await connection.execute(update)
                self.encrypted_count += 1


def _unwrap(context: sa.ExceptionContext) -> None:
    """Raise an error of encryption as itself; SQLAlchemy wraps it as an error of the statement."""
    if isinstance(context.original_exception, errors.SettingsError):
        raise errors.SettingsError(str(context.original_exception)) from context.original_exception


def _widen(connection: sa.Connection, table: sa.Table, names: Collection[str]) -> None:
    """Widen columns that are too short for encrypted text; SQLite has no lengths."""
    if connection.dialect.name == "sqlite":
        return
    quote = connection.dialect.identifier_preparer.quote
    for column in sa.inspect(connection).get_columns(table.name):
        if column["name"] in names and getattr(column["type"], "length", None) is not None:
            change = f"ALTER COLUMN {quote(column['name'])} TYPE TEXT"
            connection.execute(sa.text(f"ALTER TABLE {quote(table.name)} {change}"))
