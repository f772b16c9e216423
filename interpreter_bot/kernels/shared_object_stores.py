"""Object store that all machines of a fleet share: a bucket or a mounted directory, by obstore.

Large content is stored under its SHA-256 and never changes; all other items are small. Downloads
are checked by size and digest.
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
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final

from interpreter_bot import errors
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 24 * 3600.0
"""How long content is kept that no manifest names: a manifest that names it may follow."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Limit of items read or written at once, such as manifests of sessions with many files."""

# Vendors' errors about missing permissions and wrong regions, and the address that obstore asks for
# a login if none was given.
_REFUSAL_PATTERN: Final = re.compile(
    "status code: 40[0134]\\b|redirect without LOCATION|/latest/api/token"
)
_ERROR_CODE_PATTERN: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_SECOND: Final = datetime.timedelta(seconds=1)
# Large content may take long, but must not stall. Uploads go in parts of 5 MiB, one at a time for
# each session. The read timeout includes the time to send a part; on a line of one Mbit/s that four
# sessions share, a part takes nearly three minutes.
TIMEOUTS: Final[Mapping[str, datetime.timedelta]] = {
    "connect_timeout": 10 * _SECOND,
    "read_timeout": 300 * _SECOND,
    "timeout": 3600 * _SECOND,
}
_MAX_PARALLEL_PARTS: Final = 1
_RETRIES: Any = {"max_retries": 3, "retry_timeout": 30 * _SECOND}
_CLOCK_NAME: Final = "clock"
_MAX_CLOCK_AGE_SECONDS: Final = 600.0
_CHUNK_BYTES: Final = 1024 * 1024


class ContentChangedError(errors.BotError):
    """A file changed while it was uploaded."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredItem:
    """Item of the store: its path with slashes, and the last write by the store's clock."""

    name: str
    written_at: float


class SharedStore:
    """A bucket, part of one, or a directory; methods raise KernelError if it is out of reach.

    Args:
        address: `s3://…`, `gs://…`, `az://…` or `file:///…`.
        timeouts: of each request.
    """

    def __init__(self, address: str, timeouts: Mapping[str, datetime.timedelta] = TIMEOUTS) -> None:
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
        self._library_errors: tuple[type[Exception], ...] = (exceptions.BaseError, OSError)
        self._already_exists_error: type[Exception] = exceptions.AlreadyExistsError
        # The store's time, and this machine's time since boot, both read at the same moment.
        self._clock_reading: tuple[float, float] | None = None
        try:
            if address.startswith("file:"):
                self._store: Any = stores.from_url(address, mkdir=True)
            else:
                options: Any = {"allow_http": True, **timeouts}
                self._store = stores.from_url(
                    address, client_options=options, retry_config=_RETRIES
                )
        except (*self._library_errors, ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise errors.SettingsError(host_words.bad_store(reason)) from error

    async def create(self, name: str, data: bytes) -> bool:
        """Write a small item unless the name is taken; return whether it was written.

        Raises:
            KernelError: also if it is too large.
        """
        if len(data) > MAX_BYTES:
            raise errors.KernelError(host_words.too_large_to_share(name))
        with self._translate_errors():
            try:
                await self._library.put_async(self._store, name, data, mode="create")
            except self._already_exists_error:
                return False
            return True

    async def read(self, name: str) -> bytes | None:
        """Read a small item; None if there is none of that name.

        Raises:
            KernelError: also if it is too large.
        """
        data = bytearray()
        with self._translate_errors():
            try:
                response = await self._library.get_async(self._store, name)
            except FileNotFoundError:
                return None
            async for chunk in response.stream():
                data += chunk
                if len(data) > MAX_BYTES:
                    raise errors.KernelError(host_words.too_large_to_share(name))
            return bytes(data)

    async def now(self) -> float:
        """Return the time of the store's clock, by which items are dated."""
        # CLOCK_BOOTTIME also runs while the machine sleeps.
        boot_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        if (
            self._clock_reading is None
            or boot_seconds - self._clock_reading[1] > _MAX_CLOCK_AGE_SECONDS
        ):
            with self._translate_errors():
                await self._library.put_async(self._store, _CLOCK_NAME, b"")
                head = await self._library.head_async(self._store, _CLOCK_NAME)
                self._clock_reading = float(head["last_modified"].timestamp()), boot_seconds
        return self._clock_reading[0] + boot_seconds - self._clock_reading[1]

    async def list(self, prefix: str) -> AsyncIterator[StoredItem]:
        """Yield all items whose names begin with `prefix`, in no order."""
        with self._translate_errors():
            async for page in self._library.list(self._store, prefix=prefix):
                for item in page:
                    written_at = item["last_modified"].timestamp()
                    yield StoredItem(item["path"], written_at)

    async def delete(self, names: Iterable[str], *, before: float | None = None) -> None:
        """Delete items, if they exist; items written at or after `before` are kept."""
        with self._translate_errors():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    if before is not None:
                        head = await self._library.head_async(self._store, name)
                        if head["last_modified"].timestamp() >= before:
                            continue
                    await self._library.delete_async(self._store, name)

    async def upload(self, content: bytes | AsyncIterator[bytes], digest: str) -> None:
        """Write content under its digest, unless the store has it and will keep it for long enough.

        Raises:
            ContentChangedError: the chunks have another digest; nothing is written.
        """
        now = await self.now()
        with self._translate_errors():
            with contextlib.suppress(FileNotFoundError):
                head = await self._library.head_async(self._store, blob_name(digest))
                if now - head["last_modified"].timestamp() < GRACE_SECONDS / 2:
                    return
            if not isinstance(content, bytes):
                content = _verify_chunks(content, digest)
            await self._library.put_async(
                self._store, blob_name(digest), content, max_concurrency=_MAX_PARALLEL_PARTS
            )

    async def download(self, digest: str, size_bytes: int, file: pathlib.Path) -> None:
        """Write the content with a digest into a new file.

        Raises:
            KernelError: also if it is missing, or differs in size or digest.
        """
        hasher, remaining_bytes = hashlib.sha256(), size_bytes

        def write_chunk(chunk: bytes) -> None:
            hasher.update(chunk)
            target.write(chunk)

        with self._translate_errors(), file.open("xb") as target:
            try:
                response = await self._library.get_async(self._store, blob_name(digest))
            except FileNotFoundError as error:
                raise errors.KernelError(host_words.STORE_DAMAGED) from error
            async for chunk in response.stream(min_chunk_size=_CHUNK_BYTES):
                remaining_bytes -= len(chunk)
                if remaining_bytes < 0:
                    break
                await asyncio.to_thread(write_chunk, chunk)
        if remaining_bytes or hasher.hexdigest() != digest:
            raise errors.KernelError(host_words.STORE_DAMAGED)

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except self._library_errors as error:
            message = str(error)
            _log.warning("the store that the machines share: %s", message.partition("\n")[0])
            if _REFUSAL_PATTERN.search(message) is None:
                raise errors.KernelError(host_words.STORE_DOWN) from error
            code = _ERROR_CODE_PATTERN.search(message)
            sentence = host_words.store_refuses(code[1] if code else "")
            raise errors.KernelError(sentence) from error


async def _verify_chunks(chunks: AsyncIterator[bytes], digest: str) -> AsyncIterator[bytes]:
    """Pass chunks on, and raise at the end if the digest is wrong, which aborts the upload."""
    hasher = hashlib.sha256()
    async for chunk in chunks:
        await asyncio.to_thread(hasher.update, chunk)
        yield chunk
    if hasher.hexdigest() != digest:
        raise ContentChangedError


def blob_name(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"
