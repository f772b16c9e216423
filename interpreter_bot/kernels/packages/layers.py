"""All layers of one host: built once, named after what is in them, deleted when long unused."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
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

from interpreter_bot import cancellation, errors
from interpreter_bot.kernels.packages import lock_files, uv_commands
from interpreter_bot.wording import host_words, package_words

_log = logging.getLogger(__name__)

_KEY_BYTES: Final = 32
_RECORDS: Final = "records"
_FILE_MODE: Final = 0o644
_PROGRAM_MODE: Final = 0o755


class Layers:
    """The store of layers. Use `open`.

    Attributes:
        directory: what kernels see of it: one directory a layer.
    """

    def __init__(
        self,
        place: pathlib.Path,
        staging: pathlib.Path,
        uv: uv_commands.Uv,
        *,
        most_bytes: int,
        reserve_bytes: int,
        suits: str,
        used: Callable[[], Container[str]],
    ) -> None:
        """Open nothing yet.

        Args:
            place: directory of all that is kept.
            staging: directory of this process in the same file system.
            uv: fills a new layer.
            most_bytes: of all layers together.
            reserve_bytes: free space of the disk; below it nothing is built.
            suits: the Python and the processor that layers are made for.
            used: returns the names of the layers that live kernels have.
        """
        self.directory = directory(place)
        self._place = place
        self._records = place / _RECORDS
        self._key_file = place / "key"
        self._staging = staging
        self._uv = uv
        self._most_bytes = most_bytes
        self._reserve_bytes = reserve_bytes
        self._suits = suits
        self._used = used
        self._key = b""
        self._orders: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._wanted: collections.Counter[str] = collections.Counter()

    def open(self) -> None:
        """Make what is missing of it; blocks.

        Raises:
            SettingsError: they cannot be used.
        """
        try:
            self._records.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self._key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
            self._key = self._key_file.read_bytes()
        except OSError as error:
            raise errors.SettingsError(host_words.NO_PACKAGES) from error

    @contextlib.asynccontextmanager
    async def working_directory(self) -> AsyncIterator[pathlib.Path]:
        """Give a directory to work in, deleted at the end."""
        own = self._staging / secrets.token_hex(8)
        with translated_errors():
            await cancellation.in_thread(own.mkdir, mode=0o700)
        try:
            yield own
        finally:
            await cancellation.in_thread(shutil.rmtree, own, ignore_errors=True)

    async def obtain(self, lock: lock_files.Lock, person: str | None = None) -> str:
        """Return the name of the layer that a lock describes, built if there is none.

        It is not deleted before the caller's next `await`, and while it is used.

        Args:
            lock: what is in it.
            person: who wants it; None for what a session had already.

        Raises:
            PackagesError: it cannot be built.
        """
        name = self._name(lock)
        self._wanted[name] += 1
        try:
            with translated_errors():
                async with self._orders.setdefault(name, asyncio.Lock()):
                    if not await asyncio.to_thread(self._touch, name):
                        await self._build(name, lock, person)
            return name
        finally:
            self._wanted[name] -= 1
            self._wanted += collections.Counter()  # drops what nobody wants

    def size_bytes(self, names: Iterable[str]) -> int:
        """Return what layers take of the disk; blocks."""
        sizes = 0
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                sizes += int((self._records / name).read_text())
        return sizes

    def _name(self, lock: lock_files.Lock) -> str:
        """Name a layer: nobody guesses what others have, since kernels cannot list them."""
        content = f"{self._suits}\n{lock_files.lines(lock)}".encode()
        return hmac.digest(self._key, content, "sha256").hex()[:32]

    def _touch(self, name: str) -> bool:
        """Note that a layer is used now; False if there is none."""
        try:
            os.utime(self._records / name)
        except FileNotFoundError:
            return False
        return (self.directory / name).is_dir()

    async def _build(self, name: str, lock: lock_files.Lock, person: str | None) -> None:
        if shutil.disk_usage(self.directory).free < self._reserve_bytes:
            raise errors.PackagesError(package_words.DISK_FULL)
        async with self.working_directory() as own:
            made = own / "layer"
            await self._uv.unpack(lock, made, own, person)
            size_bytes = await cancellation.in_thread(self._sealed, made)
            await cancellation.in_thread(self._keep, made, name, size_bytes)
        if not await self._evict():
            await cancellation.in_thread(self._delete, name)
            raise errors.PackagesError(package_words.CACHE_FULL)

    def _sealed(self, made: pathlib.Path) -> int:
        """Let everybody read what was unpacked, and return what it takes of the disk.

        Raises:
            PackagesError: not all are plain files and directories, or it is too large.
        """
        made.mkdir(exist_ok=True)
        for entry in _entries(made):
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, _PROGRAM_MODE)
            elif stat.S_ISREG(status.st_mode):
                os.chmod(entry.path, _PROGRAM_MODE if status.st_mode & 0o100 else _FILE_MODE)
            else:
                raise errors.PackagesError(package_words.not_plain(repr(entry.name[:100])))
        made.chmod(_PROGRAM_MODE)
        return self._uv.check_size(made)

    def _keep(self, made: pathlib.Path, name: str, size_bytes: int) -> None:
        # What a bot left that died in between, or what another one made meanwhile.
        shutil.rmtree(self.directory / name, ignore_errors=True)
        made.rename(self.directory / name)
        (self._records / name).write_text(str(size_bytes))

    async def _evict(self) -> bool:
        """Delete the layers used longest ago, as long as all are too large together.

        Returns:
            whether they are not, in the end.
        """
        kept = await cancellation.in_thread(recorded, self._place)
        total_bytes = sum(size_bytes for _, _, size_bytes in kept)
        for _, name, size_bytes in kept:
            if total_bytes <= self._most_bytes:
                break
            # Asked for each, and here: sessions begin to use others while one is deleted.
            if name in self._used() or name in self._wanted:
                continue
            async with self._orders.setdefault(name, asyncio.Lock()):
                await cancellation.in_thread(self._delete, name)
            total_bytes -= size_bytes
            _log.info("a layer of packages was deleted, of %d bytes", size_bytes)
        return total_bytes <= self._most_bytes

    def _delete(self, name: str) -> None:
        # The record first: what has none is built again.
        (self._records / name).unlink(missing_ok=True)
        shutil.rmtree(self.directory / name, ignore_errors=True)


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of the operating system raised by work on packages."""
    try:
        yield
    except OSError as error:
        _log.exception("packages cannot be kept")
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise errors.PackagesError(
            package_words.DISK_FULL if is_full else package_words.NOT_STORED
        ) from error


def recorded(place: pathlib.Path) -> list[tuple[int, str, int]]:
    """Return when layers were used last, their names and sizes, the oldest first; blocks."""
    kept = []
    for record in place.glob(f"{_RECORDS}/*"):
        with contextlib.suppress(OSError, ValueError):
            kept.append((record.stat().st_mtime_ns, record.name, int(record.read_text())))
    return sorted(kept)


def directory(place: pathlib.Path) -> pathlib.Path:
    """Return the directory that kernels see."""
    return place / "layers"


def make_directory(place: pathlib.Path) -> None:
    """Make the directory that kernels see, which they may enter and not list; blocks.

    Raises:
        SettingsError: it cannot be made.
    """
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory(place).mkdir(mode=0o711, exist_ok=True)
        directory(place).chmod(0o711)
    except OSError as error:
        raise errors.SettingsError(host_words.unusable_directory(place)) from error


def _entries(root: pathlib.Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                yield entry
