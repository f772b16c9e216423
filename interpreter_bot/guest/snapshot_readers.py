"""Reads a generation's variables into a namespace."""

from __future__ import annotations

import contextlib
import linecache
import pickle
from collections.abc import Iterator
from typing import Any

from . import dataframe_displays, interpreter_state, snapshot_files, variable_pickler

STATE_NAME = "process state"
"""Name of the entry for `interpreter_state` among the variables."""
TABLES_KEY = "tables"
"""Key of the displayed tables in this entry."""
_SHARED_PART_FAILED = "it shares a part with {name}, which could not be read"
# The bot accepts at most this many.
_MAX_FAILURES = 200


def restore(namespace: dict[str, Any], directory: str, generation: int) -> dict[str, str]:
    """Restore the variables of a generation into a namespace, in a kernel that has run no code yet.

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
    dataframe_displays.restore_handles(namespace, reader.tables)
    for file_name, text in index.cells.items():
        lines = text.splitlines(keepends=True)
        linecache.cache[file_name] = (len(text), None, lines, file_name)
    return snapshot_files.shorten_entries(reader.failures, _MAX_FAILURES)


class SnapshotReader:
    """Reads records into a namespace.

    The reader keeps incomplete objects alive. In a check, their `__del__` might delete files that
    the session still uses.

    Attributes:
        failures: names of variables that could not be restored, with reasons.
        tables: displayed tables, for `dataframe_displays.restore_handles`.
    """

    def __init__(
        self,
        directory: str,
        generation: int,
        namespace: dict[str, Any],
        *,
        is_check: bool = False,
    ) -> None:
        """Open the files; `is_check` as in `snapshot_files.Reader`."""
        self.failures: dict[str, str] = {}
        self.tables: dict[str, Any] = {}
        self._namespace = namespace
        self._files = snapshot_files.Reader(directory, generation, is_check=is_check)
        self._keep_alive: list[object] = []
        variable_pickler.set_restored_namespace(namespace)

    def read(self, record: snapshot_files.Record) -> Iterator[str]:
        """Read the variables of a record; yield each name before its variable.

        If a variable crashes this process, the parent process can know its name.
        """
        unpickler = None
        for position, name in enumerate(record.names):
            yield name
            try:
                file = self._files.open_pickle(*record.pickles[position])
                if unpickler is None:
                    unpickler = pickle.Unpickler(file, buffers=self._files.buffers(record))
                    self._keep_alive.append(unpickler)
                value = unpickler.load()
                if name == STATE_NAME:
                    self.tables = value.pop(TABLES_KEY, {})
                    interpreter_state.restore(value)
                else:
                    self._namespace[name] = value
            except Exception as error:
                # Any exception: the type's methods, or another release of its library, may fail.
                if snapshot_files.find_refusal_errno(error) and unpickler is None:
                    raise
                self._keep_alive.append(error)
                self.failures[name] = variable_pickler.describe_error(error)
                later_names = record.names[position + 1 :]
                self.failures |= dict.fromkeys(later_names, _SHARED_PART_FAILED.format(name=name))
                return

    def run_sources(self, record: snapshot_files.Record) -> None:
        """Run the sources of functions and classes whose pickles could not be read."""
        for name in self.failures.keys() & record.sources.keys():
            # If this fails, too, report the first reason.
            with contextlib.suppress(Exception):
                exec(record.sources[name], self._namespace)
                del self.failures[name]
