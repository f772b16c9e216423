"""Files from and to Discord: attachments read in pieces, uploads spooled to disk and fitted to
limits.

Attachments are never read beyond the size that Discord gave.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import io
import logging
import pathlib
import re
import tempfile
import unicodedata
import zipfile
from collections.abc import AsyncIterator, Iterable
from typing import Final

import aiohttp
import discord

from interpreter_bot import errors, settings, values
from interpreter_bot.platforms.discord import (
    api_errors,
    channels_and_threads,
    markdown,
    message_layout,
)
from interpreter_bot.sessions import requests
from interpreter_bot.text import quantities
from interpreter_bot.wording import discord_words, file_words

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 256 * 1024
_SILENCE_SECONDS: Final = 30.0
_OK: Final = 200

_COPY_BYTES: Final = 1024 * 1024
# The possible limits where Discord refuses files as too large: the 25 MiB of any request, or a
# server's limit that has changed. Largest first.
_SMALLER_BYTES: Final = tuple(
    most * settings.MIB - channels_and_threads.MARGIN_BYTES for most in (24, 10, 8)
)
_UNLIKED: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NAME: Final = 80
_MOST_DESCRIPTION: Final = 1000


class Attachments:
    """Reads attachments through an HTTP session of its own, which carries no token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def of(self, attachments: Iterable[discord.Attachment]) -> tuple[requests.Attachment, ...]:
        """Return attachments for a request; nothing is read before it is opened."""
        return tuple(self._one(attachment) for attachment in attachments)

    def _one(self, attachment: discord.Attachment) -> requests.Attachment:
        def open_() -> AsyncIterator[bytes]:
            return self._read(attachment)

        return requests.Attachment(name=attachment.filename, open=open_, size_bytes=attachment.size)

    async def _read(self, attachment: discord.Attachment) -> AsyncIterator[bytes]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=_SILENCE_SECONDS)
        left = attachment.size
        try:
            async with self._session.get(
                attachment.url, allow_redirects=False, timeout=timeout
            ) as response:
                if response.status != _OK:
                    _log.info("Discord answered %d for a file", response.status)
                    raise errors.BotError(file_words.NOT_ON_DISCORD)
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        raise errors.BotError(file_words.LARGER_THAN_SAID)
                    yield chunk
        except api_errors.CONNECTION as error:
            _log.info("a file could not be read", exc_info=error)
            raise errors.BotError(file_words.NOT_READ_FROM_DISCORD) from error
        if left:
            raise errors.BotError(file_words.DOWNLOAD_BROKE_OFF)


@dataclasses.dataclass(frozen=True, slots=True)
class InMemorySource:
    """Bytes in memory."""

    data: bytes

    def content(self) -> io.BufferedIOBase:
        """Return the bytes as a file."""
        return io.BytesIO(self.data)


@dataclasses.dataclass(frozen=True, slots=True)
class Spooled:
    """A file on disk."""

    path: pathlib.Path

    def content(self) -> pathlib.Path:
        """Return the path."""
        return self.path


class _Saving:
    """A writer of one artifact to disk."""

    def __init__(self, spool: UploadSpool, name: str, path: pathlib.Path) -> None:
        self._spool, self._name, self._path = spool, name, path
        self._file = path.open("xb")
        self._is_complete = False

    def write(self, data: bytes, /) -> object:
        return self._file.write(data)

    def complete(self) -> None:
        self._file.flush()
        self._is_complete = True
        self._spool.saved[self._name] = self._path

    def close(self) -> None:
        self._file.close()
        if not self._is_complete:
            self._path.unlink(missing_ok=True)


class UploadSpool:
    """Uploads of one answer, on disk until it has been shown.

    Attributes:
        saved: paths of complete artifacts, by name.
    """

    def __init__(self, *, file_bytes: int, parts: int) -> None:
        self._most_bytes = file_bytes
        self._parts = parts
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0
        self._shown: set[str] = set()
        self._made: dict[tuple[str, int], message_layout.Upload] = {}
        self._refused: set[str] = set()
        self.saved: dict[str, pathlib.Path] = {}

    def close(self) -> None:
        """Delete everything."""
        if self._directory is not None:
            with contextlib.suppress(FileNotFoundError):
                self._directory.cleanup()

    def save(self, name: str) -> _Saving:
        """Return the writer of an artifact.

        Raises:
            OSError: there is no room on disk.
        """
        return _Saving(self, name, self._path())

    def _path(self) -> pathlib.Path:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="interpreter-bot-")
        self._count += 1
        return pathlib.Path(self._directory.name, str(self._count))

    def wrap(self, name: str, told: str, data: bytes) -> message_layout.Upload | str:
        """Make an upload of bytes in memory; the same one for the same bytes."""
        version = hash(data)
        known = self._made.get((name, version))
        if known is None:
            known = message_layout.Upload(
                id=name,
                version=version,
                name=discord_file_name(name),
                size_bytes=len(data),
                source=InMemorySource(data),
                description=_described(told),
            )
            self._made[name, version] = known
            self._shown.add(hashlib.sha256(data).hexdigest())
        is_taken = known.size_bytes <= self._most_bytes and known.id not in self._refused
        return known if is_taken else self._oversized(name, len(data))

    def refuse(self, uploads: tuple[message_layout.Upload, ...]) -> None:
        """Record that Discord refused some files together: the largest of them, or any, is too
        large."""
        largest = max(upload.size_bytes for upload in uploads)
        smaller = [most for most in _SMALLER_BYTES if most < min(largest, self._most_bytes)]
        if smaller:
            self._most_bytes = smaller[0]
        else:
            self._refused |= {upload.id for upload in uploads}

    async def prepare(self, artifact: values.Artifact) -> tuple[message_layout.Part, ...]:
        """Convert an artifact to parts that may be sent; or say why there are none.

        What was shown as a picture already, byte for byte, is not sent a second time.
        """
        path = self.saved.get(artifact.name)
        if path is None or artifact.sha256 in self._shown:
            return ()
        if _id(artifact.name) in self._refused:
            return (self._refusal(artifact, discord_words.FILE_REFUSED),)
        if artifact.size_bytes <= self._most_bytes:
            return (self._upload(artifact.name, path, artifact.size_bytes),)
        try:
            return await asyncio.to_thread(self._packed, artifact, path)
        except OSError as error:
            _log.warning("a file could not be packed", exc_info=error)
            return (self._refusal(artifact, discord_words.NOT_PACKED),)

    def _packed(
        self, artifact: values.Artifact, path: pathlib.Path
    ) -> tuple[message_layout.Part, ...]:
        """Compress a file and, if that does not suffice, split it."""
        packed = self._path()
        short = artifact.name.rsplit("/", 1)[-1]
        with zipfile.ZipFile(packed, "x", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            archive.write(path, discord_file_name(short))
        size = packed.stat().st_size
        name = f"{artifact.name}.zip"
        if any(known.startswith(_id(name)) for known in self._refused):
            return (self._refusal(artifact, discord_words.PARTS_REFUSED),)
        if size <= self._most_bytes:
            return (self._upload(name, packed, size),)
        count = -(-size // self._most_bytes)
        if count > self._parts:
            packed.unlink()
            reason = file_words.compressed_too_large(size, self._most_bytes)
            return (self._refusal(artifact, reason),)
        whole_name = discord_file_name(short)
        command = markdown.line(f"cat {whole_name}.zip.* > {whole_name}.zip")
        told = file_words.in_parts(markdown.line(artifact.name), count, command)
        parts: list[message_layout.Part] = [markdown.small(f"🔹 {told}")]
        with packed.open("rb") as whole:
            for number in range(1, count + 1):
                part = self._path()
                with part.open("xb") as file:
                    left = self._most_bytes
                    while left and (data := whole.read(min(left, _COPY_BYTES))):
                        left -= file.write(data)
                parts.append(self._upload(f"{name}.{number:03}", part, part.stat().st_size))
        packed.unlink()
        return tuple(parts)

    def _upload(self, name: str, path: pathlib.Path, size_bytes: int) -> message_layout.Upload:
        return message_layout.Upload(
            id=_id(name),
            version=0,
            name=discord_file_name(name.rsplit("/", 1)[-1]),
            size_bytes=size_bytes,
            source=Spooled(path),
            description=_described(name),
        )

    def _refusal(self, artifact: values.Artifact, reason: str) -> str:
        return file_words.too_large_to_send(
            markdown.line(artifact.name), artifact.size_bytes, reason
        )

    def _oversized(self, name: str, size_bytes: int) -> str:
        return file_words.too_large_to_attach(markdown.line(name), size_bytes, self._most_bytes)


def _id(name: str) -> str:
    return f"file {name}"


def discord_file_name(name: str) -> str:
    """Spell a file name so that Discord leaves it unchanged."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    stem, dot, suffix = _UNLIKED.sub("_", ascii_name).strip("._").rpartition(".")
    if not dot:
        stem, suffix = suffix, ""
    stem = stem[:_MOST_NAME].strip("._") or "file"
    return f"{stem}.{suffix[:20]}" if suffix else stem


def _described(text: str) -> str:
    return quantities.one_line(text, _MOST_DESCRIPTION)
