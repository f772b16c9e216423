"""Load a million rows as a DataFrame: through a data connection, and with the driver alone."""

from __future__ import annotations

import asyncio
import json
import pathlib
import resource
import sys
import tempfile
from typing import Any

from bench import metrics, sample_sizes
from interpreter_bot import settings, values
from interpreter_bot.app import execution_startup
from interpreter_bot.hosts import cancellable_executions
from tests.integration.store import servers

_ROWS = 1_000_000
_TABLE = f"""create table wide as select i::int8 a, i::int4 b, i * 0.5::float8 c, i * 1.5::float8 d,
 i % 7 e, 'region ' || i % 50 f, 'customer ' || i % 5000 g, i % 2 = 0 h,
 date '2026-01-01' + i % 365 as "day", timestamptz '2026-01-01' + i * interval '1 second' as "at"
 from generate_series(1, {_ROWS}) i; analyze wide"""
_SQL = "select * from wide"
_DRIVER_SCRIPT = f"""
import json, sys, time
import adbc_driver_postgresql.dbapi as dbapi
times = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    with dbapi.connect(sys.argv[1]) as connection, connection.cursor() as cursor:
        cursor.execute({_SQL!r})
        frame = cursor.fetch_arrow_table().to_pandas(date_as_object=False)
    times.append(time.perf_counter() - began)
    assert frame.shape == ({_ROWS}, 10)
    del frame
print(json.dumps(times))
"""
_QUERY_CODE = f"""
import json, time
times = []
for _ in range(RUNS):
    began = time.perf_counter()
    frame = connections["wide"].query({_SQL!r})
    times.append(time.perf_counter() - began)
    assert frame.shape == ({_ROWS}, 10)
    del frame
print(json.dumps(times))
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure the query in one kernel, and the driver in a plain process."""
    runs = 3 if effort is sample_sizes.QUICK else 7
    with servers.Server.run() as server, server.database() as address:
        server.directory.chmod(0o755)
        await asyncio.to_thread(server.sql, _TABLE, address.partition("?")[0].rpartition("/")[2])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _DRIVER_SCRIPT, address, str(runs)),
            stdout=asyncio.subprocess.PIPE,
        )
        driver_times = json.loads((await process.communicate())[0])
        query_times, grown_bytes = await _query_in_kernel(address, runs)
    return [
        metrics.Measure(
            "1,000,000 rows of 10 columns from PostgreSQL as a DataFrame",
            "s",
            query_times,
            alternative=metrics.Alternative("the driver itself", driver_times),
            least_ratio=0.5,
        ),
        metrics.Measure("memory of the bot after that", "MiB", [grown_bytes / 2**20]),
    ]


async def _query_in_kernel(address: str, runs: int) -> tuple[list[float], int]:
    """Run the query in a kernel; return the seconds, and the growth of this process in bytes."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        config = settings.Settings(
            kernels=settings.Kernels(spares=0),
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            connections=(settings.Connection(name="wide", kind="postgresql", address=address),),
        )
        async with (
            execution_startup.open_broker(config, {}) as broker,
            execution_startup.open_hosts(config, doorkeeper=broker) as host,
            host.lease(values.format_key(values.SessionKey("bench"))) as lease,
        ):
            kernel = await lease.kernel()
            outputs: list[values.Output] = []
            kibibytes_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            code = _QUERY_CODE.replace("RUNS", str(runs))
            await cancellable_executions.run(host, kernel, code, show=outputs.append)
            grown_kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kibibytes_before
    times: Any = json.loads("".join(output.plain for output in outputs))
    return times, grown_kibibytes * 1024
