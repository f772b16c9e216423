"""Answers of a host to requests of bots, and routes by which files are uploaded and downloaded."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from aiohttp import web

from interpreter_bot import cancellation, errors, session_variables
from interpreter_bot.hosts import executions, local_host, messages, ports, requests
from interpreter_bot.kernel_host import door_leases, session_epochs
from interpreter_bot.kernels import session_archives

_log = logging.getLogger(__name__)

T = TypeVar("T")

_CHUNK_BYTES: Final = 256 * 1024
_WORKSPACE_PREFIX: Final = ports.Workspace.__name__ + "."
_CHANGING_REQUESTS: Final = frozenset(
    {ports.Workspace.rename.__qualname__, ports.Workspace.delete.__qualname__}
)


class RequestAnswers:
    """Answers all requests, with methods of this class, the local host, its doors, or a workspace.

    A method of this class has the name of its request, and extends the host's method.
    """

    def __init__(
        self,
        host: local_host.LocalHost,
        host_executions: executions.Executions,
        epochs: session_epochs.SessionEpochs,
        archives: session_archives.SessionArchives | None,
        doors: door_leases.DoorLeases,
        drain: Callable[..., Awaitable[None]],
    ) -> None:
        self._host, self._epochs, self._archives = host, epochs, archives
        self.drain, self.stop, self.end_moved_session = (
            drain,
            host_executions.stop,
            epochs.end_moved_session,
        )
        targets = (self, doors, host)
        # Find all methods now, so that a missing method is noticed at the start.
        self._methods = {
            name: _find_method(request.method_name, targets)
            for name, request in requests.REQUESTS.items()
            if not name.startswith(_WORKSPACE_PREFIX)
        }

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of all requests, and of streamed files."""
        return [
            web.post("/v1/requests/{name}", self._answer),
            web.put("/v1/file", self._put_file),
            web.get("/v1/file", self._get_file),
        ]

    async def _answer(self, http_request: web.Request) -> web.Response:
        name = http_request.match_info["name"]
        request = requests.REQUESTS.get(name)
        if request is None:
            raise web.HTTPNotFound
        arguments = await read_arguments(request, http_request)
        if name in self._methods:
            answering = self._methods[name](**vars(arguments))
            if request.is_cancelled_on_disconnect:
                answering = _await_while_connected(http_request, answering)
            return json_response(await answering)
        key = http_request.query["key"]
        workspace = await self._host.workspace(key)
        answer = await getattr(workspace, request.method_name)(**vars(arguments))
        if name in _CHANGING_REQUESTS:
            await self._note_change(key)
        return json_response(answer)

    async def _note_change(self, key: str) -> None:
        # Only for changes by people; changes by code are recorded when variables are saved.
        if self._archives is not None:
            await self._archives.note_change(key)

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str, new_epoch: int = 0
    ) -> session_variables.RestoredState:
        """Fork a session, and begin the new session's epoch."""
        restored = await self._host.fork(key, new_key, checkpoint=checkpoint)
        await self._epochs.accept(new_key, new_epoch)
        await self._note_change(new_key)
        return restored

    async def restore_checkpoint(
        self, key: str, name: str, *, requires_everything: bool
    ) -> session_variables.RestoredState:
        """Restore a checkpoint, and let the session be archived again."""
        restored = await self._host.restore_checkpoint(
            key, name, requires_everything=requires_everything
        )
        await self._note_change(key)
        return restored

    async def forget(self, key: str) -> None:
        """Delete a session and its archive."""
        await self._host.forget(key)
        if self._archives is not None:
            await self._archives.forget(key)

    async def fetch_session(self, key: str, epoch: int) -> bool:
        """Restore a session from the store, if there is one."""
        return self._archives is not None and await self._archives.fetch_session(key, epoch)

    async def archive(self, key: str) -> bool:
        """Archive a session, if there is a store."""
        return self._archives is not None and await self._archives.archive(key)

    async def _put_file(self, request: web.Request) -> web.Response:
        key = request.query["key"]
        workspace = await self._host.workspace(key)
        chunks = request.content.iter_chunked(_CHUNK_BYTES)
        info = await workspace.put(request.query["name"], chunks)
        await self._note_change(key)
        return json_response(info)

    async def _get_file(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        workspace = await self._host.workspace(query["key"])
        reading = workspace.read(
            query["name"],
            start=int(query["start"]),
            max_bytes=int(query["max_bytes"]) if "max_bytes" in query else None,
            may_be_sparse="sparse" in query,
        )
        async with reading as content:
            return await _stream(request, content)


async def read_arguments(request: requests.Request, http_request: web.Request) -> Any:  # noqa: ANN401
    """Read the arguments of a request.

    Raises:
        HTTPBadRequest: they are invalid.
    """
    try:
        return messages.from_json(request.arguments, await http_request.json())
    except (ValueError, RecursionError) as error:  # MalformedError is one.
        raise web.HTTPBadRequest from error


def json_response(value: object, *, status: int = 200) -> web.Response:
    body = messages.encode_json(value)
    return web.Response(body=body, content_type="application/json", status=status)


async def _await_while_connected(request: web.Request, answering: Coroutine[Any, Any, T]) -> T:
    """Wait for an answer, unless the bot disconnects first.

    Raises:
        KernelError: the bot disconnected.
    """
    if request.transport is None:
        raise web.HTTPBadRequest
    answers: list[T] = []

    async def keep_answer() -> None:
        answers.append(await answering)

    with request.transport.get_extra_info("socket").dup() as peer:
        await cancellation.run_until(keep_answer(), _wait_readable(peer), name="answer to a bot")
    if not answers:
        raise errors.KernelError
    return answers[0]


async def _wait_readable(peer: socket.socket) -> None:
    """Wait until the other side disconnects or sends something."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(peer, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(peer)


def _find_method(
    name: str, targets: tuple[object, ...]
) -> Callable[..., Coroutine[Any, Any, object]]:
    """Return the method of this name of the first target that has one."""
    method: Callable[..., Coroutine[Any, Any, object]] = next(
        getattr(target, name) for target in targets if hasattr(target, name)
    )
    return method


async def _stream(request: web.Request, content: ports.Content) -> web.StreamResponse:
    response = web.StreamResponse()
    response.headers["X-File"] = messages.encode_json(content.info).decode("ascii")
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
