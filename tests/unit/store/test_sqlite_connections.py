"""SQLite connections: how often they go to their thread, and that nothing is lost by going less."""

import asyncio

import pytest
import sqlalchemy
from sqlalchemy import exc

from interpreter_bot.store import engines, sqlite_connections

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


@pytest.fixture
def trips(engine, monkeypatch):
    """What was done in connections' threads."""
    made = []
    execute = sqlite_connections._Connection._execute

    async def count(self, function, *args, **kwargs):
        made.append(function.__name__)
        return await execute(self, function, *args, **kwargs)

    monkeypatch.setattr(sqlite_connections._Connection, "_execute", count)
    return made


async def _names(connection):
    return (await connection.scalars(sqlalchemy.select(TABLE.c.name))).all()


async def test_a_statement_and_the_ends_of_a_transaction_take_one_trip_each(engine, trips):
    async with engine.begin() as connection:
        insert = sqlalchemy.insert(TABLE).values(name="a").returning(TABLE.c.id)
        assert await connection.scalar(insert) == 1
        assert await _names(connection) == ["a"]
    assert trips == ["_run", "_run", "_run", "commit"]


async def test_what_a_statement_changed_is_counted(engine):
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy.insert(TABLE), [{"name": "a"}, {"name": "b"}])
        changed = await connection.execute(sqlalchemy.update(TABLE).values(id=TABLE.c.id + 7))
        assert changed.rowcount == 2
        inserted = await connection.execute(sqlalchemy.insert(TABLE).values(name="c"))
        assert inserted.inserted_primary_key == (10,)


async def test_what_failed_after_a_commit_is_rolled_back(engine):
    async with engine.connect() as connection:
        await connection.execute(sqlalchemy.insert(TABLE).values(name="a"))
        await connection.commit()
        await connection.execute(sqlalchemy.insert(TABLE).values(name="b"))
        with pytest.raises(exc.IntegrityError):
            await connection.execute(sqlalchemy.insert(TABLE).values(name="a"))
        await connection.rollback()
        assert await _names(connection) == ["a"]


async def test_a_statement_that_was_cancelled_keeps_no_lock(engine):
    slow = (
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2e6) "
        "INSERT INTO things (name) SELECT 'x' || max(n) FROM numbers"
    )

    async def write():
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text(slow))

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    writing.cancel()
    await asyncio.wait({writing})
    assert writing.cancelled()
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy.insert(TABLE).values(name="a"))
        assert await _names(connection) == ["a"]
