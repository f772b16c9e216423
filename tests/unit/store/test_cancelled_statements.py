"""SQLite connections whose statements are cancelled."""

import asyncio

import pytest
import sqlalchemy

from interpreter_bot.store import engines

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
