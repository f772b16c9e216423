"""Handlers of a host for the requests of bots, and routes that stream files both ways."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.hosts import executions, host_messages, host_requests, local_host, ports
from interpreter_bot.kernel_host import session_epochs
from interpreter_bot.kernels import session_archives

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 * 1024

Answers: TypeAlias = Mapping[type[host_requests.Request[Any]], Callable[[Any], Awaitable[object]]]
"""By type of request: its handler, which returns the answer."""


def answers(
    host: local_host.LocalHost,
    host_executions: executions.Executions,
    epochs: session_epochs.SessionEpochs,
    archives: session_archives.SessionArchives | None,
) -> Answers:
    """Return the handlers of requests about sessions and their files.

    Args:
        host: has the sessions.
        host_executions: its executions.
        epochs: of sessions.
        archives: of sessions, if machines share a store.
    """

    async def note_change(key: str) -> None:
        # Only files that people change; saving variables notes those that code changes.
        if archives is not None:
            await archives.note_change(key)

    async def fork(request: host_requests.Fork) -> object:
        saved = await host.fork(request.key, request.new_key, checkpoint=request.checkpoint)
        await epochs.accept(request.new_key, request.new_epoch)
        await note_change(request.new_key)
        return saved

    async def go_back(request: host_requests.GoBack) -> object:
        saved = await host.go_back(request.key, request.name, is_whole=request.is_whole)
        await note_change(request.key)
        return saved

    async def forget(request: host_requests.Forget) -> None:
        await host.forget(request.key)
        if archives is not None:
            await archives.forget(request.key)

    async def arrive(request: host_requests.Arrive) -> bool:
        return archives is not None and await archives.arrive(request.key, request.epoch)

    async def archive(request: host_requests.Archive) -> bool:
        return archives is not None and await archives.archive(request.key)

    async def list_files(request: host_requests.ListFiles) -> object:
        return await (await host.workspace(request.key)).list()

    async def kept_files(request: host_requests.KeptFiles) -> object:
        return await (await host.workspace(request.key)).kept(request.name)

    async def rename_file(request: host_requests.RenameFile) -> str:
        workspace = await host.workspace(request.key)
        name = await workspace.rename(request.name, request.new_name)
        await note_change(request.key)
        return name

    async def delete_file(request: host_requests.DeleteFile) -> None:
        await (await host.workspace(request.key)).delete(request.name)
        await note_change(request.key)

    async def mark_files(request: host_requests.MarkFiles) -> str:
        return await (await host.workspace(request.key)).mark()

    async def changed_files(request: host_requests.ChangedFiles) -> object:
        return await (await host.workspace(request.key)).changes_since(request.mark)

    return {
        host_requests.Statuses: lambda request: host.statuses(request.keys),
        host_requests.Variables: lambda request: host.variables(request.key),
        host_requests.Fork: fork,
        host_requests.NoteCheckpoint: lambda request: host.note_checkpoint(
            request.key, request.name
        ),
        host_requests.GoBack: go_back,
        host_requests.Release: lambda request: host.release(request.key),
        host_requests.Forget: forget,
        host_requests.Stop: lambda request: host_executions.stop(
            request.execution_id, request.reason
        ),
        host_requests.StoredBytes: lambda request: host.stored_bytes(request.keys),
        host_requests.Save: lambda request: host.save(request.key),
        host_requests.End: lambda request: host.end(request.key, request.reason),
        host_requests.SnapshotSizes: lambda request: host.snapshot_sizes(request.keys),
        host_requests.Offer: lambda request: host.offer(request.key),
        host_requests.Arrive: arrive,
        host_requests.Archive: archive,
        host_requests.Fence: lambda request: epochs.fence(request.key, request.epoch),
        host_requests.ListFiles: list_files,
        host_requests.KeptFiles: kept_files,
        host_requests.RenameFile: rename_file,
        host_requests.DeleteFile: delete_file,
        host_requests.MarkFiles: mark_files,
        host_requests.ChangedFiles: changed_files,
    }


def route(handlers: Answers) -> web.RouteDef:
    """Return the HTTP route of all requests."""

    async def answer(request: web.Request) -> web.Response:
        request_type = host_requests.REQUESTS.get(request.match_info["name"])
        if request_type is None or request_type not in handlers:
            raise web.HTTPNotFound
        message = await read(request_type, request)
        return _json(await handlers[request_type](message))

    return web.post("/v1/requests/{name}", answer)


async def read(kind: type[Any], request: web.Request) -> Any:  # noqa: ANN401
    """Read a request of a bot.

    Raises:
        HTTPBadRequest: it is not valid.
    """
    try:
        return host_messages.read(kind, await request.json())
    except (ValueError, RecursionError) as error:  # MalformedError is one.
        raise web.HTTPBadRequest from error


def file_routes(
    host: local_host.LocalHost, archives: session_archives.SessionArchives | None
) -> list[web.RouteDef]:
    """Return the HTTP routes that stream files of sessions."""

    async def put(request: web.Request) -> web.Response:
        key = request.query["key"]
        workspace = await host.workspace(key)
        chunks = request.content.iter_chunked(_CHUNK_BYTES)
        info = await workspace.put(request.query["name"], chunks)
        if archives is not None:
            await archives.note_change(key)
        return _json(info)

    async def get(request: web.Request) -> web.StreamResponse:
        query = request.query
        workspace = await host.workspace(query["key"])
        reading = workspace.read(
            query["name"],
            start=int(query["start"]),
            most_bytes=int(query["most"]) if "most" in query else None,
            may_be_sparse="sparse" in query,
            checkpoint=query.get("checkpoint", ""),
        )
        async with reading as content:
            return await _stream(request, content)

    return [web.put("/v1/file", put), web.get("/v1/file", get)]


async def _stream(request: web.Request, content: ports.Content) -> web.StreamResponse:
    response = web.StreamResponse()
    response.headers["X-File"] = host_messages.document(content.info).decode("ascii")
    await response.prepare(request)
    try:
        async for chunk in content:
            await response.write(chunk)
    except errors.WorkspaceError:
        # The response has no length, so only a broken connection shows that bytes are missing.
        _log.exception("a file could not be read to its end")
        if request.transport is not None:
            request.transport.abort()
    await response.write_eof()
    return response


def _json(value: object) -> web.Response:
    return web.Response(body=host_messages.document(value), content_type="application/json")
