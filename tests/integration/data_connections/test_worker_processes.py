"""Real databases asked by real processes: what comes back, and what they do not let happen."""

import asyncio
import contextlib
import io
import os
import re
import sqlite3
import sys

import pyarrow
import pytest

from interpreter_bot import errors, settings
from interpreter_bot.data_connections import (
    configured_connections,
    worker_messages,
    worker_processes,
)
from interpreter_bot.doctor import configured_services

LIMITS = {"rows": 100_000, "bytes": 64 * settings.MIB, "seconds": 30.0}


@contextlib.asynccontextmanager
async def processes(kind, address, **fields):
    listed = settings.Connection(name="it", kind=kind, address=str(address), **fields)
    (rule,) = configured_connections.compile_rules([listed], {})
    workers = worker_processes.WorkerPool(rule)
    try:
        yield workers
    finally:
        await workers.close()


async def ask(workers, sql, parameters=None, **limits):
    """What a statement returns, as an Arrow table, and what is said of it."""
    taken = bytearray()

    async def take(piece):
        taken.extend(piece)

    request = {
        "do": "query", "sql": sql, "parameters": parameters or {}, "limits": LIMITS | limits,
    }  # fmt: skip
    async with workers.lend_worker() as worker:
        told = await worker.send_request(request, take)
    raw = io.BytesIO(taken)
    content = b""
    while head := raw.read(worker_messages.HEAD.size):
        content += raw.read(worker_messages.HEAD.unpack(head)[1])
    return (pyarrow.ipc.open_stream(content).read_all() if content else None), told


async def refused(workers, *statements):
    """What is said of statements none of which may work."""
    said = []
    for sql in statements:
        table, told = await ask(workers, sql, seconds=2.0)
        assert "error" in told, (sql, table)
        said.append(told["error"])
    return said


@pytest.fixture(scope="module")
def duckdb_file(tmp_path_factory):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path_factory.mktemp("duckdb") / "sales.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "create table orders as select i id, i * 0.5 amount from range(1, 1001) t(i)"
        )
    return path


@pytest.mark.slow
async def test_sqlite_gives_rows_with_types(sqlite_file):
    async with processes("sqlite", sqlite_file) as workers:
        table, told = await ask(
            workers,
            "select region, count(*) n, sum(amount) total, ':not' as text from orders "
            "where day >= :d group by region order by region",
            {"d": "2026-05-15"},
        )
        assert table.to_pydict()["region"] == ["north", "south"]
        assert [str(kind) for kind in table.schema.types] == ["string", "int64", "double", "string"]
        assert told["rows"] == 2
        # A column may change its mind.
        table, _ = await ask(
            workers,
            "with recursive x(i) as (select 1 union all select i + 1 from x where i < 20001) "
            "select case when i > 15000 then 'late' else i end a, iif(i = 1, 1, 0.5) b from x",
        )
        assert table.column("a").to_pylist()[::20000] == ["1", "late"]
        assert table.column("b").to_pylist()[0] == 1.0


@pytest.mark.slow
async def test_a_listing_fits_a_frame_with_all_names_and_a_notice(tmp_path):
    columns = ", ".join(f"{'ü' * 200}{number}" for number in range(400))
    with contextlib.closing(sqlite3.connect(tmp_path / "wide.db")) as connection, connection:
        for number in range(30):
            connection.execute(f"create table wide{number:02} ({columns})")
    async with (
        processes("sqlite", tmp_path / "wide.db") as workers,
        workers.lend_worker() as worker,
    ):
        answer = await worker.send_request({"do": "tables"})
    told = answer["tables"]
    assert "more tables or columns than fit in one list" in answer["notice"]
    assert "left out" in told[-1]["comment"]
    assert [table["name"] for table in told] == [f"wide{number:02}" for number in range(30)]
    assert len(told[0]["columns"]) == 400
    assert told[-1]["columns"] == []


async def test_sqlite_refuses_writing_and_reading_other_files(sqlite_file, tmp_path):
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("create table secrets (x)")
    async with processes("sqlite", sqlite_file) as workers:
        said = await refused(
            workers,
            "delete from orders",
            "with x as (select 1) delete from orders",
            f"attach '{other}' as o",
            f"select 1; attach '{tmp_path}/new.db' as o",
            "pragma writable_schema = on",
            "select load_extension('/tmp/x.so')",
            "select * from orders where id = :missing",
            "",
            "select 'unfinished",
            "with recursive x(i) as (select 1 union all select i from x) select count(*) from x",
        )
    assert "begin with SELECT" in said[0]
    assert "not authorized" in said[5]
    assert "one statement" in said[3]
    assert "longer than 2 seconds" in said[-1]
    assert os.listdir(tmp_path) == ["other.db"]


@pytest.mark.slow
async def test_postgresql_gives_rows_with_types(postgresql):
    async with processes("postgresql", postgresql.reader) as workers:
        table, told = await ask(
            workers,
            "select region, count(*), sum(amount) total, max(day) last, 'it''s :d'::text, now() "
            "from orders where day >= :d and region <> :r and id = any(:ids) group by region",
            {"d": "2026-05-01", "r": "it's; drop table orders --", "ids": [3, 5, 7]},
        )
        assert [str(kind) for kind in table.schema.types] == [
            "string", "int64", "double", "date32[day]", "string", "timestamp[us, tz=UTC]",
        ]  # fmt: skip
        assert table.to_pylist()[0]["total"] == 7.5
        assert told["rows"] == 1
        moment = {"datetime": "2026-05-01T12:00:00+02:00"}
        typed = {"t": moment, "n": {"decimal": "1.5"}, "b": {"bytes": "AP8="}, "x": None}
        table, told = await ask(
            workers,
            "select :t = timestamptz '2026-05-01T10:00Z' a, :n + 1 b, :b c, :x::int c",
            typed,
        )
        assert table.to_pylist() == [{"a": True, "b": 2.5, "c": b"\0\xff", "c_2": None}]
        # What the driver cannot copy.
        table, _ = await ask(workers, "explain select * from orders")
        assert table.num_rows


async def test_postgresql_refuses_writing_even_by_a_login_that_may_write(postgresql):
    """Asked as a superuser: what remains is what transactions hold back."""
    postgresql.sql(
        "create or replace function wipe() returns int language sql "
        "as 'delete from orders returning 1'"
    )
    async with processes("postgresql", postgresql.writer) as workers:
        said = await refused(
            workers,
            "insert into orders values (0)",
            "with x as (insert into orders values (0) returning *) select * from x",
            "select 1; insert into orders values (0)",
            "set transaction read write",
            "select set_config('transaction_read_only', 'off', false)",
            "commit",
            "do $$ begin commit; set transaction read write; delete from orders; end $$",
            "copy orders to program 'touch /tmp/ib-was-here'",
            "explain analyze delete from orders",
            "select nextval(pg_get_serial_sequence('orders', 'id')) into x",
            "select pg_sleep(60)",
            "select * from nowhere",
            "select id from orders where id = 'x'",
            "select wipe()",
        )
        assert "read-only transaction" in said[-1]
        assert "timeout" in said[-4]
        assert said[-3].startswith('relation "nowhere" does not exist')
        table, _ = await ask(workers, "select count(*), min(id) from orders")
        assert list(table.to_pylist()[0].values()) == [1000, 1]
    assert "ib-was-here" not in os.listdir("/tmp")


@pytest.mark.slow
async def test_postgresql_lists_tables_and_what_a_login_could_change(postgresql):
    async with (
        processes("postgresql", postgresql.reader) as workers,
        workers.lend_worker() as worker,
    ):
        (table,) = (await worker.send_request({"do": "tables"}))["tables"]
        assert (table["name"], table["rows"]) == ("orders", 1000)
        assert table["comment"] == "What was sold."
        assert table["columns"][3] == ["amount", "numeric(10,2)"]
        assert (await worker.send_request({"do": "probe"}))["writable"] == ""
    async with (
        processes("postgresql", postgresql.writer) as workers,
        workers.lend_worker() as worker,
    ):
        assert "superuser" in (await worker.send_request({"do": "probe"}))["writable"]


async def test_postgresql_refuses_functions_with_effects_and_lists_callable_ones(
    postgresql,
):
    before = postgresql.sql("select pg_current_wal_insert_lsn()")
    async with processes("postgresql", postgresql.reader) as workers:
        said = await refused(
            workers,
            "select pg_logical_emit_message(false, 'x', repeat('x', 1000000))",
            "select pg_terminate_backend(pid) from pg_stat_activity",
            'select pg_catalog."pg_advisory_lock"(1)',
        )
        assert said[0] == (
            "The function pg_logical_emit_message is not allowed, because it may do more than read."
        )
        async with workers.lend_worker() as worker:
            effects = (await worker.send_request({"do": "probe"}))["effects"]
    assert {"pg_advisory_lock(bigint)", "pg_terminate_backend(integer,bigint)"} <= set(effects)
    written = f"select pg_current_wal_insert_lsn() - '{before}' < 100000"
    assert postgresql.sql(written) == "t"


async def test_a_cancelled_query_stops_on_the_server_and_its_process_is_reused(postgresql):
    running = (
        "select count(*) from pg_stat_activity where state = 'active' "
        "and query like '%pg_sleep(50)%' and pid <> pg_backend_pid()"
    )
    async with processes("postgresql", postgresql.reader) as workers:
        asking = asyncio.create_task(ask(workers, "select pg_sleep(50)", seconds=60.0))
        async with asyncio.timeout(30):
            await asyncio.to_thread(postgresql.wait, running, "1")
            asking.cancel()
            await asyncio.to_thread(postgresql.wait, running, "0")
        _, told = await ask(workers, "select 1")
        assert told["rows"] == 1


@pytest.mark.slow
@pytest.mark.first_case
@pytest.mark.parametrize("limits", [{"rows": 10}, {"bytes": 100}])
async def test_a_result_over_a_limit_is_cut_with_a_notice(limits, postgresql, sqlite_file):
    for kind, address in (("postgresql", postgresql.reader), ("sqlite", sqlite_file)):
        async with processes(kind, address) as workers:
            table, told = await ask(workers, "select id from orders", **limits)
            assert told["cut"] == next(iter(limits))
            assert table.num_rows == told["rows"] <= 100 // 4


async def test_duckdb_gives_rows_and_opens_no_other_file(duckdb_file, tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n")
    async with processes("duckdb", duckdb_file) as workers:
        table, _ = await ask(workers, "from orders where id <= :most", {"most": 3})
        assert table.num_rows == 3
        said = await refused(
            workers,
            f"from '{tmp_path}/x.csv'",
            f"select * from read_csv('{tmp_path}/x.csv')",
            "with x as (select 1) insert into orders values (1, 1)",
            "from orders; set enable_external_access = true",
            "select count(*) from range(100000000000) a, range(1000000) b",
        )
        assert "longer than 2 seconds" in said[-1]
        async with workers.lend_worker() as worker:
            (listed,) = (await worker.send_request({"do": "tables"}))["tables"]
            assert (listed["name"], listed["rows"]) == ("orders", 1000)


@pytest.mark.slow
async def test_a_dialect_of_sqlalchemy_serves_too(sqlite_file):
    async with processes("sqlalchemy", f"sqlite:///{sqlite_file}") as workers:
        table, _ = await ask(workers, "select id, ':id' as t from orders where id = :id", {"id": 7})
        assert table.to_pylist() == [{"id": 7, "t": ":id"}]
        async with workers.lend_worker() as worker:
            (listed,) = (await worker.send_request({"do": "tables"}))["tables"]
            assert listed["name"] == "orders"


@pytest.mark.slow
async def test_a_writing_connection_writes(postgresql):
    async with processes("postgresql", postgresql.writer, writes=True) as workers:
        _, told = await ask(workers, "create table written as select 1 a")
        assert "error" not in told
    assert postgresql.sql("select a from written") == "1"
    postgresql.sql("drop table written")


@pytest.mark.slow
def test_the_doctor_names_what_to_revoke(postgresql):
    connection = settings.Connection(name="it", kind="postgresql", address=postgresql.reader)
    config = settings.Settings(connections=(connection,))
    reached, read_only, functions = configured_services.check(config, {}, None)
    assert reached.is_active
    assert read_only.is_active
    assert (functions.name, functions.is_active) == ("connection it, functions", False)
    (revoke,) = re.findall(r"REVOKE EXECUTE ON FUNCTION .* FROM PUBLIC;", functions.fix)
    postgresql.sql(revoke)
    assert len(configured_services.check(config, {}, None)) == 2


async def test_a_process_that_cannot_be_started_is_a_sentence(monkeypatch, sqlite_file):
    async with processes("sqlite", sqlite_file) as workers:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/nonexistent")
            with pytest.raises(errors.BotError, match="No process can be started"):
                await ask(workers, "select 1")
        _, told = await ask(workers, "select 1")
        assert told["rows"] == 1
