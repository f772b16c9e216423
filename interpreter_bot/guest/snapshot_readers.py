"""Reading of a generation's variables into a namespace."""

from __future__ import annotations

import contextlib
import linecache
import pickle
from collections.abc import Iterator
from typing import Any

from . import interpreter_state, snapshot_files, variable_pickler

STATE = "process state"
"""Name of the entry for `interpreter_state` among the variables."""
_SHARES_WITH_FAILED = "it shares a part with {name}, which could not be read"
# The bot reads at most this many.
_MAX_FAILURES = 200


def restore(namespace: dict[str, Any], directory: str, generation: int) -> dict[str, str]:
    """Restore the variables of a generation into a namespace, in a kernel that has run nothing yet.

    Returns:
        The names of variables that could not be restored, with reasons.

    Raises:
        OSError: there is no such generation.
        ValueError: its index is malformed.
    """
    index = snapshot_files.read_index(directory, generation)
    reader = SnapshotReader(directory, generation, namespace)
    for record in index.records:
        for _ in reader.read(record):
            pass
        reader.run_sources(record)
    for file_name, text in index.cells.items():
        lines = text.splitlines(keepends=True)
        linecache.cache[file_name] = (len(text), None, lines, file_name)
    return snapshot_files.shorten(reader.failed, _MAX_FAILURES)


class _PickleFile:
    """File for an unpickler that reads one pickle after the other, without copying them."""

    def __init__(self) -> None:
        self._view = memoryview(b"")

    def begin(self, pickled: memoryview) -> None:
        """Read this pickle from now on."""
        self._view = pickled

    def read(self, size: int = -1) -> bytes:
        size = len(self._view) if size < 0 else size
        part, self._view = self._view[:size], self._view[size:]
        return bytes(part)

    def readinto(self, target: Any) -> int:
        size = min(len(target), len(self._view))
        target[:size] = self._view[:size]
        self._view = self._view[size:]
        return size

    def readline(self) -> bytes:
        return self.read(bytes(self._view).find(b"\n") + 1)


class SnapshotReader:
    """Reads records into a namespace.

    Half-built objects are kept alive as long as the reader: in a check, their `__del__` might
    delete files that the live session still uses.

    Attributes:
        failed: names of variables that could not be restored, with reasons.
    """

    def __init__(
        self,
        directory: str,
        generation: int,
        namespace: dict[str, Any],
        *,
        is_check: bool = False,
    ) -> None:
        """Read nothing yet; `is_check` as in `snapshot_files.Reader`."""
        self.failed: dict[str, str] = {}
        self._namespace = namespace
        self._files = snapshot_files.Reader(directory, generation, is_check=is_check)
        self._keep_alive: list[object] = []
        variable_pickler.restore_into(namespace)

    def read(self, record: snapshot_files.Record) -> Iterator[str]:
        """Read the variables of a record; yield each name before its variable.

        So the parent process knows which variable crashed the reader."""
        pickles: list[memoryview] = []
        source, unpickler = _PickleFile(), None
        for position, name in enumerate(record.names):
            yield name
            try:
                if unpickler is None:
                    pickles = self._files.pickles(record)
                    unpickler = pickle.Unpickler(source, buffers=self._files.buffers(record))
                    self._keep_alive.append(unpickler)
                source.begin(pickles[position])
                value = unpickler.load()
                if name == STATE:
                    interpreter_state.restore(value)
                else:
                    self._namespace[name] = value
            except Exception as error:
                # Any exception: methods of the type, or another release of its library, may raise
                # it.
                if snapshot_files.refusal(error) and unpickler is None:
                    raise
                self._keep_alive.append(error)
                self.failed[name] = variable_pickler.reason(error)
                later_names = record.names[position + 1 :]
                self.failed |= dict.fromkeys(later_names, _SHARES_WITH_FAILED.format(name=name))
                return

    def run_sources(self, record: snapshot_files.Record) -> None:
        """Run the sources of functions and classes whose pickles could not be read."""
        for name in self.failed.keys() & record.sources.keys():
            # If this fails, too, the first reason stays.
            with contextlib.suppress(Exception):
                exec(record.sources[name], self._namespace)
                del self.failed[name]
