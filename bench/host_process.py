"""Cost of a host process: each figure for a kernel of this process, and for one of another."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import struct
import tempfile
import time
import uuid
from collections.abc import AsyncIterator

from bench import measured_bots, memory, metrics, sample_sizes
from interpreter_bot import settings, values
from interpreter_bot.hosts import (
    certificate_authorities,
    executions,
    host_addresses,
    host_lists,
    host_processes,
    host_sockets,
    local_host,
    local_startup,
    placed_hosts,
    ports,
)
from interpreter_bot.kernel_host import host_server
from interpreter_bot.store import databases

_SPARES = 2
_SETTLE_SECONDS = 0.2
_IDLE_SECONDS = 5.0
_MAX_RELEASE_SECONDS = 100.0
# As long as an idle kernel is kept by default: a host rests this long after its last kernel ended.
_REST_SECONDS = 150.0
# The first is that of `first_result_latency`, so that the figures can be compared.
_FIRST_CODES = (
    measured_bots.IMPORT_STACK_CODE,
    "import pandas as pd; pd.DataFrame({'a': [1, 2]}).sum()",
)


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure both hosts alternately, so that the machine's load is the same."""
    async with _open_hosts() as (inner_host, outer_host):
        async with (
            inner_host.lease("trips") as inner_lease,
            outer_host.lease("trips") as outer_lease,
        ):
            inner, outer = await inner_lease.kernel(), await outer_lease.kernel()
            trips: tuple[list[float], list[float]] = [], []
            for number in range(effort.trips + 10):
                for kernel, times in zip((inner, outer), trips, strict=True):
                    start_time = time.perf_counter()
                    await _execute(kernel, "1+1")
                    if number >= 10:
                        times.append(measured_bots.milliseconds_since(start_time))
        tls_differences = await _measure_tls(inner_host, effort.trips)
        stack_times, sum_times = [
            await _time_first_codes(effort.starts, inner_host, outer_host, code)
            for code in _FIRST_CODES
        ]
    megabytes, megabytes_at_rest = await _measure_idle_host(effort.sessions)
    differences = [outer - inner for inner, outer in zip(*trips, strict=True)]
    return [
        metrics.Measure(
            f"a host at rest with {effort.sessions} sessions that are saved and let go, no spares",
            "MB",
            [megabytes_at_rest],
            bar=150.0,
        ),
        metrics.Measure(
            "the same, where some kernel was used within `kernels.rest_seconds`", "MB", [megabytes]
        ),
        metrics.Measure(
            "(1+1 in a host process)",
            "ms",
            trips[1],
            alternative=metrics.Alternative("in the bot's", trips[0]),
        ),
        metrics.Measure("what the process costs of that", "ms", differences, bar=1.5),
        metrics.Measure(
            "what TLS and a machine of a fleet cost of 1+1", "ms", tls_differences, bar=1.5
        ),
        metrics.Measure(
            "session wanted → stack imported, spare in a host process",
            "ms",
            stack_times[1],
            bar=20.0,
            alternative=metrics.Alternative("in the bot's", stack_times[0]),
        ),
        metrics.Measure(
            "the same → a sum of pandas shown",
            "ms",
            sum_times[1],
            alternative=metrics.Alternative("in the bot's", sum_times[0]),
        ),
    ]


async def _time_first_codes(
    count: int, inner_host: local_host.LocalHost, outer_host: ports.Hosts, code: str
) -> tuple[list[float], list[float]]:
    """Return the milliseconds from a session's request to the end of its first code, by host."""
    times_by_host: tuple[list[float], list[float]] = [], []
    for number in range(count + 1):
        for host, times in zip((inner_host, outer_host), times_by_host, strict=True):
            await asyncio.sleep(_SETTLE_SECONDS)
            key = f"session {number}"
            start_time = time.perf_counter()
            async with host.lease(key) as lease:
                await _execute(await lease.kernel(), code)
                if number:
                    times.append(measured_bots.milliseconds_since(start_time))
            await host.forget(key)
    return times_by_host


async def _measure_tls(inner_host: local_host.LocalHost, count: int) -> list[float]:
    """Return the milliseconds that each trip takes longer to the same host over TLS."""
    data, name = inner_host.data, "127.0.0.1"
    authority = certificate_authorities.CertificateAuthority(data / "certificates")
    host_certificate = authority.issue([name], is_bot=False, days=1)
    bot_certificate = authority.issue(["bot"], is_bot=True, days=1)
    with socket.socket() as probe:
        probe.bind((name, 0))
        port = probe.getsockname()[1]
    credentials = host_addresses.Credentials(host_certificate, is_host=True)
    tls = host_addresses.TlsAddress(name, port, credentials=credentials)
    fleet = host_lists.Fleet([f"{name}:{port}"], bot_certificate)
    async with (
        executions.Executions.open(data / "journals") as host_executions,
        host_server.HostServer.open(inner_host, host_executions, data / "host.sock", tls=tls),
        databases.Database.open(
            f"sqlite:///{data}/bot.db", blobs_directory=data / "kept"
        ) as database,
        placed_hosts.PlacedHosts.open(fleet, database.placements) as fleet_hosts,
        inner_host.lease("near") as inner_lease,
        fleet_hosts.lease("far") as fleet_lease,
    ):
        inner, outer = await inner_lease.kernel(), await fleet_lease.kernel()
        differences = []
        for _ in range(count + 10):
            times = []
            for kernel in (inner, outer):
                start_time = time.perf_counter()
                await _execute(kernel, "1+1")
                times.append(measured_bots.milliseconds_since(start_time))
            differences.append(times[1] - times[0])
        return differences[10:]


async def _measure_idle_host(count: int) -> tuple[float, float]:
    """Let idle sessions be saved and ended; return the host's megabytes then, and once it rests."""
    with tempfile.TemporaryDirectory(prefix="b-") as place:
        config = _make_settings(
            place, idle_seconds=_IDLE_SECONDS, spares=0, rest_seconds=_REST_SECONDS
        )
        async with host_processes.open_host(config, may_start=True) as host:
            for number in range(count):
                async with host.lease(f"idle {number}") as lease:
                    await _execute(await lease.kernel(), f"number = {number}")
            async with asyncio.timeout(_MAX_RELEASE_SECONDS):
                while await host.statuses():  # noqa: ASYNC110 - a host ends idle kernels at intervals
                    await asyncio.sleep(1)
            # The last kernels are still ending.
            await asyncio.sleep(_IDLE_SECONDS)
            for number in range(count):
                if (await host.variables(f"idle {number}")).saved is None:
                    raise RuntimeError(f"session {number} was not saved")
            megabytes = await asyncio.to_thread(_count_host_megabytes, config.paths)
            # A host checks twice a minute whether it can rest.
            await asyncio.sleep(_REST_SECONDS + 45.0)
            return megabytes, await asyncio.to_thread(_count_host_megabytes, config.paths)


def _count_host_megabytes(paths: settings.Paths) -> float:
    """Return the megabytes of a host and its descendants; a shared page counts once."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(host_sockets.newest_link(paths)))
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    total_bytes, pids = 0, [struct.unpack("3i", credentials)[0]]
    while pids:
        pid = pids.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            directory = pathlib.Path("/proc", str(pid))
            pids += map(int, (directory / f"task/{pid}/children").read_text().split())
            total_bytes += memory.read_memory_bytes(pid)[1]
    return total_bytes / measured_bots.MEGABYTE


async def _execute(kernel: ports.Kernel, code: str) -> None:
    end = await kernel.execute(code, execution_id=uuid.uuid4().hex, show=lambda *_: None)
    if end.finished.ending is not values.Ending.OK:
        raise RuntimeError(f"the code ended {end}")


@contextlib.asynccontextmanager
async def _open_hosts() -> AsyncIterator[tuple[local_host.LocalHost, ports.Hosts]]:
    """Open a host in this process and one in another."""
    with (
        tempfile.TemporaryDirectory(prefix="b-") as inner_directory,
        tempfile.TemporaryDirectory(prefix="b-") as outer_directory,
    ):
        async with (
            local_startup.open_host(_make_settings(inner_directory)) as inner_host,
            host_processes.open_host(_make_settings(outer_directory), may_start=True) as outer_host,
        ):
            yield inner_host, outer_host


def _make_settings(path: str, **kernels: float) -> settings.Settings:
    directory = pathlib.Path(path)
    return settings.Settings(
        kernels=settings.Kernels(**{"spares": _SPARES, **kernels}),
        paths=settings.Paths(data=directory / "d", runtime=directory / "r"),
    )
