"""Overhead of outgoing connections: a round trip and 100 MB, through a tunnel and direct.

Also the lag of the bot's event loop while many sessions download at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import resource
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from bench import measured_bots, metrics, sample_sizes
from interpreter_bot import settings, values
from interpreter_bot.egress import broker
from interpreter_bot.hosts import cancellable_executions, host_processes, local_startup, ports

_HOST = "data.example.org"
_TRANSFER_BYTES = 100_000_000
_MAX_CROWD = 50
_SETTLE_SECONDS = 4.0
_CROWD_SECONDS = 15.0
_CLIENT = """
import json, os, socket, ssl, time
def _open(port, proxy, authority):
    raw = socket.create_connection(("127.0.0.1", proxy or port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if proxy:
        raw.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
        assert b" 200 " in raw.recv(1000)
    context = ssl.create_default_context(cadata=authority)
    return context.wrap_socket(raw, server_hostname=host)
def measure(port, proxy, authority, trips, size):
    with _open(port, proxy, authority) as connection:
        times = []
        for _ in range(trips):
            began = time.perf_counter()
            connection.sendall(b"p")
            connection.recv(1)
            times.append((time.perf_counter() - began) * 1000)
        began, missing = time.perf_counter(), size
        connection.sendall(b"b")
        while missing:
            missing -= len(connection.recv(1 << 18))
        return {"trips": times, "seconds": time.perf_counter() - began}
"""


_SERVER = """
import asyncio, json, ssl, sys
from interpreter_bot.egress import certificates
host, size = sys.argv[1], int(sys.argv[2])
async def serve(reader, writer):
    while word := await reader.read(1):
        writer.write(word if word == b"p" else bytes(size))
        await writer.drain()
    writer.close()
async def main():
    authority = certificates.Authority(b"seed")
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.context(host))
    port = server.sockets[0].getsockname()[1]
    print(json.dumps([port, authority.certificate]), flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def run(effort: sample_sizes.Effort) -> list[metrics.Measure]:
    """Measure in one kernel and in a plain process; the server is a process of its own."""
    arguments = ["-c", _SERVER, _HOST, str(_TRANSFER_BYTES)]
    server = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        port, authority = json.loads(await server.stdout.readline())
        call = f"measure({port}, PROXY, {authority!r}, {effort.trips}, {_TRANSFER_BYTES})"
        code = f"host = {_HOST!r}\n{_CLIENT}\nprint(json.dumps({call}))"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code.replace("PROXY", "0"), stdout=asyncio.subprocess.PIPE
        )
        direct = json.loads((await process.communicate())[0])
        tunnel, grown_bytes = await _run_in_kernel(port, code.replace("PROXY", "61080"))
        streamed_tunnel, _ = await _run_in_kernel(
            port, code.replace("PROXY", "61080"), is_apart=True
        )
        crowd = min(_MAX_CROWD, effort.sessions)
        call = f"measure({port}, 61080, {authority!r}, 1, {_TRANSFER_BYTES})"
        download_code = f"host = {_HOST!r}\n{_CLIENT}\n{call}"
        lags, finished = await _download_at_once(port, download_code, crowd)
    finally:
        server.kill()
        await server.wait()
    return [
        metrics.Measure(
            "round trip through a tunnel",
            "ms",
            tunnel["trips"],
            bar=2.0,
            alternative=metrics.Alternative("direct", direct["trips"]),
        ),
        metrics.Measure(
            "100 MB through a tunnel",
            "s",
            [tunnel["seconds"]],
            alternative=metrics.Alternative("direct", [direct["seconds"]]),
            least_ratio=0.6,
        ),
        metrics.Measure(
            "round trip through a tunnel, kernel in a host process",
            "ms",
            streamed_tunnel["trips"],
            bar=2.0,
        ),
        metrics.Measure(
            "100 MB through a tunnel, kernel in a host process", "s", [streamed_tunnel["seconds"]]
        ),
        metrics.Measure("memory of the bot after that", "MiB", [grown_bytes / 2**20], bar=16.0),
        metrics.Measure(
            f"loop lag while {crowd} sessions download 100 MB each",
            "ms",
            lags,
            "p99",
            bar=20.0,
            notes={"finished": finished},
        ),
    ]


async def _run_in_kernel(
    port: int, code: str, *, is_apart: bool = False
) -> tuple[dict[str, Any], int]:
    """Run code in a kernel that may reach one port; return its result and the bot's growth.

    The growth is that of this process's peak memory, in bytes.
    """
    key = values.format_key(values.SessionKey("bench"))
    async with _open_host(port, is_apart=is_apart) as host, host.lease(key) as lease:
        kernel = await lease.kernel()
        outputs: list[values.Output] = []
        kibibytes_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await cancellable_executions.run(host, kernel, code, show=outputs.append)
        grown_kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kibibytes_before
    return json.loads("".join(output.plain for output in outputs)), grown_kibibytes * 1024


async def _download_at_once(port: int, code: str, count: int) -> tuple[list[float], int]:
    """Run the code in many sessions at once; return the loop's lags and the number of successes.

    Most sessions are still downloading at the end, because only the loop's lag is the subject. The
    sessions share the processors with the server, so this is the worst case of one machine.
    """
    lags: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(_open_host(port, count))
        kernels = []
        for number in range(count):
            key = values.format_key(values.SessionKey("bench", thread=str(number)))
            kernels.append(await (await stack.enter_async_context(host.lease(key))).kernel())
        runs = [
            asyncio.create_task(cancellable_executions.run(host, kernel, code, show=lambda _: None))
            for kernel in kernels
        ]
        # By then all have connected.
        await asyncio.sleep(_SETTLE_SECONDS)
        async with measured_bots.running_meanwhile(measured_bots.record_lags(lags)):
            finished_runs, unfinished_runs = await asyncio.wait(runs, timeout=_CROWD_SECONDS)
        for run in unfinished_runs:
            run.cancel()
        await asyncio.gather(*unfinished_runs, return_exceptions=True)
        return lags, sum(run.result().ending is values.Ending.OK for run in finished_runs)


@contextlib.asynccontextmanager
async def _open_host(
    port: int, count: int = 1, *, is_apart: bool = False
) -> AsyncIterator[ports.Hosts]:
    """Open a host in this process or in another; its sessions may reach one port."""

    async def resolve(host: str, number: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number))]

    rule = settings.Egress(host=_HOST, ports=(port,), addresses=("127.0.0.1",))
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        config = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0, concurrent=count + 2),
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            egress=(rule,),
        )
        async with contextlib.AsyncExitStack() as stack:
            doorkeeper = await stack.enter_async_context(
                broker.open_broker(config, {}, resolve=resolve)
            )
            if is_apart:
                opening = host_processes.open_host(config, may_start=True, doorkeeper=doorkeeper)
                yield await stack.enter_async_context(opening)
            else:
                opening = local_startup.open_host(config, doorkeeper=doorkeeper)
                yield await stack.enter_async_context(opening)
