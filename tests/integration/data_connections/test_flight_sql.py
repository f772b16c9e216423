"""Flight SQL by ADBC's driver, against a server of our own that speaks it.

Skipped where the driver is not installed (adbc-driver-flightsql).
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time

import pytest

from tests.integration.data_connections.conftest import PASSWORD
from tests.integration.data_connections.test_worker_processes import ask, processes, refused

pytest.importorskip("adbc_driver_flightsql", reason="adbc-driver-flightsql is not installed here")
SERIES = (
    "with recursive x(i) as (select 1 union all select i + 1 from x where i < {}) select i from x"
)


class Server:
    """A server in a process of its own, and what it noted."""

    def __init__(self, log):
        self._log = log

    @property
    def notes(self):
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines]

    def address(self):
        return f"grpc://127.0.0.1:{self.notes[0]['port']}"

    async def noted(self, **wanted):
        async with asyncio.timeout(30):
            while wanted not in self.notes:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def flight(tmp_path_factory):
    log = tmp_path_factory.mktemp("flight") / "log"
    command = [sys.executable, "-m", "tests.fakes.flight_sql_server", log]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        server = Server(log)
        deadline = time.monotonic() + 30
        while not server.notes:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield server
        process.stdin.close()
        process.wait(30)


def connected(flight, token=PASSWORD):
    header = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    return processes("flightsql", flight.address(), options=header, login_only_reads=True)


async def test_flight_sql_gives_rows_by_parameters_and_its_tables(flight):
    async with connected(flight) as workers:
        table, _ = await ask(
            workers,
            "select region, sum(amount) total, ':not' x from orders where id <= :most and "
            "region <> :r group by region",
            {"most": 100, "r": "north"},
        )
        assert table.to_pylist() == [{"region": "south", "total": 1875.0, "x": ":not"}]
        table, told = await ask(workers, SERIES.format(100_000), rows=10)
        assert (table.num_rows, told["cut"]) == (10, "rows")
        async with workers.lend_worker() as worker:
            (listed,) = (await worker.send_request({"do": "tables"}))["tables"]
        assert listed["name"] == "sales.orders"
        kinds = [["id", "int64"], ["amount", "double"], ["region", "string"]]
        assert listed["columns"] == kinds


async def test_flight_sql_refuses_writing_with_a_sentence(flight):
    async with connected(flight) as workers:
        said = await refused(
            workers,
            "delete from orders",
            "with x as (select 1) delete from orders",
            "select 1; select 2",
            "select nonsense",
        )
    assert said[-1] == "no such column: nonsense"
    assert not [note for note in flight.notes if "delete" in str(note)]
    async with connected(flight, token="wrong") as workers:
        assert await refused(workers, "select 1") == ["who is it"]


async def test_nothing_is_sent_unless_the_operator_confirms_a_read_only_login(flight):
    async with processes("flightsql", flight.address()) as workers:
        (said,) = await refused(workers, "select 1")
    assert "Ask whoever runs this bot to confirm that its login can only read" in said
    assert not [note for note in flight.notes if "runs" in note]


async def test_a_cancelled_query_stops_on_the_server_and_its_process_is_reused(flight):
    async with connected(flight) as workers:
        asking = asyncio.create_task(ask(workers, "select 'sleep'", seconds=60.0))
        await flight.noted(runs="select 'sleep'")
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        await flight.noted(cancelled="select 'sleep'")
        assert (await ask(workers, "select 1 a"))[1]["rows"] == 1
