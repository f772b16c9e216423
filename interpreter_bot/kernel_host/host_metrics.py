"""Health probes of a host, and its metrics in the format of Prometheus.

Anybody who can reach the port can read them over plain HTTP, so they contain numbers but no names.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.hosts import host_addresses
from interpreter_bot.kernel_host import host_server
from interpreter_bot.kernels import machine_exhaustion, machines
from interpreter_bot.wording import host_words

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "interpreter_bot_host_"


@contextlib.asynccontextmanager
async def serving(host: host_server.HostServer, address: str) -> AsyncIterator[None]:
    """Answer probes and requests for metrics at an address, as `0.0.0.0:9464`, in the context.

    Raises:
        SettingsError: the address is invalid, or cannot be used.
    """

    async def answer_live(_: web.Request) -> web.Response:
        return web.Response(text="live\n")

    async def answer_ready(_: web.Request) -> web.Response:
        if host.is_draining:
            return web.Response(text="draining\n", status=503)
        return web.Response(text="ready\n")

    async def answer_metrics(_: web.Request) -> web.Response:
        free_bytes = await asyncio.to_thread(machine_exhaustion.free_bytes)
        total_bytes = machines.memory_bytes()
        figures = {
            "memory_bytes": (host_words.MEMORY_HELP, total_bytes),
            "memory_free_bytes": (host_words.FREE_MEMORY_HELP, free_bytes),
            "used_ratio": (
                host_words.USED_RATIO_HELP,
                1.0 if host.is_draining else max(0.0, 1 - free_bytes / total_bytes),
            ),
            "draining": (host_words.DRAINING_HELP, int(host.is_draining)),
        }
        for name, count in (await host.counts()).items():
            figures[name] = (host_words.current_number_help(name), count)
        text = "".join(
            f"# HELP {metric} {help_text}\n# TYPE {metric} gauge\n{metric} {value}\n"
            for metric, (help_text, value) in (
                (_PREFIX + name, figure) for name, figure in figures.items()
            )
        )
        return web.Response(body=text.encode(), headers={"Content-Type": _CONTENT_TYPE})

    name, port = host_addresses.parse(address)
    application = web.Application()
    application.add_routes(
        [
            web.get("/livez", answer_live),
            web.get("/readyz", answer_ready),
            web.get("/metrics", answer_metrics),
        ]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, name, port).start()
        except OSError as error:
            message = host_words.cannot_listen(address, error.strerror, "host.metrics")
            raise errors.SettingsError(message) from error
        yield
    finally:
        await runner.cleanup()
