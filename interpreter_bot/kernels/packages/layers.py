"""Layers of packages of one host: built once, named by content, dropped when long unused."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import functools
import hmac
import logging
import os
import pathlib
import secrets
import shutil
import stat
import weakref
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from typing import Final

from interpreter_bot import cancellation, errors, private_files
from interpreter_bot.kernels.packages import lock_files, uv_commands
from interpreter_bot.wording import host_words, package_words

_log = logging.getLogger(__name__)

_KEY_BYTES: Final = 32
_RECORDS_NAME: Final = "records"
_FILE_MODE: Final = 0o644
_PROGRAM_MODE: Final = 0o755


class Layers:
    """The store of layers. Use `open`.

    Attributes:
        directory: the directory that kernels see, with one directory for each layer.
    """

    def __init__(
        self,
        root: pathlib.Path,
        staging: pathlib.Path,
        uv: uv_commands.Uv,
        *,
        max_bytes: int,
        reserve_bytes: int,
        platform: str,
        used_names: Callable[[], Container[str]],
    ) -> None:
        """Open nothing yet.

        Args:
            root: directory of all package files.
            staging: directory of this process in the same file system.
            uv: fills a new layer.
            max_bytes: of all layers together.
            reserve_bytes: if less disk space is free, nothing is built.
            platform: Python version and processor that layers are built for.
            used_names: returns the names of the layers that live kernels use.
        """
        self.directory = layers_directory(root)
        self._root = root
        self._records = root / _RECORDS_NAME
        self._staging = staging
        self._uv = uv
        self._max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._platform = platform
        self._used_names = used_names
        self._key = b""
        self._name_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._waiting_counts: collections.Counter[str] = collections.Counter()

    def open(self) -> None:
        """Create missing directories and the key; blocks.

        Raises:
            SettingsError: the directories cannot be used.
        """
        try:
            self._records.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise errors.SettingsError(host_words.NO_PACKAGES) from error
        key = private_files.read_or_create(
            self._root / "key", functools.partial(secrets.token_hex, _KEY_BYTES)
        )
        self._key = key.encode()

    @contextlib.asynccontextmanager
    async def working_directory(self) -> AsyncIterator[pathlib.Path]:
        """Create a temporary directory, which is deleted at the end."""
        path = self._staging / secrets.token_hex(8)
        with translate_errors():
            await cancellation.in_thread(path.mkdir, mode=0o700)
        try:
            yield path
        finally:
            await cancellation.in_thread(shutil.rmtree, path, ignore_errors=True)

    async def obtain(self, lock: lock_files.Lock, person: str | None = None) -> str:
        """Return the name of a lock's layer, which is built if missing.

        The layer is not deleted before the caller's next `await`, nor while a kernel uses it.
        `person` is None if the session or channel already had the packages.

        Raises:
            PackagesError: it cannot be built.
        """
        name = self._layer_name(lock)
        self._waiting_counts[name] += 1
        try:
            with translate_errors():
                async with self._name_locks.setdefault(name, asyncio.Lock()):
                    if not await asyncio.to_thread(self._touch, name):
                        await self._build_layer(name, lock, person)
            return name
        finally:
            self._waiting_counts[name] -= 1
            self._waiting_counts += collections.Counter()  # drops names that no task waits for

    def size_bytes(self, names: Iterable[str]) -> int:
        """Return the disk usage of layers; blocks."""
        total_bytes = 0
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                total_bytes += int((self._records / name).read_text())
        return total_bytes

    def _layer_name(self, lock: lock_files.Lock) -> str:
        """Name a layer by a keyed hash: kernels cannot list layers, and must not guess names."""
        content = f"{self._platform}\n{lock_files.format_requirements(lock)}".encode()
        return hmac.digest(self._key, content, "sha256").hex()[:32]

    def _touch(self, name: str) -> bool:
        """Set the time of a layer's last use to now; return whether the layer exists."""
        try:
            os.utime(self._records / name)
        except FileNotFoundError:
            return False
        return (self.directory / name).is_dir()

    async def _build_layer(self, name: str, lock: lock_files.Lock, person: str | None) -> None:
        if shutil.disk_usage(self.directory).free < self._reserve_bytes:
            raise errors.PackagesError(package_words.DISK_FULL)
        async with self.working_directory() as work_directory:
            layer_directory = work_directory / "layer"
            await self._uv.unpack(lock, layer_directory, work_directory, person)
            size_bytes = await cancellation.in_thread(self._seal, layer_directory)
            await cancellation.in_thread(self._store_layer, layer_directory, name, size_bytes)
        if not await self._evict():
            await cancellation.in_thread(self._delete, name)
            raise errors.PackagesError(package_words.CACHE_FULL)

    def _seal(self, layer_directory: pathlib.Path) -> int:
        """Make unpacked files readable for everybody, and return their disk usage.

        Raises:
            PackagesError: something is neither file nor directory, or there are too many bytes.
        """
        layer_directory.mkdir(exist_ok=True)
        for entry in _walk(layer_directory):
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, _PROGRAM_MODE)
            elif stat.S_ISREG(status.st_mode):
                os.chmod(entry.path, _PROGRAM_MODE if status.st_mode & 0o100 else _FILE_MODE)
            else:
                raise errors.PackagesError(package_words.not_a_plain_file(repr(entry.name[:100])))
        layer_directory.chmod(_PROGRAM_MODE)
        return self._uv.check_size(layer_directory)

    def _store_layer(self, layer_directory: pathlib.Path, name: str, size_bytes: int) -> None:
        if self._touch(name):
            # Another host has built it meanwhile, and its kernels may use it.
            return
        # A dead host may have left a part of it.
        shutil.rmtree(self.directory / name, ignore_errors=True)
        # Written before it is moved: on a full disk, an empty record would count as a whole one.
        record = layer_directory.with_name("record")
        record.write_text(str(size_bytes))
        layer_directory.rename(self.directory / name)
        record.rename(self._records / name)

    async def _evict(self) -> bool:
        """Delete the least recently used layers over the limit; return whether the others fit."""
        records = await cancellation.in_thread(list_records, self._root)
        total_bytes = sum(size_bytes for _, _, size_bytes in records)
        for _, name, size_bytes in records:
            if total_bytes <= self._max_bytes:
                break
            # Ask again for each layer: sessions may start to use it while others are deleted.
            if name in self._used_names() or name in self._waiting_counts:
                continue
            async with self._name_locks.setdefault(name, asyncio.Lock()):
                await cancellation.in_thread(self._delete, name)
            total_bytes -= size_bytes
            _log.info("a layer of packages was deleted, of %d bytes", size_bytes)
        return total_bytes <= self._max_bytes

    def _delete(self, name: str) -> None:
        # Delete the record first: a layer without a record is built again.
        (self._records / name).unlink(missing_ok=True)
        shutil.rmtree(self.directory / name, ignore_errors=True)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of the operating system raised by work on packages."""
    try:
        yield
    except OSError as error:
        _log.exception("packages cannot be kept")
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise errors.PackagesError(
            package_words.DISK_FULL if is_full else package_words.NOT_STORED
        ) from error


def list_records(root: pathlib.Path) -> list[tuple[int, str, int]]:
    """List the last use, name and size of each layer, the least recently used first; blocks."""
    records = []
    for record in root.glob(f"{_RECORDS_NAME}/*"):
        with contextlib.suppress(OSError, ValueError):
            records.append((record.stat().st_mtime_ns, record.name, int(record.read_text())))
    return sorted(records)


def layers_directory(root: pathlib.Path) -> pathlib.Path:
    """Return the directory that kernels see."""
    return root / "layers"


def make_layers_directory(root: pathlib.Path) -> None:
    """Create the directory that kernels may enter, but not list; blocks.

    Raises:
        SettingsError: it cannot be created.
    """
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        layers_directory(root).mkdir(mode=0o711, exist_ok=True)
        layers_directory(root).chmod(0o711)
    except OSError as error:
        raise errors.SettingsError(host_words.unusable_directory(root, error.strerror)) from error


def _walk(root: pathlib.Path) -> Iterator[os.DirEntry[str]]:
    pending_directories = [str(root)]
    while pending_directories:
        with os.scandir(pending_directories.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending_directories.append(entry.path)
                yield entry
