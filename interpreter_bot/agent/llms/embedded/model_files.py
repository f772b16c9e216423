"""The embedded model's file. It is downloaded once, verified, and moved into place.

An interrupted download is resumed. A file with the official name is used only if it has the SHA-256
in this module. A file with another name is the operator's choice, and must only be a GGUF file.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import pathlib
import shutil
import urllib.parse
from collections.abc import AsyncIterator, Callable
from typing import IO, Final, TypeAlias

import aiohttp

from interpreter_bot.agent import model_errors
from interpreter_bot.wording import model_words

_GGUF_MAGIC: Final = b"GGUF"

_log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[int, int], None]
"""Callback for the progress of a download: (downloaded bytes, total bytes)."""

# A download leaves this much of the disk free.
_RESERVED_BYTES: Final = 64 * 1024 * 1024
_DOWNLOAD_CHUNK_BYTES: Final = 1024 * 1024
_CONNECT_TIMEOUT_SECONDS: Final = 20.0
_READ_TIMEOUT_SECONDS: Final = 60.0
# After this many failures in a row, with no byte received in between, the download fails.
_MAX_FAILURES: Final = 4
_LOCK_POLL_SECONDS: Final = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file of weights as its publisher offers it.

    Attributes:
        alias: the model's name on the server.
        title: the model's name for people.
        url: the file's URL; redirects are followed.
        size_bytes: the file's length.
        sha256: the file's digest in lower-case hexadecimal.
        licence: a sentence for people about the model's licence.
    """

    alias: str
    title: str
    url: str
    size_bytes: int
    sha256: str
    licence: str

    @property
    def file_name(self) -> str:
        """The file's name on disk."""
        return self.url.rpartition("/")[2]

    @property
    def host(self) -> str:
        """The host that the file is downloaded from."""
        return urllib.parse.urlsplit(self.url).hostname or self.url


QWEN: Final = Weights(
    alias="qwen2.5-coder-1.5b-instruct",
    title="Qwen2.5-Coder 1.5B",
    url="https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size_bytes=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence="With the first question it is downloaded (1.04 GiB). "
    "Qwen2.5-Coder-1.5B-Instruct is made by the Qwen team of Alibaba Cloud and used under "
    "the Apache License 2.0: "
    "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/blob/main/LICENSE",
)


class NoLocalModelError(model_errors.ModelError):
    """The demo model cannot be used."""


def is_official(path: pathlib.Path, weights: Weights) -> bool:
    """Return whether a file has the size and the digest of the official one.

    Blocks for about a second per GiB; a stop of the bot waits for it.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != weights.size_bytes:
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256


def find_problem(path: pathlib.Path) -> str:
    """Return why a file that the operator chose cannot be used as the model; empty if it can."""
    try:
        with path.open("rb") as file:
            is_model = file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    except OSError as error:
        return model_words.demo_unreadable(path, error.strerror or error)
    return "" if is_model else model_words.not_gguf(path)


def describe_operator_file(path: pathlib.Path, official: Weights) -> Weights:
    """Describe a file that the operator chose; one with the official name must be official."""
    if path.name == official.file_name:
        return official
    return dataclasses.replace(official, alias=path.stem, title=path.stem, licence="")


class _ConnectionLostError(Exception):
    """The connection failed; the partial file is kept."""


class _NoConnectionError(_ConnectionLostError):
    """No connection could be made."""


async def download(
    weights: Weights,
    directory: pathlib.Path,
    *,
    progress: Progress,
    pause_seconds: float = 2.0,
) -> pathlib.Path:
    """Download the missing part of the file, and return the file's path.

    Several bots may share a directory: one downloads, the others wait.

    Args:
        weights: the file.
        directory: the directory for the file; created if it is missing.
        progress: called as bytes arrive.
        pause_seconds: the pause after a failed connection; doubles with each failure.

    Raises:
        NoLocalModelError: the download failed; the sentence says why.
    """
    path = directory / weights.file_name
    try:
        await asyncio.to_thread(_make_directory, directory)
        async with _hold_lock(path.with_suffix(".lock")):
            if await _verify_or_delete(path, weights):
                return path
            await _download_verified(weights, path, progress, pause_seconds)
            return path
    except OSError as error:
        reason = error.strerror or str(error)
        sentence = model_words.demo_not_stored(directory, reason)
        raise NoLocalModelError(sentence) from error


async def _verify_or_delete(path: pathlib.Path, weights: Weights) -> bool:
    """Return whether a file is the official one; delete a file that is not."""
    try:
        if await asyncio.to_thread(is_official, path, weights):
            return True
    except FileNotFoundError:
        return False
    _log.warning("the demo model's file is not the expected one; it is deleted: %s", path)
    await asyncio.to_thread(os.unlink, path)
    return False


async def _download_verified(
    weights: Weights, path: pathlib.Path, progress: Progress, pause_seconds: float
) -> None:
    """Download the file, verify it, and move it to its path."""
    partial = path.with_suffix(".partial")
    was_resumed = partial.exists()
    await _download_rest(weights, partial, progress, pause_seconds)
    if not await _verify_or_delete(partial, weights) and was_resumed:
        # The partial file may have been the beginning of another file: start again, once.
        await _download_rest(weights, partial, progress, pause_seconds)
        await _verify_or_delete(partial, weights)
    if not partial.exists():
        raise NoLocalModelError(model_words.demo_damaged(weights.host))
    os.replace(partial, path)


async def _download_rest(
    weights: Weights, partial: pathlib.Path, progress: Progress, pause_seconds: float
) -> None:
    """Download until the partial file is complete."""
    failures = 0
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS, sock_read=_READ_TIMEOUT_SECONDS
    )
    with partial.open("ab") as file:
        _check_room(weights, partial.parent, file.tell())
        # A proxy is taken from the environment.
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            while (start_bytes := file.tell()) < weights.size_bytes:
                try:
                    await _download_once(session, weights, file, progress)
                except _ConnectionLostError as error:
                    failures = 0 if file.tell() > start_bytes else failures + 1
                    is_offline = isinstance(error, _NoConnectionError) and not file.tell()
                    # Without any connection there is probably no network: report that at once.
                    if is_offline or failures >= _MAX_FAILURES:
                        sentence = model_words.demo_unreachable(weights.host, error)
                        raise NoLocalModelError(sentence) from error
                    await asyncio.sleep(pause_seconds * 2**failures)
        await asyncio.to_thread(os.fsync, file.fileno())


def _make_directory(directory: pathlib.Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_room(weights: Weights, directory: pathlib.Path, downloaded_bytes: int) -> None:
    needed_bytes = weights.size_bytes - downloaded_bytes + _RESERVED_BYTES
    if (free_bytes := shutil.disk_usage(directory).free) < needed_bytes:
        raise NoLocalModelError(model_words.no_room_for_demo(directory, free_bytes, needed_bytes))


async def _download_once(
    session: aiohttp.ClientSession,
    weights: Weights,
    file: IO[bytes],
    progress: Progress,
) -> None:
    """Download the missing bytes, or some of them, over one connection.

    Raises:
        _ConnectionLostError: the server cannot be reached, refused, or closed the connection early.
    """
    start_bytes = file.tell()
    headers = {"Range": f"bytes={start_bytes}-"} if start_bytes else {}
    # A compressed transfer would have other byte ranges.
    headers["Accept-Encoding"] = "identity"
    try:
        async with session.get(weights.url, headers=headers) as response:
            if start_bytes and response.status in (200, 416):
                # The server does not support ranges, or does not have this range: start again.
                file.truncate(0)
                file.seek(0)
            if response.status not in (200, 206):
                raise _ConnectionLostError(
                    model_words.answered_status(response.status, response.reason)
                )
            await _write_body(response, weights, file, progress)
    except aiohttp.ClientConnectorError as error:
        raise _NoConnectionError(model_words.NO_CONNECTION) from error
    except aiohttp.ClientError as error:
        raise _ConnectionLostError(model_words.CONNECTION_LOST) from error
    except TimeoutError as error:
        raise _ConnectionLostError(model_words.NO_ANSWER_IN_TIME) from error


async def _write_body(
    response: aiohttp.ClientResponse,
    weights: Weights,
    file: IO[bytes],
    progress: Progress,
) -> None:
    async for chunk in response.content.iter_chunked(_DOWNLOAD_CHUNK_BYTES):
        await asyncio.to_thread(file.write, chunk)
        progress(min(file.tell(), weights.size_bytes), weights.size_bytes)
        if file.tell() > weights.size_bytes:
            # Too long; the check of the size refuses the file.
            return
    if file.tell() < weights.size_bytes:
        raise _ConnectionLostError(model_words.CONNECTION_LOST)


@contextlib.asynccontextmanager
async def _hold_lock(path: pathlib.Path) -> AsyncIterator[None]:
    """Hold a file lock across processes; the system releases the lock of a process that dies."""
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_SECONDS)
        yield
