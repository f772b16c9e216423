"""Files of sessions in another process, read and written over its connection."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

import aiohttp

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_connection, messages, ports, requests
from interpreter_bot.text import file_names
from interpreter_bot.wording import host_words

_CHUNK_BYTES: Final = 256 * 1024
# The host has a lower limit; this limit only bounds the request line.
_MAX_NAME_BYTES: Final = 8 * 1024


class RemoteContent:
    """Bytes of a file that another process reads; implements `ports.Content`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        try:
            info = json.loads(response.headers.get("X-File", ""))
            self.info = messages.from_json(values.FileInfo, info)
        except ValueError as error:  # MalformedError is one.
            raise errors.KernelError(host_words.UNREADABLE_MESSAGE) from error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_chunked(_CHUNK_BYTES):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise errors.WorkspaceError from error


class RemoteWorkspace(ports.Workspace):
    """A session's files in another process. Inherited methods are sent as requests."""

    def __init__(self, connection: host_connection.HostConnection, key: str, epoch: int) -> None:
        self._connection = connection
        self._session_params = {"key": key} | ({"epoch": str(epoch)} if epoch else {})

    @classmethod
    def create(
        cls, connection: host_connection.HostConnection, key: str, epoch: int
    ) -> RemoteWorkspace:
        """Return the files of a session in an epoch; 0 if there is only one machine."""
        # By `cls`, because mypy takes the inherited request methods for abstract ones.
        return cls(connection, key, epoch)

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        source_error: Exception | None = None
        params = {**self._session_params, "name": file_names.safe_name(name)}

        async def watched_chunks() -> AsyncIterator[bytes]:
            nonlocal source_error
            try:
                async for chunk in chunks:
                    yield chunk
            except Exception as error:
                source_error = error
                raise

        try:
            return await self._connection.request_value(
                values.FileInfo,
                "PUT",
                "/v1/file",
                is_long=True,
                is_unrepeatable=True,
                params=params,
                data=watched_chunks(),
            )
        except errors.BotError as error:
            # If the caller's chunks raised an error and broke the upload, that error explains more.
            raise source_error or _to_workspace_error(error) from error

    @contextlib.asynccontextmanager
    async def read(
        self,
        name: str,
        *,
        start: int = 0,
        max_bytes: int | None = None,
        may_be_sparse: bool = True,
    ) -> AsyncIterator[RemoteContent]:
        _check_name(name)
        params = {**self._session_params, "name": name, "start": str(start)}
        params |= {} if max_bytes is None else {"max_bytes": str(max_bytes)}
        params |= {"sparse": "1"} if may_be_sparse else {}
        async with contextlib.AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    self._connection.request("GET", "/v1/file", is_long=True, params=params)
                )
                content = RemoteContent(response)
            except errors.KernelError as error:
                raise _to_workspace_error(error) from error
            yield content

    async def send_request(self, request: requests.Request, arguments: Any) -> Any:  # noqa: ANN401
        if hasattr(arguments, "name"):
            _check_name(arguments.name)
        if hasattr(arguments, "new_name"):
            new_name = file_names.safe_name(arguments.new_name)
            arguments = dataclasses.replace(arguments, new_name=new_name)
        try:
            return await self._connection.send_request(request, arguments, self._session_params)
        except errors.KernelError as error:
            raise _to_workspace_error(error) from error


def _check_name(name: str) -> None:
    """Refuse a name that no file can have and that no URL can carry.

    Raises:
        FileMissingError: it is too long, or not valid Unicode.
    """
    try:
        is_valid = len(name.encode()) <= _MAX_NAME_BYTES
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise errors.FileMissingError


def _to_workspace_error(error: errors.BotError) -> errors.BotError:
    """Turn a KernelError into a WorkspaceError; return others unchanged."""
    is_kernel_error = isinstance(error, errors.KernelError)
    return errors.WorkspaceError(str(error)) if is_kernel_error else error
