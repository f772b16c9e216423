"""Blobs by the SHA-256 of their content: the images and pages that outputs showed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Collection
from typing import Final

from interpreter_bot import errors
from interpreter_bot.wording import storage_words

_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
_FRESH_SECONDS: Final = 3600.0


class Blobs:
    """Directory of blobs. Bots on several machines share it, to keep images when taking over."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    async def save(self, data: bytes) -> str:
        """Store bytes, once for equal content, and return their SHA-256.

        Raises:
            StoreError: there is no room for them.
        """
        try:
            return await asyncio.to_thread(self._save, data)
        except OSError as error:
            raise errors.StoreError(storage_words.PICTURE_NOT_KEPT) from error

    async def load(self, sha256: str) -> bytes | None:
        """Return stored bytes; None when there is no such blob, or it is damaged."""
        if not _DIGEST_PATTERN.fullmatch(sha256):
            return None
        return await asyncio.to_thread(self._load, sha256)

    async def list_old(self) -> frozenset[str]:
        """List all blobs that are not fresh; fresh ones may be about to be referred to."""
        return await asyncio.to_thread(self._list_old)

    async def sizes(self) -> dict[str, int]:
        """Return the bytes of all blobs, by their SHA-256."""
        return await asyncio.to_thread(self._sizes)

    async def discard(self, digests: Collection[str]) -> None:
        """Delete blobs and incomplete files of killed bots, except those that are fresh."""
        await asyncio.to_thread(self._discard, digests)

    def _path(self, sha256: str) -> pathlib.Path:
        return self._directory / sha256[:2] / sha256

    def _save(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._path(sha256)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == len(data):
                os.utime(path)
                return sha256
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Renamed when complete, so that a killed bot leaves no partial blob under its name.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                pathlib.Path(file.name).replace(path)
            except BaseException:
                pathlib.Path(file.name).unlink(missing_ok=True)
                raise
        return sha256

    def _load(self, sha256: str) -> bytes | None:
        try:
            data = self._path(sha256).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def _list_old(self) -> frozenset[str]:
        paths = self._directory.glob("*/*")
        return frozenset(
            path.name for path in paths if _DIGEST_PATTERN.fullmatch(path.name) and _is_old(path)
        )

    def _sizes(self) -> dict[str, int]:
        sizes = {}
        for path in self._directory.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                sizes[path.name] = path.stat().st_size
        return sizes

    def _discard(self, digests: Collection[str]) -> None:
        partial = self._directory.glob("*/.*")
        for path in (*map(self._path, digests), *partial):
            if _is_old(path):
                path.unlink(missing_ok=True)


def _is_old(path: pathlib.Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _FRESH_SECONDS
    except FileNotFoundError:
        return False
