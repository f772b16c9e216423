"""Files of sessions behind a wire: read and written in the host process that has them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Final, TypeVar

import aiohttp

from interpreter_bot import errors, values
from interpreter_bot.hosts import host_calls, host_connection, host_messages, host_requests
from interpreter_bot.text import file_names

T = TypeVar("T")

_CHUNK_BYTES: Final = 256 * 1024
# Of a path as it is listed; the host knows it better, and refuses shorter ones.
_NAME_BYTES: Final = 8 * 1024


class RemoteContent:
    """Bytes of a file that another process reads; implements `ports.Content`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        try:
            self.info = host_calls.read(
                values.FileInfo, json.loads(response.headers.get("X-File", ""))
            )
        except ValueError as error:
            raise errors.KernelError(host_messages.UNREADABLE) from error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks.

        Raises:
            WorkspaceError: reading failed.
        """
        try:
            async for chunk in self._response.content.iter_chunked(_CHUNK_BYTES):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise errors.WorkspaceError from error


class RemoteWorkspace:
    """A session's files in another process; implements `ports.Workspace`."""

    def __init__(self, connection: host_connection.HostConnection, key: str, epoch: int) -> None:
        self._connection = connection
        self._key = key
        self._asked = {"key": key} | ({"epoch": str(epoch)} if epoch else {})

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        """Store a file; see `ports.Workspace.put`."""
        fault: Exception | None = None
        parameters = {**self._asked, "name": file_names.safe_name(name)}

        async def passed_on() -> AsyncIterator[bytes]:
            nonlocal fault
            try:
                async for chunk in chunks:
                    yield chunk
            except Exception as error:
                fault = error
                raise

        try:
            return await self._connection.answered(
                values.FileInfo,
                "PUT",
                "/v1/file",
                is_long=True,
                is_once=True,
                params=parameters,
                data=passed_on(),
            )
        except errors.BotError as error:
            # What broke the upload is the caller's own, so the connection's error says nothing.
            raise fault or _of_files(error) from error

    async def list(self) -> tuple[values.FileInfo, ...]:
        """List the regular files by name."""
        return await self._call(host_requests.ListFiles(self._key))

    @contextlib.asynccontextmanager
    async def read(
        self,
        name: str,
        *,
        start: int = 0,
        most_bytes: int | None = None,
        may_be_sparse: bool = True,
        checkpoint: str = "",
    ) -> AsyncIterator[RemoteContent]:
        """Open a file; see `ports.Workspace.read`."""
        _check_name(name)
        asked = {**self._asked, "name": name, "start": str(start)}
        asked |= {} if most_bytes is None else {"most": str(most_bytes)}
        asked |= {"sparse": "1"} if may_be_sparse else {}
        asked |= {"checkpoint": checkpoint} if checkpoint else {}
        async with contextlib.AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    self._connection.requested("GET", "/v1/file", is_long=True, params=asked)
                )
                content = RemoteContent(response)
            except errors.KernelError as error:
                raise _of_files(error) from error
            yield content

    async def kept(self, name: str) -> Mapping[str, int]:
        """Return which checkpoints have a copy of a file; see `ports.Workspace.kept`."""
        _check_name(name)
        return await self._call(host_requests.KeptFiles(self._key, name))

    async def rename(self, name: str, new_name: str) -> str:
        """Give a file another name; see `ports.Workspace.rename`."""
        _check_name(name)
        safe_name = file_names.safe_name(new_name)
        return await self._call(host_requests.RenameFile(self._key, name, safe_name))

    async def delete(self, name: str) -> None:
        """Delete a file."""
        _check_name(name)
        await self._call(host_requests.DeleteFile(self._key, name))

    async def mark(self) -> str:
        """Remember the present files."""
        return await self._call(host_requests.MarkFiles(self._key))

    async def changes_since(self, mark: str) -> values.FileChanges:
        """Return what was created or written since a mark."""
        return await self._call(host_requests.ChangedFiles(self._key, mark))

    async def _call(self, request: host_requests.Request[T]) -> T:
        try:
            return await self._connection.call(request, self._asked)
        except errors.KernelError as error:
            raise _of_files(error) from error


def _check_name(name: str) -> None:
    """Refuse a name that no file has and no address can carry.

    Raises:
        FileMissingError: it is too long, or no text.
    """
    try:
        is_possible = len(name.encode()) <= _NAME_BYTES
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise errors.FileMissingError


def _of_files(error: errors.BotError) -> errors.BotError:
    """Return the error of files for that of a host that cannot be reached."""
    is_kernels = isinstance(error, errors.KernelError)
    return errors.WorkspaceError(str(error)) if is_kernels else error
