"""The embedded model's file: downloaded once, resumed where it broke off, checked, moved into
place.

A file of the official name is used only if its SHA-256 is the one written here. A file of another
name is the operator's own choice, and has only to be a GGUF file.
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

_MAGIC: Final = b"GGUF"
_HASH_CHUNK_BYTES: Final = 8 * 1024 * 1024

_log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[int, int], None]
"""Callback for the progress of a download: (bytes so far, bytes in all)."""

# The part of the disk that stays free for everything else.
_RESERVE_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_CONNECT_SECONDS: Final = 20.0
_SILENCE_SECONDS: Final = 60.0
# Failures in a row without a single byte in between.
_MAX_TRIES: Final = 4
_POLL_SECONDS: Final = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file of weights as its publisher offers it.

    Attributes:
        alias: what the server calls the model.
        title: what people call it.
        url: where the file is; redirects are followed.
        size_bytes: its length.
        sha256: lower-case hex digest.
        licence: the sentence that people are shown about it.
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
        """The host it is downloaded from."""
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


async def sha256(path: pathlib.Path) -> str:
    """Compute the SHA-256 of a file in a thread.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()

    def advance() -> bool:
        data = file.read(_HASH_CHUNK_BYTES)
        digest.update(data)
        return bool(data)

    with await asyncio.to_thread(path.open, "rb") as file:
        # A piece at a time, so that a bot that is told to end need not wait for the whole file.
        while await asyncio.to_thread(advance):
            pass
    return digest.hexdigest()


async def is_official(path: pathlib.Path, weights: Weights) -> bool:
    """Return whether a file is the wanted one, by its digest.

    Raises:
        OSError: it cannot be read.
    """
    status = await asyncio.to_thread(path.stat)
    if status.st_size != weights.size_bytes:
        return False
    return await sha256(path) == weights.sha256


def objection(path: pathlib.Path) -> str:
    """Return why a file that the operator names cannot be the model; empty if it can."""
    try:
        with path.open("rb") as file:
            is_model = file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        return model_words.demo_unreadable(path, error.strerror or error)
    return "" if is_model else model_words.not_gguf(path)


def operator_weights(path: pathlib.Path, official: Weights) -> Weights:
    """Describe a file that the operator names: one with the official name has to be the official
    one."""
    if path.name == official.file_name:
        return official
    return dataclasses.replace(official, alias=path.stem, title=path.stem, licence="")


class _LostError(Exception):
    """The connection failed; the partial file is kept."""


class _AbsentError(_LostError):
    """No connection could be made."""


async def download(
    weights: Weights,
    directory: pathlib.Path,
    *,
    progress: Progress,
    pause_seconds: float = 2.0,
) -> pathlib.Path:
    """Download what is missing of the file, and return its path.

    Several bots may share a directory: one downloads, the others wait.

    Args:
        weights: the file.
        directory: where it is kept; made if it is missing.
        progress: called as bytes arrive.
        pause_seconds: before a lost connection is tried again; it doubles each time.

    Raises:
        NoLocalModelError: it cannot be had, for the reason in its sentence.
    """
    path = directory / weights.file_name
    try:
        await asyncio.to_thread(_make_directory, directory)
        async with _locked(path.with_suffix(".lock")):
            if await _is_valid(path, weights):
                return path
            await _download(weights, path, progress, pause_seconds)
            return path
    except OSError as error:
        reason = error.strerror or str(error)
        sentence = model_words.demo_not_stored(directory, reason)
        raise NoLocalModelError(sentence) from error


async def _is_valid(path: pathlib.Path, weights: Weights) -> bool:
    try:
        if await is_official(path, weights):
            return True
    except FileNotFoundError:
        return False
    _log.warning("the demo model's file is not the expected one; it is fetched anew: %s", path)
    await asyncio.to_thread(os.unlink, path)
    return False


async def _download(
    weights: Weights, path: pathlib.Path, progress: Progress, pause_seconds: float
) -> None:
    partial = path.with_suffix(".partial")
    was_resumed = partial.exists()
    await _complete(weights, partial, progress, pause_seconds)
    if not await _is_valid(partial, weights) and was_resumed:
        # The beginning may have been of another file: start again, once.
        await _complete(weights, partial, progress, pause_seconds)
        await _is_valid(partial, weights)
    if not partial.exists():
        raise NoLocalModelError(model_words.demo_damaged(weights.host))
    os.replace(partial, path)


async def _complete(
    weights: Weights, partial: pathlib.Path, progress: Progress, pause_seconds: float
) -> None:
    """Download until the partial file is complete."""
    tries = 0
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS
    )
    with partial.open("ab") as file:
        _check_room(weights, partial.parent, file.tell())
        # The environment says if there is a proxy.
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            while (start_bytes := file.tell()) < weights.size_bytes:
                try:
                    await _continue(session, weights, file, progress)
                except _LostError as error:
                    tries = 0 if file.tell() > start_bytes else tries + 1
                    is_absent = isinstance(error, _AbsentError) and not file.tell()
                    # Most often there is no network, which is said at once.
                    if is_absent or tries >= _MAX_TRIES:
                        sentence = model_words.demo_unreachable(weights.host, error)
                        raise NoLocalModelError(sentence) from error
                    await asyncio.sleep(pause_seconds * 2**tries)
        await asyncio.to_thread(os.fsync, file.fileno())


def _make_directory(directory: pathlib.Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_room(weights: Weights, directory: pathlib.Path, had_bytes: int) -> None:
    need = weights.size_bytes - had_bytes + _RESERVE_BYTES
    if (free := shutil.disk_usage(directory).free) < need:
        raise NoLocalModelError(model_words.no_room_for_demo(directory, free, need))


async def _continue(
    session: aiohttp.ClientSession,
    weights: Weights,
    file: IO[bytes],
    progress: Progress,
) -> None:
    """Download what is missing, or a part of it.

    Raises:
        _LostError: the server is not there, refused, or broke off.
    """
    start_bytes = file.tell()
    headers = {"Range": f"bytes={start_bytes}-"} if start_bytes else {}
    # Uncompressed: what is compressed on the way has other ranges.
    headers["Accept-Encoding"] = "identity"
    try:
        async with session.get(weights.url, headers=headers) as response:
            if start_bytes and response.status in (200, 416):
                # The server knows no ranges, or has no such one: start again.
                file.truncate(0)
                file.seek(0)
            if response.status not in (200, 206):
                raise _LostError(model_words.answered_status(response.status, response.reason))
            await _write(response, weights, file, progress)
    except aiohttp.ClientConnectorError as error:
        raise _AbsentError(model_words.NO_CONNECTION) from error
    except aiohttp.ClientError as error:
        raise _LostError(model_words.CONNECTION_LOST) from error
    except TimeoutError as error:
        raise _LostError(model_words.NO_ANSWER_IN_TIME) from error


async def _write(
    response: aiohttp.ClientResponse,
    weights: Weights,
    file: IO[bytes],
    progress: Progress,
) -> None:
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        await asyncio.to_thread(file.write, chunk)
        progress(min(file.tell(), weights.size_bytes), weights.size_bytes)
        if file.tell() > weights.size_bytes:
            # Longer than the file; the digest will say that it is wrong.
            return
    if file.tell() < weights.size_bytes:
        raise _LostError(model_words.CONNECTION_LOST)


@contextlib.asynccontextmanager
async def _locked(path: pathlib.Path) -> AsyncIterator[None]:
    """Hold a file lock across processes; the system releases the lock of a process that dies."""
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_SECONDS)
        yield
