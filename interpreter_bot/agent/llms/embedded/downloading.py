"""Fetching the model's file once: resumed where it broke off, checked, and put in place whole."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import pathlib
import shutil
from collections.abc import AsyncIterator, Callable
from typing import IO, Final, TypeAlias

import aiohttp

from interpreter_bot.agent.llms.embedded import weights
from interpreter_bot.text import formatting

_log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[int, int], None]
"""Told (bytes there are, bytes in all) as they come."""

# So much stays free for everybody else.
_RESERVE_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_CONNECT_SECONDS: Final = 20.0
_SILENCE_SECONDS: Final = 60.0
# Failures in a row without a single byte in between.
_TRIES: Final = 4
# The same where there is nobody to connect to and nothing has come: most often there is no network.
_TRIES_WITHOUT_NETWORK: Final = 2
_POLL_SECONDS: Final = 0.5

_UNREACHABLE: Final = (
    "The demo model could not be downloaded from {host}: {reason}. Set "
    "INTERPRETER_BOT_LOCAL__MODEL_PATH to a file of it that you have, or OPENAI_API_KEY to use "
    "another model."
)
_WRONG: Final = (
    "What {host} gave as the demo model is not the expected file, and was thrown away. Set "
    "INTERPRETER_BOT_LOCAL__MODEL_PATH to the right one, or OPENAI_API_KEY to use another model."
)
_NO_ROOM: Final = (
    "There is no room for the demo model: {directory} has {free} free, and it needs {need}."
)
_NOT_WRITABLE: Final = "The demo model cannot be stored in {directory}: {reason}."


class _LostError(Exception):
    """The connection failed; what has come is kept."""


class _AbsentError(_LostError):
    """No connection could be made."""


async def fetch(
    wanted: weights.Weights,
    directory: pathlib.Path,
    *,
    progress: Progress,
    pause_seconds: float = 2.0,
) -> pathlib.Path:
    """Return the file, downloading what is missing of it.

    Several bots may share a directory: one downloads, the others wait.

    Args:
        wanted: the file.
        directory: where it is kept; made where it is missing.
        progress: told how far it is.
        pause_seconds: before a lost connection is tried again; it doubles each time.

    Raises:
        NoLocalModelError: it cannot be had, for the reason that its sentence says.
    """
    path = directory / wanted.file_name
    try:
        await asyncio.to_thread(_make, directory)
        async with _locked(path.with_suffix(".lock")):
            if await _is_right(path, wanted):
                return path
            await _download(wanted, path, progress, pause_seconds)
            return path
    except OSError as error:
        reason = error.strerror or str(error)
        sentence = _NOT_WRITABLE.format(directory=directory, reason=reason)
        raise weights.NoLocalModelError(sentence) from error


async def _is_right(path: pathlib.Path, wanted: weights.Weights) -> bool:
    try:
        if await weights.is_official(path, wanted):
            return True
    except FileNotFoundError:
        return False
    _log.warning("the demo model's file is not the expected one; it is fetched anew: %s", path)
    await asyncio.to_thread(os.unlink, path)
    return False


async def _download(
    wanted: weights.Weights, path: pathlib.Path, progress: Progress, pause_seconds: float
) -> None:
    partial = path.with_suffix(".partial")
    was_resumed = partial.exists()
    await _complete(wanted, partial, progress, pause_seconds)
    if not await _is_right(partial, wanted) and was_resumed:
        # The beginning may have been of another file: from the start, once.
        await _complete(wanted, partial, progress, pause_seconds)
        await _is_right(partial, wanted)
    if not partial.exists():
        raise weights.NoLocalModelError(_WRONG.format(host=wanted.host))
    os.replace(partial, path)


async def _complete(
    wanted: weights.Weights, partial: pathlib.Path, progress: Progress, pause_seconds: float
) -> None:
    """Make the partial file as long as it has to be."""
    tries = 0
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS
    )
    with partial.open("ab") as file:
        _check_room(wanted, partial.parent, file.tell())
        # Behind a proxy, the environment says so.
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            while (had := file.tell()) < wanted.size_bytes:
                try:
                    await _continue(session, wanted, file, progress)
                except _LostError as error:
                    tries = 0 if file.tell() > had else tries + 1
                    is_absent = isinstance(error, _AbsentError) and not file.tell()
                    if tries >= (_TRIES_WITHOUT_NETWORK if is_absent else _TRIES):
                        sentence = _UNREACHABLE.format(host=wanted.host, reason=error)
                        raise weights.NoLocalModelError(sentence) from error
                    await asyncio.sleep(pause_seconds * 2**tries)
        await asyncio.to_thread(os.fsync, file.fileno())


def _make(directory: pathlib.Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_room(wanted: weights.Weights, directory: pathlib.Path, had_bytes: int) -> None:
    need = wanted.size_bytes - had_bytes + _RESERVE_BYTES
    if (free := shutil.disk_usage(directory).free) < need:
        sentence = _NO_ROOM.format(
            directory=directory, free=formatting.size(free), need=formatting.size(need)
        )
        raise weights.NoLocalModelError(sentence)


async def _continue(
    session: aiohttp.ClientSession,
    wanted: weights.Weights,
    file: IO[bytes],
    progress: Progress,
) -> None:
    """Fetch what is missing, or a part of it.

    Raises:
        _LostError: the server is not there, says no, or broke off.
    """
    had = file.tell()
    headers = {"Range": f"bytes={had}-"} if had else {}
    # As it lies there: what is compressed on the way has other ranges.
    headers["Accept-Encoding"] = "identity"
    try:
        async with session.get(wanted.url, headers=headers) as response:
            if had and response.status in (200, 416):
                # It knows no ranges, or has no such one: all over again.
                file.truncate(0)
                file.seek(0)
            if response.status not in (200, 206):
                raise _LostError(f"it answered {response.status} {response.reason}")
            await _write(response, wanted, file, progress)
    except aiohttp.ClientConnectorError as error:
        raise _AbsentError("no connection could be made") from error
    except aiohttp.ClientError as error:
        raise _LostError("the connection was lost") from error
    except TimeoutError as error:
        raise _LostError("it did not answer in time") from error


async def _write(
    response: aiohttp.ClientResponse,
    wanted: weights.Weights,
    file: IO[bytes],
    progress: Progress,
) -> None:
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        await asyncio.to_thread(file.write, chunk)
        progress(min(file.tell(), wanted.size_bytes), wanted.size_bytes)
        if file.tell() > wanted.size_bytes:
            # Not the file; the digest will say so.
            return
    if file.tell() < wanted.size_bytes:
        raise _LostError("the connection was lost")


@contextlib.asynccontextmanager
async def _locked(path: pathlib.Path) -> AsyncIterator[None]:
    """Be the only one, of all processes; the system lets go of the lock of one that dies."""
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
