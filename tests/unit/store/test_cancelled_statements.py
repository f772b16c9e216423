"""SQLite connections whose statements, or whose closing, are cancelled."""

import asyncio
import threading

import pytest
import sqlalchemy

from interpreter_bot.store import databases, engines

TABLE = sqlalchemy.Table(
    "things",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True),
    sqlalchemy.Column("name", sqlalchemy.Text, unique=True, nullable=False),
)


@pytest.fixture
async def engine(tmp_path):
    engine = engines.make(engines.parse(f"sqlite:///{tmp_path}/things.db"))
    async with engine.begin() as connection:
        await connection.run_sync(TABLE.metadata.create_all)
    yield engine
    await engine.dispose()


async def _list_names(connection):
    return (await connection.scalars(sqlalchemy.select(TABLE.c.name))).all()


async def test_a_statement_that_was_cancelled_keeps_no_lock(engine):
    slow_insert = (
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2e6) "
        "INSERT INTO things (name) SELECT 'x' || max(n) FROM numbers"
    )

    async def write():
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text(slow_insert))

    write_task = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    write_task.cancel()
    await asyncio.wait({write_task})
    assert write_task.cancelled()
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy.insert(TABLE).values(name="a"))
        assert await _list_names(connection) == ["a"]


def _list_connection_threads():
    return {thread for thread in threading.enumerate() if "_connection_worker" in thread.name}


async def test_connections_are_closed_although_closing_is_cancelled(tmp_path):
    earlier_threads = _list_connection_threads()
    is_open = asyncio.Event()

    async def keep_open():
        opening = databases.Database.open(f"sqlite:///{tmp_path}/bot.db", blobs_directory=tmp_path)
        async with opening as database, database.transaction(is_writing=False):
            is_open.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(keep_open())
    await is_open.wait()
    threads = _list_connection_threads() - earlier_threads
    assert threads
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
