"""What a kernel costs in a process of its own: each trip against the same in this process."""

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
_LET_GO_SECONDS = 100.0
# By default this is as long as an idle kernel is kept: where the last was let go, the host rests.
_REST_SECONDS = 150.0
# The first is what `first_result_latency` runs: its figure without a host is that of today.
_FIRSTS = (
    measured_bots.IMPORT_STACK_CODE,
    "import pandas as pd; pd.DataFrame({'a': [1, 2]}).sum()",
)


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure both in turns, so that they meet the same machine."""
    async with _opened() as (inside, apart):
        async with inside.lease("trips") as ours, apart.lease("trips") as theirs:
            near, far = await ours.kernel(), await theirs.kernel()
            trips: tuple[list[float], list[float]] = [], []
            for number in range(effort.trips + 10):
                for kernel, taken in zip((near, far), trips, strict=True):
                    began = time.perf_counter()
                    await _execute(kernel, "1+1")
                    if number >= 10:
                        taken.append(measured_bots.milliseconds(began))
        over_tls = await _more_over_tls(inside, effort.trips)
        stack, result = [await _firsts(effort.starts, inside, apart, code) for code in _FIRSTS]
    held, at_rest = await _held_megabytes(effort.sessions)
    more = [far - near for near, far in zip(*trips, strict=True)]
    return [
        metrics.Measure(
            f"a host at rest with {effort.sessions} sessions that are saved and let go, no spares",
            "MB",
            [at_rest],
            bar=150.0,
        ),
        metrics.Measure(
            "the same, where some kernel was used within `kernels.rest_seconds`", "MB", [held]
        ),
        metrics.Measure(
            "(1+1 in a host process)",
            "ms",
            trips[1],
            alternative=metrics.Alternative("in the bot's", trips[0]),
        ),
        metrics.Measure("what the process costs of that", "ms", more, bar=1.5),
        metrics.Measure("what TLS and a machine of a fleet cost of 1+1", "ms", over_tls, bar=1.5),
        metrics.Measure(
            "session wanted → stack imported, spare in a host process",
            "ms",
            stack[1],
            bar=20.0,
            alternative=metrics.Alternative("in the bot's", stack[0]),
        ),
        metrics.Measure(
            "the same → a sum of pandas shown",
            "ms",
            result[1],
            alternative=metrics.Alternative("in the bot's", result[0]),
        ),
    ]


async def _firsts(
    count: int, inside: local_host.LocalHost, apart: ports.Hosts, code: str
) -> tuple[list[float], list[float]]:
    """Milliseconds from asking for a session to the end of its first code, in both."""
    firsts: tuple[list[float], list[float]] = [], []
    for number in range(count + 1):
        for host, taken in zip((inside, apart), firsts, strict=True):
            await asyncio.sleep(_SETTLE_SECONDS)
            key = f"session {number}"
            began = time.perf_counter()
            async with host.lease(key) as lease:
                await _execute(await lease.kernel(), code)
                if number:
                    taken.append(measured_bots.milliseconds(began))
            await host.forget(key)
    return firsts


async def _more_over_tls(inside: local_host.LocalHost, count: int) -> list[float]:
    """Milliseconds that each trip takes longer to the same host over TLS, as one of a fleet."""
    data, name = inside.data, "127.0.0.1"
    authority = certificate_authorities.CertificateAuthority(data / "certificates")
    ours = authority.issue([name], is_bot=False, days=1)
    theirs = authority.issue(["bot"], is_bot=True, days=1)
    with socket.socket() as unused:
        unused.bind((name, 0))
        port = unused.getsockname()[1]
    credentials = host_addresses.Credentials(ours, is_host=True)
    tls = host_addresses.TlsAddress(name, port, credentials=credentials)
    fleet = host_lists.Fleet([f"{name}:{port}"], theirs)
    async with (
        executions.Executions.open(data / "journals") as begun,
        host_server.HostServer.open(inside, begun, data / "host.sock", tls=tls),
        databases.Database.open(
            f"sqlite:///{data}/bot.db", blobs_directory=data / "kept"
        ) as database,
        placed_hosts.PlacedHosts.open(fleet, database.placements) as placed,
        inside.lease("near") as near_lease,
        placed.lease("far") as far_lease,
    ):
        near, far = await near_lease.kernel(), await far_lease.kernel()
        more = []
        for _ in range(count + 10):
            taken = []
            for kernel in (near, far):
                began = time.perf_counter()
                await _execute(kernel, "1+1")
                taken.append(measured_bots.milliseconds(began))
            more.append(taken[1] - taken[0])
        return more[10:]


async def _held_megabytes(count: int) -> tuple[float, float]:
    """Let that many sessions be saved and let go; megabytes of all processes of a host then, and
    once it rests."""
    with tempfile.TemporaryDirectory(prefix="b-") as place:
        config = _config(place, idle_seconds=_IDLE_SECONDS, spares=0, rest_seconds=_REST_SECONDS)
        async with host_processes.open_host(config, may_start=True) as host:
            for number in range(count):
                async with host.lease(f"idle {number}") as lease:
                    await _execute(await lease.kernel(), f"number = {number}")
            async with asyncio.timeout(_LET_GO_SECONDS):
                while await host.statuses():  # noqa: ASYNC110 - a host reaps now and then
                    await asyncio.sleep(1)
            # The last of them are still ending.
            await asyncio.sleep(_IDLE_SECONDS)
            for number in range(count):
                if (await host.variables(f"idle {number}")).saved is None:
                    raise RuntimeError(f"session {number} was not saved")
            held = await asyncio.to_thread(_megabytes_of_host, config.paths)
            # A host looks twice a minute whether anybody wants a kernel.
            await asyncio.sleep(_REST_SECONDS + 45.0)
            return held, await asyncio.to_thread(_megabytes_of_host, config.paths)


def _megabytes_of_host(paths: settings.Paths) -> float:
    """Megabytes of a host and of all processes below it, each page counted once."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(host_sockets.newest_link(paths)))
        peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    held, children = 0, [struct.unpack("3i", peer)[0]]
    while children:
        own = children.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            place = pathlib.Path("/proc", str(own))
            children += map(int, (place / f"task/{own}/children").read_text().split())
            held += memory.held_bytes(own)[1]
    return held / measured_bots.MEGABYTE


async def _execute(kernel: ports.Kernel, code: str) -> None:
    end = await kernel.execute(code, execution_id=uuid.uuid4().hex, show=lambda *_: None)
    if end.finished.ending is not values.Ending.OK:
        raise RuntimeError(f"it ended {end}")


@contextlib.asynccontextmanager
async def _opened() -> AsyncIterator[tuple[local_host.LocalHost, ports.Hosts]]:
    """Open a host in this process and one in another."""
    with (
        tempfile.TemporaryDirectory(prefix="b-") as near,
        tempfile.TemporaryDirectory(prefix="b-") as far,
    ):
        async with (
            local_startup.open_host(_config(near)) as inside,
            host_processes.open_host(_config(far), may_start=True) as apart,
        ):
            yield inside, apart


def _config(directory: str, **kernels: float) -> settings.Settings:
    place = pathlib.Path(directory)
    return settings.Settings(
        kernels=settings.Kernels(**{"spares": _SPARES, **kernels}),
        paths=settings.Paths(data=place / "d", runtime=place / "r"),
    )
