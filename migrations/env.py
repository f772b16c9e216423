"""How Alembic reaches the database: through the bot's connection, or its settings.

By hand: `alembic upgrade head` with the bot's own settings, or `alembic -x url=… check`.
"""

import asyncio

import sqlalchemy
from alembic import context

from interpreter_bot import settings
from interpreter_bot.store import engines, records


def render(kind: str, item: object, autogenerating: object) -> str | bool:
    """Write our column types into migrations as what they are beneath: ours may change."""
    if kind == "type" and isinstance(item, sqlalchemy.TypeDecorator):
        return f"sa.{item.impl!r}"
    return False


def is_compared(item: object, name: str | None, *_: object) -> bool:
    """Leave out the index of words, which the code's tables cannot say; see the first migration."""
    return not (name or "").startswith("turn_words")


def run(connection: sqlalchemy.Connection) -> None:
    """Run on a connection, in a transaction of its own where there is none."""
    context.configure(
        connection=connection,
        target_metadata=records.Record.metadata,
        # SQLite can alter little of a table, but copy it.
        render_as_batch=connection.dialect.name == "sqlite",
        render_item=render,
        include_object=is_compared,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def named() -> sqlalchemy.URL:
    """The database of `-x url=`, or of the settings."""
    bot = settings.Settings()
    url = context.get_x_argument(as_dictionary=True).get("url")
    return engines.parse(url or bot.store.url or engines.default(bot.paths.data))


async def connect() -> None:
    """Run on a connection of our own."""
    url = named()
    if engines.is_sqlite(url):
        engines.make_file(url)
    engine = engines.make_for_upgrade(url)
    writers = engine.execution_options(**{engines.WRITING: True})
    async with writers.begin() as connection:
        await connection.run_sync(run)
    await engine.dispose()


given = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(url=named(), target_metadata=records.Record.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif given is not None:
    run(given)
else:
    asyncio.run(connect())
