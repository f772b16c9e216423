"""Saving of a session's variables as a generation, of which all comes back that it says it holds.

1. Each variable is pickled alone into nothing. That finds what fails, what it lacks, and which
   variables share objects. 2. Each group of variables that share is written, the smallest first.
3. Another child reads all groups back. A child that ends or hangs at a variable is begun again
without it, and a group of which a variable does not come back is written again without that.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import math
import pickle
import re
import sys
import time
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import (
    interpreter_state,
    snapshot_children,
    snapshot_files,
    snapshot_readers,
    variable_pickler,
)

# What IPython itself defines while it runs cells.
_HISTORY = re.compile(r"_+|_i+|_[iod]h|_i?\d+|_exit_code|In|Out|__\w+__")
_MAX_NAME_CHARACTERS = 200
MAX_ATTEMPTS = 10
# The share of the remaining time that one variable may take while others wait behind it.
_SHARE = 0.5
# In relation to the time for trying variables: what saving may take, with reading back what was
# written, and when the process is ended; `kernels/snapshots` waits so long.
_LONGEST = 2.5
_ALARM = 3
# Looking for shared objects takes one or two hundred bytes an object.
_MAX_MEMO_BYTES = 8 * 1024 * 1024
_MAX_SHAREABLE = 500_000
_MAX_CELL_CHARACTERS = 1_000_000
_MAX_MISSING = 10
_NUMBER_BYTES = 8
# Libraries whose objects say how large they are.
_TABLES = ("pandas", "numpy", "polars", "pyarrow")

_DIED = "saving it ended Python"
_UNREADABLE = "reading it back ended Python"
_UNTRIED = "it was not tried, as too many others failed"
_ALIKE = "it was not tried, as two others of its type could not be saved"

Namespace = dict[str, Any]


def names_of(namespace: Namespace, hidden: Mapping[str, Any]) -> list[str]:
    """Return the names of a shell's variables that are saved.

    Args:
        namespace: all that is defined there.
        hidden: what every session begins with.
    """
    return [
        name
        for name in list(namespace)
        if type(name) is str
        and len(name) <= _MAX_NAME_CHARACTERS
        and name.isidentifier()
        and not _HISTORY.fullmatch(name)
        and not (name in hidden and namespace[name] is hidden[name])
    ]


def begin(
    namespace: Namespace,
    names: list[str],
    directory: str,
    number: int,
    *,
    seconds: float,
    max_bytes: int,
) -> int:
    """Begin to save variables as they are now; the manifest is there at the end, which says how.

    Args:
        namespace: the session's.
        names: of its variables.
        directory: of its snapshots.
        number: of the generation; it must be new.
        seconds: after which no further variable is begun.
        max_bytes: that all pickles and buffers may have.

    Returns:
        The process that does it, for `snapshot_children.end`.
    """
    attempts = _Attempts(namespace, names, directory, number, seconds, max_bytes)

    def note_failure(error: BaseException) -> None:
        problem = variable_pickler.reason(error)
        manifest = snapshot_files.Manifest(
            problem=problem, is_disk_full=snapshot_files.is_disk_full(error)
        )
        snapshot_files.write_manifest(directory, number, manifest)

    return snapshot_children.begin(attempts.save, note_failure, _ALARM * seconds)


class _Attempts:
    """Attempts to save a generation, until nothing is left that fails.

    Its state is the same here and in each child, which reports every change.
    """

    def __init__(
        self,
        namespace: Namespace,
        names: list[str],
        directory: str,
        number: int,
        seconds: float,
        max_bytes: int,
    ) -> None:
        self._namespace, self._names = namespace, names
        self._directory, self._number, self._max_bytes = directory, number, max_bytes
        now = time.monotonic()
        self._try_until = now + seconds
        self._until = now + seconds * _LONGEST
        self._left_attempts = MAX_ATTEMPTS
        self._lost: dict[str, str] = {}
        self._missing: dict[str, list[str]] = {}
        # Those that are to be written; None before they are known.
        self._groups: list[list[str]] | None = None
        self._written: list[snapshot_files.Record] = []
        self._checked: list[snapshot_files.Record] = []
        self._cells: dict[str, str] = {}
        self._ended_kinds: list[type] = []

    def save(self) -> None:
        """Save what can be saved in time.

        Raises:
            OSError: the system refused something.
            RuntimeError: nothing that was computed was reached. What was saved earlier is worth
                more.
        """
        snapshot_files.create(self._directory, self._number)
        while self._left_attempts >= 0 and time.monotonic() < self._until:
            is_writing = self._groups is None or bool(self._groups)
            if not is_writing and not self._written:
                break
            work = self._write if is_writing else self._check
            report = snapshot_children.run_in_child(work, self._receive, self._until)
            if report.errno:
                raise OSError(report.errno, report.reason)
            if report.reason and not report.at:
                raise RuntimeError(f"nothing was begun: {report.reason}")
            if report.reason:
                self._note_end(report.at, report.reason, is_writing=is_writing)
        self._write_documents()

    # In the first process, and in a child.

    def _receive(self, message: snapshot_children.Message) -> None:
        match message:
            case snapshot_children.Tried(name, missing):
                self._missing[name] = missing
            case snapshot_children.Loss(name, reason):
                self._lose(name, reason)
            case snapshot_children.Grouped(groups):
                self._groups = groups
            case snapshot_children.Written(record):
                self._groups = [group for group in self._groups or () if group != record.names]
                self._written.append(record)
            case snapshot_children.Cell(file_name, text):
                self._cells[file_name] = text
            case snapshot_children.Checked(names):
                self._checked += [record for record in self._written if record.names == names]
                self._written = [record for record in self._written if record.names != names]

    def _lose(self, name: str, reason: str) -> None:
        """Leave a variable out; what was written or is to be written with it is written without."""
        self._lost[name] = reason
        if self._groups is None:
            return
        again = [record.names for record in self._written if name in record.names]
        self._written = [record for record in self._written if name not in record.names]
        rests = [[other for other in group if other != name] for group in [*again, *self._groups]]
        self._groups = [group for group in rests if group]

    def _note_end(self, name: str, reason: str, *, is_writing: bool) -> None:
        """Leave out the variable that a child ended at, and those that would likely end it, too."""
        self._left_attempts -= 1
        if reason == snapshot_children.DIED:
            reason = _DIED if is_writing else _UNREADABLE
        self._lose(name, reason)
        kind = type(self._namespace.get(name))
        if any(kind is other for other in self._ended_kinds) and not _holds_others(kind):
            # Each would cost another attempt.
            passed = self._missing if self._groups is None else _names_in(self._checked)
            for other in {*self._names} - {*self._lost, *passed}:
                if type(self._namespace[other]) is kind:
                    self._lose(other, _ALIKE)
        self._ended_kinds.append(kind)

    def _value(self, name: str) -> Any:
        if name == snapshot_readers.STATE:
            return interpreter_state.collect()
        return self._namespace[name]

    def _is_needed_first(self, name: str) -> tuple[bool, bool]:
        """Return a key that puts first what others need when they are read."""
        value = None if name == snapshot_readers.STATE else self._namespace[name]
        is_module = name == snapshot_readers.STATE or issubclass(type(value), types.ModuleType)
        return not is_module, not is_module and not _is_definition(value)

    # In a child that writes.

    def _write(self, report: snapshot_children.Report) -> object:
        def note(message: snapshot_children.Message) -> None:
            report(message)
            self._receive(message)

        arrays = [value for value in self._namespace.values() if _is_array_with_memory(value)]
        if self._groups is None:
            self._try_all(arrays, note)
        used_bytes = sum(record.size() for record in [*self._checked, *self._written])
        files = snapshot_files.Writer(self._directory, self._number, self._max_bytes, used_bytes)
        while self._groups:
            self._write_group(self._groups[0], arrays, files, note)
        files.close()
        return arrays

    def _try_all(self, arrays: list[Any], note: snapshot_children.Report) -> None:
        """Pickle each variable alone, into nothing, and group those that share objects."""
        names = [snapshot_readers.STATE, *sorted(self._names, key=self._order)]
        names = [name for name in names if name not in self._lost]
        sharing = _Sharing(self._pickler(_Nowhere(), arrays, _is_small))
        for name in names:
            now = time.monotonic()
            is_new = name not in self._missing
            if is_new and (now > self._try_until or not self._left_attempts):
                continue
            until = self._try_until if is_new else self._until
            note(_step(name, until, is_last=name is names[-1]))
            pickler = self._pickler(_Nowhere(), arrays, _is_small)
            try:
                value = self._value(name)
                pickler.dump(value)
                if loss := pickler.losses.get(id(value)):
                    note(snapshot_children.Loss(name, ": ".join(filter(None, loss))))
                    continue
                missing = list(dict.fromkeys(what for what, _ in pickler.losses.values()))
                note(snapshot_children.Tried(name, missing[:_MAX_MISSING]))
                sharing.add(name, pickler)
            except Exception as error:
                # Whatever a type's own methods raise.
                note(snapshot_children.Loss(name, variable_pickler.reason(error)))
        names = [name for name in self._missing if name not in self._lost]
        # What lies behind one that no longer loads is lost with it: plain data come first.
        names.sort(
            key=lambda name: (
                name in sharing.with_code,
                self._is_needed_first(name),
                not self._is_data(name),
            )
        )
        groups = sharing.groups(names)
        note(
            snapshot_children.Grouped(
                sorted(groups, key=lambda group: max(map(self._order, group)))
            )
        )

    def _write_group(
        self,
        group: list[str],
        arrays: list[Any],
        files: snapshot_files.Writer,
        note: snapshot_children.Report,
    ) -> None:
        """Write a group, or lose one of its variables."""
        pickled = io.BytesIO()
        buffers: list[memoryview] = []

        def take(buffer: pickle.PickleBuffer) -> bool:
            if _is_small(buffer):
                return True
            buffers.append(buffer.raw())
            return False

        pickler = self._pickler(pickled, arrays, take)
        record = snapshot_files.Record(list(group))
        for name in group:
            note(_step(name, self._until))
            pickled.seek(0)
            pickled.truncate()
            buffers.clear()
            try:
                pickler.dump(self._value(name))
            except Exception as error:
                # It could be pickled alone; memory may be short now.
                note(snapshot_children.Loss(name, variable_pickler.reason(error)))
                return
            try:
                files.append(pickled.getbuffer(), buffers, record)
            except (OSError, snapshot_files.TooLargeError) as error:
                if snapshot_files.refusal(error):
                    raise
                note(snapshot_children.Loss(name, variable_pickler.reason(error)))
                return
            self._add_source(name, record.sources, note)
        note(snapshot_children.Written(record))

    def _add_source(
        self, name: str, sources: dict[str, str], note: snapshot_children.Report
    ) -> None:
        """Keep the source of a cell's function or class, for another Python and for tracebacks."""
        value: Any = self._namespace.get(name)
        if not _is_definition(value):
            return
        with contextlib.suppress(Exception):
            # A metaclass answers for its names; the source may be unknown.
            if value.__module__ != "__main__":
                return
            sources[name] = inspect.getsource(value)
            code = getattr(value, "__code__", None)
            if code is not None and code.co_filename not in self._cells:
                text = "".join(linecache.getlines(code.co_filename))
                if code.co_filename.startswith("<") and len(text) < _MAX_CELL_CHARACTERS:
                    note(snapshot_children.Cell(code.co_filename, text))

    def _is_data(self, name: str) -> bool:
        return _top_module(type(self._namespace.get(name))) in ("builtins", *_TABLES)

    def _pickler(self, file: Any, arrays: list[Any], take: Any) -> variable_pickler.VariablePickler:
        return variable_pickler.VariablePickler(file, self._namespace, arrays, take)

    def _order(self, name: str) -> tuple[bool, bool, int]:
        """Return a key that puts first what others need when they are read; then the smallest."""
        size = -1 if name == snapshot_readers.STATE else _size(self._namespace[name])
        return *self._is_needed_first(name), size

    # In a child that reads back.

    def _check(self, report: snapshot_children.Report) -> object:
        """Read what is written into a namespace of its own, as another kernel will."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        reader = snapshot_readers.SnapshotReader(
            self._directory, self._number, module.__dict__, is_check=True
        )
        # An earlier child has read some already; the others may need them.
        records = self._in_reading_order([*self._checked, *self._written])
        for record in records:
            for name in reader.read(record):
                report(_step(name, self._until, is_last=name is records[-1].names[-1]))
            if any(record is written for written in self._written):
                if name in reader.failed:
                    report(snapshot_children.Loss(name, reader.failed[name]))
                else:
                    report(snapshot_children.Checked(record.names))
        return reader

    def _in_reading_order(
        self, records: Iterable[snapshot_files.Record]
    ) -> list[snapshot_files.Record]:
        return sorted(records, key=lambda record: min(map(self._is_needed_first, record.names)))

    # In the first process, at the end.

    def _write_documents(self) -> None:
        """Write the index and the manifest of what is checked."""
        records = self._in_reading_order(self._checked)
        kept = [name for name in _names_in(records) if name != snapshot_readers.STATE]
        unreached = {*self._names} - {*kept, *self._lost}
        computed = {name for name in self._names if _is_computed(self._namespace[name])}
        for names in (computed, {*self._names}):
            if names & unreached and not names.intersection(kept):
                raise RuntimeError("no variable was reached")
        reason = snapshot_children.TOO_LATE if self._left_attempts > 0 else _UNTRIED
        index = snapshot_files.Index(records, self._cells)
        snapshot_files.write_index(self._directory, self._number, index)
        manifest = snapshot_files.Manifest(
            kept=kept,
            lost=self._lost | dict.fromkeys(sorted(unreached), reason),
            partly={name: ", ".join(self._missing[name]) for name in kept if self._missing[name]},
            blobs={digest: size for record in records for digest, size in record.blobs().items()},
        )
        snapshot_files.write_manifest(self._directory, self._number, manifest)


class _Sharing:
    """Finds out which variables share objects.

    Args:
        pickler: for what the libraries' own objects share with each other.

    Attributes:
        with_code: variables that need code of cells, which another Python cannot read.
    """

    def __init__(self, pickler: variable_pickler.VariablePickler) -> None:
        self.with_code: set[str] = set()
        self._first: dict[str, str] = {}
        self._owners: dict[int, str] = {}
        # Variables with too many objects to look at: they may share with any that has some.
        self._holders: list[str] = []
        self._is_crowded = False
        # No other object may get the id of one that was made for pickling.
        self._alive: list[object] = [pickler]
        pandas: Any = sys.modules.get("pandas")
        with contextlib.suppress(Exception):
            # Code may have changed the library. Every frame has some lists of its class.
            pickler.dump([pandas.DataFrame(), pandas.Series()])
        self._common = pickler.memo.copy().keys()

    def add(self, name: str, pickler: variable_pickler.VariablePickler) -> None:
        """Add a variable that was pickled alone."""
        is_large = sys.getsizeof(pickler) > _MAX_MEMO_BYTES
        if is_large or len(self._owners) > _MAX_SHAREABLE:
            self._is_crowded = True
            self._holders.append(name)
            self.with_code.add(name)
            return
        memo = {key: obj for key, (_, obj) in pickler.memo.copy().items()}
        if any(type(obj) is types.CodeType for obj in memo.values()):
            self.with_code.add(name)
        objects = {
            key: obj
            for key, obj in memo.items()
            if key not in self._common and variable_pickler.is_shareable(obj)
        }
        for shared in objects.keys() & self._owners.keys():
            self._join(name, self._owners[shared])
        self._owners |= dict.fromkeys(objects, name)
        self._alive.append(objects)
        if objects:
            self._holders.append(name)

    def groups(self, names: list[str]) -> list[list[str]]:
        """Return the variables that share objects in groups, each in the order of the names."""
        if self._is_crowded:
            for name in self._holders:
                self._join(name, self._holders[0])
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._find(name), []).append(name)
        return list(groups.values())

    def _join(self, name: str, other: str) -> None:
        own, root = self._find(name), self._find(other)
        if own != root:
            self._first[own] = root

    def _find(self, name: str) -> str:
        while name in self._first:
            name = self._first[name]
        return name


class _Nowhere:
    """Takes what a trial writes, and keeps nothing."""

    def write(self, data: Any) -> int:
        """Take a part of a pickle."""
        return len(data)


def _step(name: str, until: float, *, is_last: bool = False) -> snapshot_children.Step:
    """Return the step to a variable, which leaves some time to others that wait behind it."""
    left = until - time.monotonic()
    return snapshot_children.Step(name, left if is_last else left * _SHARE)


def _names_in(records: Collection[snapshot_files.Record]) -> list[str]:
    return [name for record in records for name in record.names]


def _is_small(buffer: pickle.PickleBuffer) -> bool:
    return buffer.raw().nbytes < snapshot_files.OUT_OF_BAND_BYTES


def _is_array_with_memory(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.base is None


def _is_definition(value: Any) -> bool:
    # What it says of its class itself may be another, or an error: proxies do so.
    return issubclass(type(value), (types.FunctionType, type))


def _is_computed(value: Any) -> bool:
    """Return whether a value is more than an import or a definition, which are soon made again."""
    return not issubclass(type(value), (types.ModuleType, types.FunctionType, type))


def _holds_others(kind: type) -> bool:
    """Return whether objects of a type mostly hold others: Python's own, tables and classes."""
    return issubclass(kind, type) or _top_module(kind) in (*_TABLES, *sys.stdlib_module_names)


def _top_module(kind: type) -> str:
    with contextlib.suppress(AttributeError):
        # A class may have whatever there, or nothing. Its metaclass is not asked.
        module = type.__dict__["__module__"].__get__(kind)
        return module.partition(".")[0] if type(module) is str else ""
    return ""


def _size(value: Any) -> int:
    """Return about how many bytes a value has."""
    kind = type(value)
    if _top_module(kind) in _TABLES:
        with contextlib.suppress(Exception):
            # Whatever a library says: it is for the order only.
            if hasattr(value, "nbytes") and not hasattr(value, "memory_usage"):
                return int(value.nbytes)
            # pandas tells it only after some milliseconds, polars not at all.
            return _NUMBER_BYTES * int(math.prod(value.shape))
    if kind in (str, bytes, bytearray, list, tuple, dict, set):
        return 64 * len(value)
    return 0
