"""What the way outside costs: a round trip and 100 MB through a tunnel, against direct access."""

from __future__ import annotations

import asyncio
import json
import pathlib
import resource
import socket
import sys
import tempfile
from typing import Any

from bench import efforts, figures
from interpreter_bot import settings, values
from interpreter_bot.egress import broker
from interpreter_bot.hosts import detached_executions, local_host

_HOST = "data.example.org"
_BYTES = 100_000_000
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
    with _open(port, proxy, authority) as one:
        times = []
        for _ in range(trips):
            began = time.perf_counter()
            one.sendall(b"p")
            one.recv(1)
            times.append((time.perf_counter() - began) * 1000)
        began, left = time.perf_counter(), size
        one.sendall(b"b")
        while left:
            left -= len(one.recv(1 << 18))
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
    authority = certificates.Authority()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.context(host))
    port = server.sockets[0].getsockname()[1]
    print(json.dumps([port, authority.certificate]), flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def run(effort: efforts.Effort) -> list[figures.Measure]:
    """Measure it in one kernel, against a plain process; the server is a process of its own."""
    arguments = ["-c", _SERVER, _HOST, str(_BYTES)]
    server = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        port, authority = json.loads(await server.stdout.readline())
        call = f"{authority!r}, {effort.trips}, {_BYTES})))"
        code = f"host = {_HOST!r}\n{_CLIENT}\nprint(json.dumps(measure({port}, PROXY, {call}"
        plain = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code.replace("PROXY", "0"), stdout=asyncio.subprocess.PIPE
        )
        direct = json.loads((await plain.communicate())[0])
        through, grown_bytes = await _through(port, code.replace("PROXY", "61080"))
    finally:
        server.kill()
        await server.wait()
    return [
        figures.Measure(
            "round trip through a tunnel",
            "ms",
            through["trips"],
            bar=2.0,
            alternative=figures.Alternative("direct", direct["trips"]),
        ),
        figures.Measure(
            "100 MB through a tunnel",
            "s",
            [through["seconds"]],
            alternative=figures.Alternative("direct", [direct["seconds"]]),
            least_ratio=0.6,
        ),
        figures.Measure("memory of the bot after that", "MiB", [grown_bytes / 2**20], bar=16.0),
    ]


async def _through(port: int, code: str) -> tuple[dict[str, Any], int]:
    """Run code in a kernel whose rules list one port; returns what it said, and the bot's growth.

    The most memory that this process ever had says what was held meanwhile.
    """

    async def here(host: str, number: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number))]

    rule = settings.Egress(host=_HOST, ports=(port,), addresses=("127.0.0.1",))
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as name:
        config = settings.Settings(
            kernels=settings.Kernels(preload=(), spares=0),
            paths=settings.Paths(data=pathlib.Path(name, "d"), runtime=pathlib.Path(name, "r")),
            egress=(rule,),
        )
        async with (
            broker.opened(config, {}, resolve=here) as keeper,
            local_host.LocalHost.open(config, doorkeeper=keeper) as host,
            host.lease(values.text(values.SessionKey("bench"))) as lease,
        ):
            kernel = await lease.kernel()
            shown: list[values.Output] = []
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await detached_executions.run(host, kernel, code, show=shown.append)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return json.loads("".join(one.plain for one in shown)), grown * 1024
