"""HTTP requests to a host from operators, and from what places sessions; not from sessions."""

from __future__ import annotations

from aiohttp import web

from interpreter_bot.hosts import host_messages, local_host
from interpreter_bot.kernels import session_archives


def routes(
    host: local_host.LocalHost, archives: session_archives.SessionArchives | None
) -> list[web.RouteDef]:
    """Return the requests; what is wrong with one is told as of all others.

    Args:
        host: that they are about.
        archives: of its sessions, where machines share a store.
    """

    async def save(request: web.Request) -> web.Response:
        return _json(await host.save(str((await request.json())["key"])))

    async def end(request: web.Request) -> web.Response:
        said = await request.json()
        await host.end(str(said["key"]), str(said["reason"]))
        return _json({})

    async def offer(request: web.Request) -> web.Response:
        return _json(await host.offer(str((await request.json())["key"])))

    async def snapshot_sizes(request: web.Request) -> web.Response:
        keys = list(map(str, (await request.json())["keys"]))
        return _json(await host.snapshot_sizes(keys))

    async def arrive(request: web.Request) -> web.Response:
        key, epoch = request.query["key"], int(request.query["epoch"])
        return _json(archives is not None and await archives.arrive(key, epoch))

    async def archive(request: web.Request) -> web.Response:
        return _json(archives is not None and await archives.archive(request.query["key"]))

    return [
        web.post("/v1/arrive", arrive),
        web.post("/v1/archive", archive),
        web.post("/v1/offer", offer),
        web.post("/v1/save", save),
        web.post("/v1/end", end),
        web.post("/v1/snapshot_sizes", snapshot_sizes),
    ]


def _json(value: object) -> web.Response:
    return web.Response(body=host_messages.document(value), content_type="application/json")
