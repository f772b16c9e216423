"""Let Alembic use the bot's open connection, or else the database of the bot's settings.

By hand, `alembic upgrade head` takes the database of the settings, and `-x url=…` another one.
"""

import asyncio
from typing import Literal

import sqlalchemy
from alembic import context

from interpreter_bot import settings
from interpreter_bot.store import engines, records


def render_column_type(kind: str, item: object, autogenerating: object) -> str | Literal[False]:
    """Write the SQL type below one of our column types: ours may change after the migration."""
    if kind == "type" and isinstance(item, sqlalchemy.TypeDecorator):
        return f"sa.{item.impl!r}"
    return False


def should_compare(schema_item: object, name: str | None, *_: object) -> bool:
    """Leave out the search index, which only the first migration describes."""
    return not (name or "").startswith("turn_words")


def run_migrations(connection: sqlalchemy.Connection) -> None:
    """Run the migrations on a connection, in a transaction if none has begun."""
    context.configure(
        connection=connection,
        target_metadata=records.Record.metadata,
        # SQLite cannot alter most of a table, so Alembic copies the table.
        render_as_batch=connection.dialect.name == "sqlite",
        render_item=render_column_type,
        include_object=should_compare,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def database_url() -> sqlalchemy.URL:
    """Return the URL of `-x url=`, or that of the settings."""
    bot = settings.Settings()
    url = context.get_x_argument(as_dictionary=True).get("url")
    return engines.parse(url or bot.store.url or engines.default_url(bot.paths.data))


async def run_on_new_connection() -> None:
    """Run the migrations on a connection that is opened and closed here."""
    url = database_url()
    if engines.is_sqlite(url):
        engines.make_file(url)
    engine = engines.make_for_upgrade(url)
    writers = engine.execution_options(**{engines.WRITING_OPTION: True})
    async with writers.begin() as connection:
        await connection.run_sync(run_migrations)
    await engine.dispose()


open_connection = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(
        url=database_url(), target_metadata=records.Record.metadata, literal_binds=True
    )
    with context.begin_transaction():
        context.run_migrations()
elif open_connection is not None:
    run_migrations(open_connection)
else:
    asyncio.run(run_on_new_connection())
