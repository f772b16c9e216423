"""Files of S3, GCS, Azure and HTTP servers, with obstore."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any, Final

import obstore
from obstore import exceptions, store

from interpreter_bot.data_connections.worker import ports
from interpreter_bot.wording import data_words

_CHUNK_BYTES: Final = 1024 * 1024
_MAX_PAGE_FILES: Final = 1000
# Within a network, private stores are often served over plain HTTP.
_CLIENT_OPTIONS: Final = {"allow_http": True, "connect_timeout": "10s", "timeout": "60s"}
# The default of three minutes is too long.
_RETRY_OPTIONS: Any = {"max_retries": 2, "retry_timeout": datetime.timedelta(seconds=20)}


class ObjectStore:
    """A bucket, or part of one; implements `ports.Files`."""

    def __init__(self, specification: ports.Specification) -> None:
        # The type of options depends on the kind of the store.
        options: Any = dict(specification.options)
        client: Any = _CLIENT_OPTIONS
        address = specification.address
        if address.startswith(("http://", "https://")):
            self._store: Any = store.HTTPStore.from_url(
                address, client_options=client, retry_config=_RETRY_OPTIONS
            )
        else:
            self._store = store.from_url(
                address, config=options, client_options=client, retry_config=_RETRY_OPTIONS
            )

    def list(self, prefix: str, limit: int) -> list[dict[str, Any]]:
        """Return the files with a prefix; see `ports.Files.list`."""
        files: list[dict[str, Any]] = []
        with _translate_errors(prefix):
            for piece in obstore.list(
                self._store, prefix=prefix or None, chunk_size=_MAX_PAGE_FILES
            ):
                files += [
                    {
                        "name": entry["path"],
                        "size": entry["size"],
                        "at": entry["last_modified"].timestamp(),
                    }
                    for entry in piece
                ]
                if len(files) >= limit:
                    break
        return files[:limit]

    def read(self, name: str) -> Iterator[bytes]:
        """Yield a file's bytes."""
        with _translate_errors(name):
            # In pieces, so that only one is in memory.
            for piece in obstore.get(self._store, name).stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(piece)


@contextlib.contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Translate exceptions; messages may reveal addresses, except that of a missing file."""
    try:
        yield
    except FileNotFoundError as error:
        raise ports.QueryFailedError(data_words.no_file(name)) from error
    except exceptions.BaseError as error:
        raise ports.ConnectError(str(error)) from error
