"""Object store that all machines of a fleet share: a bucket or a mounted directory, by obstore.

Large content lies under its SHA-256, and is never changed; all else is small. What is read is
checked by size and digest before anybody uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import hashlib
import logging
import pathlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

from interpreter_bot import errors
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 24 * 3600.0
"""Content that nothing names is kept for so long: who writes may name it in a moment."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of what is read or written in one piece: manifests of sessions of many files are the largest."""

# What vendors answer to who may not, or asks at a wrong place, and where a login is looked for that
# was not given.
_REFUSAL: Final = re.compile("status code: 40[0134]\\b|redirect without LOCATION|/latest/api/token")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_SECOND: Final = datetime.timedelta(seconds=1)
# Large content may take long, but not stand still. What is written goes by parts of 5 MiB, one at a
# time for each session, and the answer to each is waited for from its beginning: so long, a line of
# one Mbit/s needs that four sessions share.
_TIMEOUTS: Any = {
    "connect_timeout": 10 * _SECOND,
    "read_timeout": 300 * _SECOND,
    "timeout": 3600 * _SECOND,
}
_PARTS_AT_ONCE: Final = 1
_RETRIES: Any = {"max_retries": 3, "retry_timeout": 30 * _SECOND}
_CLOCK: Final = "clock"
_CLOCK_SECONDS: Final = 600.0
_CHUNK_BYTES: Final = 1024 * 1024


class ContentChangedError(errors.BotError):
    """A file changed while it was stored."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredItem:
    """Something that lies in the store.

    Attributes:
        name: with slashes.
        size_bytes: its size.
        at: when it was written, by the store's clock, as `time.time` counts.
    """

    name: str
    size_bytes: int
    at: float


class SharedStore:
    """A bucket, part of one, or a directory. Every method raises KernelError if it is out of reach.

    Args:
        address: `s3://…`, `gs://…`, `az://…` or `file:///…`.
    """

    def __init__(self, address: str) -> None:
        """Read the login from the environment, and connect to nothing yet.

        Raises:
            SettingsError: the address cannot be used.
        """
        try:
            import obstore
            from obstore import exceptions
            from obstore import store as stores
        except ImportError as error:
            raise errors.SettingsError(host_words.NO_STORE_LIBRARY) from error
        self._library: Any = obstore
        self._faults: tuple[type[Exception], ...] = (exceptions.BaseError, OSError)
        self._exists: type[Exception] = exceptions.AlreadyExistsError
        # What it was by the store's clock, and by this machine's, which nobody sets.
        self._time: tuple[float, float] | None = None
        try:
            if address.startswith("file:"):
                self._store: Any = stores.from_url(address, mkdir=True)
            else:
                options: Any = {"allow_http": True, **_TIMEOUTS}
                self._store = stores.from_url(
                    address, client_options=options, retry_config=_RETRIES
                )
        except (*self._faults, ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise errors.SettingsError(host_words.bad_store(reason)) from error

    async def create(self, name: str, data: bytes) -> bool:
        """Write something small, unless there is something of that name; say whether it was.

        Raises:
            KernelError: it is too large, as well.
        """
        if len(data) > MAX_BYTES:
            raise errors.KernelError(host_words.too_large_to_share(name))
        with self._translated():
            try:
                await self._library.put_async(self._store, name, data, mode="create")
            except self._exists:
                return False
            return True

    async def read(self, name: str) -> bytes | None:
        """Read something small; None if there is nothing of that name.

        Raises:
            KernelError: it is too large, as well.
        """
        data = bytearray()
        with self._translated():
            try:
                found = await self._library.get_async(self._store, name)
            except FileNotFoundError:
                return None
            async for chunk in found.stream():
                data += chunk
                if len(data) > MAX_BYTES:
                    raise errors.KernelError(host_words.too_large_to_share(name))
            return bytes(data)

    async def now(self) -> float:
        """Return what time it is by the store's own clock, which says how old things there are."""
        # The other clock stands still while a machine sleeps.
        since = time.clock_gettime(time.CLOCK_BOOTTIME)
        if self._time is None or since - self._time[1] > _CLOCK_SECONDS:
            with self._translated():
                await self._library.put_async(self._store, _CLOCK, b"")
                found = await self._library.head_async(self._store, _CLOCK)
                self._time = float(found["last_modified"].timestamp()), since
        return self._time[0] + since - self._time[1]

    async def list(self, prefix: str) -> AsyncIterator[StoredItem]:
        """Give all whose names begin so, in no order."""
        with self._translated():
            async for page in self._library.list(self._store, prefix=prefix):
                for item in page:
                    at = item["last_modified"].timestamp()
                    yield StoredItem(item["path"], item["size"], at)

    async def delete(self, names: Iterable[str], *, before: float | None = None) -> None:
        """Delete some of what is there; what is not is fine.

        Args:
            names: of them.
            before: what was written later is kept, also if that was just now.
        """
        with self._translated():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    if before is not None:
                        found = await self._library.head_async(self._store, name)
                        if found["last_modified"].timestamp() >= before:
                            continue
                    await self._library.delete_async(self._store, name)

    async def upload(self, content: bytes | AsyncIterator[bytes], digest: str) -> None:
        """Write content under its digest, unless it is there, and will be for a while.

        Raises:
            ContentChangedError: chunks turn out to have another digest; nothing is written.
        """
        now = await self.now()
        with self._translated():
            with contextlib.suppress(FileNotFoundError):
                found = await self._library.head_async(self._store, blob_name(digest))
                if now - found["last_modified"].timestamp() < GRACE_SECONDS / 2:
                    return
            if not isinstance(content, bytes):
                content = _verified(content, digest)
            await self._library.put_async(
                self._store, blob_name(digest), content, max_concurrency=_PARTS_AT_ONCE
            )

    async def download(self, digest: str, size_bytes: int, file: pathlib.Path) -> None:
        """Write what lies under a digest into a new file.

        Raises:
            KernelError: it is not there, or is not what it should be, as well.
        """
        found, left = hashlib.sha256(), size_bytes

        def take(chunk: bytes) -> None:
            found.update(chunk)
            written.write(chunk)

        with self._translated(), file.open("xb") as written:
            try:
                stored = await self._library.get_async(self._store, blob_name(digest))
            except FileNotFoundError as error:
                raise errors.KernelError(host_words.STORE_DAMAGED) from error
            async for chunk in stored.stream(min_chunk_size=_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    break
                await asyncio.to_thread(take, chunk)
        if left or found.hexdigest() != digest:
            raise errors.KernelError(host_words.STORE_DAMAGED)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._faults as error:
            message = str(error)
            _log.warning("the store that the machines share: %s", message.partition("\n")[0])
            if _REFUSAL.search(message) is None:
                raise errors.KernelError(host_words.STORE_DOWN) from error
            code = _CODE.search(message)
            sentence = host_words.store_refuses(code[1] if code else "")
            raise errors.KernelError(sentence) from error


async def _verified(chunks: AsyncIterator[bytes], digest: str) -> AsyncIterator[bytes]:
    """Pass chunks on; an error at their end keeps them from being stored under a wrong digest."""
    hashed = hashlib.sha256()
    async for chunk in chunks:
        await asyncio.to_thread(hashed.update, chunk)
        yield chunk
    if hashed.hexdigest() != digest:
        raise ContentChangedError


def blob_name(digest: str) -> str:
    """Return where content of a digest lies."""
    return f"blobs/{digest[:2]}/{digest}"
