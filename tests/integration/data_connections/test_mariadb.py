"""A real MariaDB by SQLAlchemy and PyMySQL: what comes back, and what it does not let happen.

Skipped where there is no server (Debian's mariadb-server-core) or no driver (pymysql).
"""

import asyncio
import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

from tests.integration.data_connections.conftest import PASSWORD
from tests.integration.data_connections.test_worker_processes import ask, processes, refused

_PLACES = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", os.environ.get("PATH", "")))
_ROWS = f"""
create database shop; use shop;
create table orders (id int primary key auto_increment, day date, region varchar(20),
  amount decimal(10, 2), at datetime(3), raw blob) comment 'What was sold.';
insert into orders (day, region, amount, at, raw)
  select date '2026-05-01' + interval (seq % 28) day, if(seq % 4 = 0, 'north', 'south'),
  seq * 0.5, '2026-05-01 10:00:00.125', 'x' from seq_1_to_1000;
create view totals as select region, sum(amount) total from orders group by region;
create sequence numbers;
delimiter //
create function shop.sneaky() returns int
  begin insert into orders (region) values ('sneaked'); return 1; end//
delimiter ;
create user reader identified by '{PASSWORD}'; grant select, execute on shop.* to reader;
create user plain identified by '{PASSWORD}'; grant select on shop.* to plain;
create user writer identified by '{PASSWORD}'; grant all on *.* to writer with grant option;
"""


class MariaDb:
    """A running server."""

    def __init__(self, directory):
        self.directory = directory

    def address(self, user):
        return f"mysql+pymysql://{user}:{PASSWORD}@/shop?unix_socket={self.directory}/socket"

    def sql(self, statements):
        """Run statements from outside; returns what they return."""
        client = [shutil.which("mariadb"), "--no-defaults", "-NB", f"-S{self.directory}/socket"]
        return subprocess.run(
            client, input=statements, check=True, timeout=60, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    async def running(self, wanted):
        """Wait until so many queries run that sleep or compute for long."""
        count = (
            "select count(*) from information_schema.processlist "
            "where user in ('reader', 'writer') and command = 'Query'"
        )
        async with asyncio.timeout(30):
            while await asyncio.to_thread(self.sql, count) != str(wanted):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def mariadb():
    program = shutil.which("mariadbd", path=_PLACES)
    if program is None or importlib.util.find_spec("pymysql") is None:
        pytest.skip("MariaDB (mariadb-server-core), or its driver pymysql, is not installed here")
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        own = f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', '')}"
        made = ["mariadb-install-db", "--no-defaults", f"--datadir={name}/data", own]
        made += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, capture_output=True, timeout=120)
        options = [f"--datadir={name}/data", f"--socket={name}/socket", "--skip-networking", own]
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen([program, "--no-defaults", *options], stdout=log, stderr=log)
        try:
            database = MariaDb(directory)
            deadline = time.monotonic() + 60
            while not (directory / "socket").exists():
                assert server.poll() is None, (directory / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            database.sql(_ROWS)
            yield database
        finally:
            server.terminate()
            server.wait(60)


async def test_mariadb_gives_rows_with_types_and_its_tables(mariadb):
    async with processes("sqlalchemy", mariadb.address("plain")) as workers:
        table, told = await ask(
            workers,
            "select id, day, region, amount, at, raw, ':not' as `a:b` from orders "
            "where region = :r and day >= :d order by id limit 2",
            {"r": "north", "d": {"date": "2026-05-05"}},
        )
        assert told["rows"] == 2
        kinds = ["int64", "date32[day]", "string", "double", "timestamp[us]", "binary", "string"]
        assert [str(kind) for kind in table.schema.types] == kinds
        assert table.column("amount").to_pylist() == [2.0, 4.0]
        async with workers.lend_worker() as worker:
            orders, totals = (await worker.send_request({"do": "tables"}))["tables"]
            assert (orders["name"], orders["comment"]) == ("orders", "What was sold.")
            assert orders["columns"][3] == ["amount", "decimal(10,2)"]
            assert orders["rows"] > 0
            # Of a view, this login may not ask how it is made.
            assert (totals["name"], totals["rows"]) == ("totals", -1)
            assert [name for name, _ in totals["columns"]] == ["region", "total"]
            assert (await worker.send_request({"do": "probe"}))["writable"] == ""
    nowhere = mariadb.address("plain").replace("/shop?", "/?")
    async with processes("sqlalchemy", nowhere) as workers, workers.lend_worker() as worker:
        listed = (await worker.send_request({"do": "tables"}))["tables"]
        assert [table["name"] for table in listed] == ["shop.orders", "shop.totals"]
    for user, told in (("writer", "use ALL PRIVILEGES on *.*"), ("reader", "use EXECUTE on")):
        async with (
            processes("sqlalchemy", mariadb.address(user)) as workers,
            workers.lend_worker() as worker,
        ):
            assert told in (await worker.send_request({"do": "probe"}))["writable"]


@pytest.mark.parametrize("user", ["reader", "writer"])
async def test_mariadb_refuses_writing_even_by_a_login_that_may_write(mariadb, user):
    before = mariadb.sql("checksum table shop.orders")
    async with processes("sqlalchemy", mariadb.address(user)) as workers:
        said = await refused(
            workers,
            "delete from orders",
            "select 1; delete from orders",
            "/*!50000 delete from orders */",
            "select 1 /*M!100000 into outfile '/tmp/x' */",
            f"select * from orders into outfile '{mariadb.directory}/data/out'",
            f"select * from orders into/**/DUMPFILE '{mariadb.directory}/data/out'",
            "select sneaky()",
            "select nextval(numbers)",
            "select * from orders for update",
            "with x as (select 1) delete from orders",
            "create table x (i int)",
            "set global max_connections = 7",
            "explain analyze delete from orders",
            "begin not atomic delete from orders; end",
            "select sleep(100)",
        )
    assert "READ ONLY" in said[6]
    assert not (mariadb.directory / "data/out").exists()
    assert mariadb.sql("checksum table shop.orders") == before
    assert all(PASSWORD not in sentence for sentence in said)


async def test_a_cancelled_or_cut_query_stops_on_the_server(mariadb):
    async with processes("sqlalchemy", mariadb.address("reader")) as workers:
        slow = "select benchmark(1000000000000, md5('x'))"
        asking = asyncio.create_task(ask(workers, slow, seconds=60.0))
        await mariadb.running(1)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        await mariadb.running(0)
        # The driver would read all of these rows before it lets go of them.
        large = "select seq, repeat('x', 1000) from seq_1_to_1000000000"
        async with asyncio.timeout(30):
            table, told = await ask(workers, large, rows=10, seconds=300.0)
        assert (table.num_rows, told["cut"]) == (10, "rows")
        assert told["seconds"] < 20
        await mariadb.running(0)


async def test_a_writing_connection_writes(mariadb):
    async with processes("sqlalchemy", mariadb.address("writer"), writes=True) as workers:
        _, told = await ask(workers, "create table written select 1 a")
        assert "error" not in told
    assert mariadb.sql("select a from shop.written") == "1"
    mariadb.sql("drop table shop.written")
