"""What bots ask of sessions: of their state, and of their files, which are streamed both ways.

What is wrong with a request is told as of all others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.hosts import host_messages, ports

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 * 1024


def state_routes(
    host: ports.Hosts, on_fork: Callable[[str, int], Awaitable[None]]
) -> list[web.RouteDef]:
    """Return what bots ask of variables, copies, ways back, and a fresh beginning.

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


def file_routes(host: ports.Hosts) -> list[web.RouteDef]:
    """Return what bots ask of files.

    Args:
        host: whose sessions' files they are about.
    """
    files = _Files(host)
    return [
        web.get("/v1/files", files.list),
        web.get("/v1/file", files.read),
        web.get("/v1/kept", files.kept),
        web.put("/v1/file", files.put),
        web.patch("/v1/file", files.rename),
        web.delete("/v1/file", files.delete),
        web.post("/v1/mark", files.mark),
        web.get("/v1/changes", files.changes),
    ]


class _Files:
    def __init__(self, host: ports.Hosts) -> None:
        self._host = host

    async def _workspace(self, request: web.Request) -> ports.Workspace:
        return await self._host.workspace(request.query["key"])

    async def list(self, request: web.Request) -> web.Response:
        return _json(await (await self._workspace(request)).list())

    async def mark(self, request: web.Request) -> web.Response:
        return _json(await (await self._workspace(request)).mark())

    async def changes(self, request: web.Request) -> web.Response:
        workspace = await self._workspace(request)
        return _json(await workspace.changes_since(request.query["mark"]))

    async def kept(self, request: web.Request) -> web.Response:
        workspace = await self._workspace(request)
        return _json(await workspace.kept(request.query["name"]))

    async def put(self, request: web.Request) -> web.Response:
        workspace = await self._workspace(request)
        chunks = request.content.iter_chunked(_CHUNK_BYTES)
        return _json(await workspace.put(request.query["name"], chunks))

    async def rename(self, request: web.Request) -> web.Response:
        workspace, query = await self._workspace(request), request.query
        return _json(await workspace.rename(query["name"], query["to"]))

    async def delete(self, request: web.Request) -> web.Response:
        await (await self._workspace(request)).delete(request.query["name"])
        return _json({})

    async def read(self, request: web.Request) -> web.StreamResponse:
        workspace, query = await self._workspace(request), request.query
        reading = workspace.read(
            query["name"],
            start=int(query["start"]),
            most_bytes=int(query["most"]) if "most" in query else None,
            may_be_sparse="sparse" in query,
            checkpoint=query.get("checkpoint", ""),
        )
        async with reading as content:
            response = web.StreamResponse()
            response.headers["X-File"] = host_messages.document(content.info).decode("ascii")
            await response.prepare(request)
            try:
                async for chunk in content:
                    await response.write(chunk)
            except errors.WorkspaceError:
                # The length is not known beforehand: only a broken connection says that it broke.
                _log.exception("a file could not be read to its end")
                if request.transport is not None:
                    request.transport.abort()
            await response.write_eof()
            return response


def _json(value: object) -> web.Response:
    return web.Response(body=host_messages.document(value), content_type="application/json")
