"""What bots ask of the state of sessions: variables, copies, ways back, and a fresh beginning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from interpreter_bot.hosts import host_messages, ports


def routes(host: ports.Hosts, on_fork: Callable[[str, int], Awaitable[None]]) -> list[web.RouteDef]:
    """Return the requests; what is wrong with one is told as of all others.

    Args:
        host: whose sessions they are about.
        on_fork: is told of each new session, and its epoch.
    """

    async def statuses(request: web.Request) -> web.Response:
        keys = (await request.json())["keys"]
        return _json(await host.statuses(None if keys is None else list(map(str, keys))))

    async def variables(request: web.Request) -> web.Response:
        return _json(await host.variables(str((await request.json())["key"])))

    async def fork(request: web.Request) -> web.Response:
        said = await request.json()
        key, new_key, name = str(said["key"]), str(said["new_key"]), str(said["checkpoint"])
        saved = await host.fork(key, new_key, checkpoint=name)
        await on_fork(new_key, int(said.get("new_epoch", 0)))
        return _json(saved)

    async def note_checkpoint(request: web.Request) -> web.Response:
        said = await request.json()
        await host.note_checkpoint(str(said["key"]), str(said["checkpoint"]))
        return _json({})

    async def go_back(request: web.Request) -> web.Response:
        said = await request.json()
        key, name, is_whole = str(said["key"]), str(said["checkpoint"]), said["is_whole"] is True
        return _json(await host.go_back(key, name, is_whole=is_whole))

    async def release(request: web.Request) -> web.Response:
        await host.release(str((await request.json())["key"]))
        return _json({})

    return [
        web.post("/v1/statuses", statuses),
        web.post("/v1/release", release),
        web.post("/v1/variables", variables),
        web.post("/v1/fork", fork),
        web.post("/v1/note_checkpoint", note_checkpoint),
        web.post("/v1/go_back", go_back),
    ]


def _json(value: object) -> web.Response:
    return web.Response(body=host_messages.document(value), content_type="application/json")
