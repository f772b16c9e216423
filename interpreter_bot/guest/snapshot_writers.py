"""Writing of variables as one generation, in children, until all that it says it holds comes back.

1. Each variable is pickled alone into nothing. That finds what fails, what it lacks, and which
   variables share objects. 2. Each group of variables that share is written, the smallest first.
3. All groups are read back. A child that ends or hangs at a variable is begun again without it, and
a group of which a variable does not come back is written again without that.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import linecache
import math
import os
import pickle
import platform
import sys
import time
import types
from collections.abc import Iterable, Iterator
from typing import Any

from . import (
    interpreter_state,
    snapshot_children,
    snapshot_files,
    snapshot_readers,
    variable_pickler,
)

FORMAT = 2
_MAX_ATTEMPTS = 10
# The share of the remaining time that one variable may take while others wait behind it.
_SHARE = 0.5
# In all, in relation to the time in which variables are tried for the first time.
_LONGEST = 2.5
# Looking for shared objects takes one or two hundred bytes an object.
_MAX_MEMO_BYTES = 8 * 1024 * 1024
_MAX_SHAREABLE = 500_000
_MAX_CELL_CHARACTERS = 1_000_000
_MAX_MISSING = 10
# The bot reads this many entries of a manifest; further ones are only counted.
_MAX_MANIFEST_BYTES = 256 * 1024
_LISTED = (200, 50, 10, 0)
_MAX_LISTED_CHARACTERS = 40
_NUMBER_BYTES = 8
_NAME_BYTES = 16
# Libraries whose objects say how large they are.
_TABLES = ("pandas", "numpy", "polars", "pyarrow")

_DIED = "saving it ended Python"
_UNREADABLE = "reading it back ended Python"
_UNTRIED = "it was not tried, as too many others failed"
_ALIKE = "it was not tried, as two others of its type could not be saved"


class SnapshotWriter:
    """Saves one generation.

    Its state is the same here and in each child, which tells of every change.

    Args:
        namespace: the session's.
        names: of its variables.
        directory: of its snapshots.
        number: of the generation.
        seconds: after which no further variable is begun.
        max_bytes: that all pickles and buffers may have.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        names: list[str],
        directory: str,
        number: int,
        *,
        seconds: float,
        max_bytes: int,
    ) -> None:
        self._namespace, self._names = namespace, names
        self._directory, self._number, self._max_bytes = directory, number, max_bytes
        begun = time.monotonic()
        self._try_until = begun + seconds
        self._until = begun + seconds * _LONGEST
        self._left_attempts = _MAX_ATTEMPTS
        self._lost: dict[str, str] = {}
        self._missing: dict[str, list[str]] = {}
        # Of those that are to be written; None before that is known.
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
        variable_pickler.name_classes_by(os.urandom(_NAME_BYTES).hex())
        while self._left_attempts >= 0 and time.monotonic() < self._until:
            ending = snapshot_children.run(self._work, self._receive, self._until)
            if ending.errno:
                raise OSError(ending.errno, ending.reason)
            if ending.reason and not ending.at:
                raise RuntimeError(f"nothing was begun: {ending.reason}")
            if ending.reason:
                self._note_end(ending)
            elif not self._groups:
                break
        self._write_documents()

    # In the parent, and in a child.

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
            case snapshot_children.Checked():
                self._checked.append(self._written.pop(0))
            case snapshot_children.Cell(file_name, text):
                self._cells[file_name] = text

    def _lose(self, name: str, reason: str) -> None:
        """Leave a variable out; what was written or is to be written with it is written without."""
        self._lost[name] = reason
        if self._groups is None:
            return
        again = [record.names for record in self._written if name in record.names]
        self._written = [record for record in self._written if name not in record.names]
        rests = [[one for one in group if one != name] for group in [*again, *self._groups]]
        self._groups = [group for group in rests if group]

    def _note_end(self, ending: snapshot_children.Ending) -> None:
        """Leave out the variable that a child ended at, and those that would likely end it, too."""
        self._left_attempts -= 1
        reason = ending.reason
        if reason == snapshot_children.DIED:
            is_written = any(ending.at in record.names for record in self._written)
            reason = _UNREADABLE if is_written else _DIED
        self._lose(ending.at, reason)
        kind = type(self._namespace.get(ending.at))
        if any(kind is one for one in self._ended_kinds) and not _holds_others(kind):
            # Each would cost another attempt.
            passed = self._missing if self._groups is None else _names_in(self._checked)
            for name in {*self._names} - {*self._lost, *passed}:
                if type(self._namespace[name]) is kind:
                    self._lose(name, _ALIKE)
        self._ended_kinds.append(kind)

    # In a child.

    def _work(self, report: snapshot_children.Report) -> object:
        def tell(message: snapshot_children.Message) -> None:
            report(message)
            self._receive(message)

        arrays = [value for value in self._namespace.values() if _is_array_with_memory(value)]
        if self._groups is None:
            self._try_all(arrays, tell)
        used_bytes = sum(record.size() for record in [*self._checked, *self._written])
        files = snapshot_files.Writer(self._directory, self._number, self._max_bytes, used_bytes)
        while self._groups:
            self._write_group(self._groups[0], arrays, files, tell)
        files.close()
        return self._check(tell)

    def _try_all(self, arrays: list[Any], tell: snapshot_children.Report) -> None:
        """Pickle each variable alone, into nothing, and group those that share objects."""
        names = [snapshot_readers.STATE, *sorted(self._names, key=self._order)]
        names = [name for name in names if name not in self._lost]
        sharing = _Sharing()
        for name in names:
            now = time.monotonic()
            is_new = name not in self._missing
            if is_new and (now > self._try_until or not self._left_attempts):
                continue
            until = self._try_until if is_new else self._until
            tell(_step(name, until, is_last=name is names[-1]))
            pickler = self._pickler(_Nowhere(), arrays, _is_small)
            try:
                value = self._value(name)
                pickler.dump(value)
                if loss := pickler.losses.get(id(value)):
                    tell(snapshot_children.Loss(name, ": ".join(filter(None, loss))))
                    continue
                missing = list(dict.fromkeys(what for what, _ in pickler.losses.values()))
                tell(snapshot_children.Tried(name, missing[:_MAX_MISSING]))
                sharing.add(name, pickler)
            except Exception as error:
                # Whatever a type's own methods raise.
                tell(snapshot_children.Loss(name, variable_pickler.reason(error)))
        names = [name for name in self._missing if name not in self._lost]
        # In a group, what is behind one that no longer loads is lost with it: data come first.
        names.sort(key=lambda name: (self._order(name)[:2], not self._is_data(name)))
        groups = sharing.groups(names)
        tell(snapshot_children.Grouped(sorted(groups, key=lambda one: max(map(self._order, one)))))

    def _write_group(
        self,
        group: list[str],
        arrays: list[Any],
        files: snapshot_files.Writer,
        tell: snapshot_children.Report,
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
        record = snapshot_files.Record(list(group), [], [], {})
        for name in group:
            tell(_step(name, self._until))
            pickled.seek(0)
            pickled.truncate()
            buffers.clear()
            try:
                pickler.dump(self._value(name))
            except Exception as error:
                # It could be pickled alone; memory may be short now.
                tell(snapshot_children.Loss(name, variable_pickler.reason(error)))
                return
            try:
                files.append(pickled.getbuffer(), buffers, record)
            except (OSError, snapshot_files.TooLargeError) as error:
                if snapshot_files.refusal(error):
                    raise
                tell(snapshot_children.Loss(name, variable_pickler.reason(error)))
                return
            self._add_source(name, record.sources, tell)
        tell(snapshot_children.Written(record))

    def _add_source(
        self, name: str, sources: dict[str, str], tell: snapshot_children.Report
    ) -> None:
        """Keep the source of a cell's function or class, for another Python and for tracebacks."""
        value = self._value(name)
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
                    tell(snapshot_children.Cell(code.co_filename, text))

    def _check(self, tell: snapshot_children.Report) -> object:
        """Read back what is written into a namespace of its own, as another kernel will."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        variable_pickler.forget_classes()
        reader = snapshot_readers.SnapshotReader(
            self._directory, self._number, module.__dict__, is_check=True
        )
        # An earlier child has read the first ones; the others may need them.
        records = [*self._checked, *self._written]
        is_checked = len(self._checked)
        for position, record in enumerate(records):
            for name in reader.read(record):
                tell(_step(name, self._until, is_last=name is records[-1].names[-1]))
            if position < is_checked:
                continue
            if name in reader.failed:
                tell(snapshot_children.Loss(name, reader.failed[name]))
            else:
                tell(snapshot_children.Checked(name))
        return reader

    def _pickler(self, file: Any, arrays: list[Any], take: Any) -> variable_pickler.VariablePickler:
        return variable_pickler.VariablePickler(file, self._namespace, arrays, take)

    def _value(self, name: str) -> Any:
        if name == snapshot_readers.STATE:
            return interpreter_state.collect()
        return self._namespace[name]

    def _is_data(self, name: str) -> bool:
        return _top_module(type(self._value(name))) in ("builtins", *_TABLES)

    def _order(self, name: str) -> tuple[bool, bool, int]:
        """Return a key that puts first what others need when they are read; then the smallest."""
        if name == snapshot_readers.STATE:
            return False, False, -1
        value = self._namespace[name]
        is_module = issubclass(type(value), types.ModuleType)
        return not is_module, not _is_definition(value), _size(value)

    # In the parent, at the end.

    def _write_documents(self) -> None:
        """Write the index and the manifest of what is checked."""
        kept = [name for name in _names_in(self._checked) if name != snapshot_readers.STATE]
        unreached = {*self._names} - {*kept, *self._lost}
        computed = {name for name in self._names if _is_computed(self._namespace[name])}
        for names in (computed, {*self._names}):
            if names & unreached and not names.intersection(kept):
                raise RuntimeError("no variable was reached")
        reason = snapshot_children.TOO_LATE if self._left_attempts > 0 else _UNTRIED
        lost = self._lost | dict.fromkeys(sorted(unreached), reason)
        partly = {name: ", ".join(self._missing[name]) for name in kept if self._missing[name]}
        blobs: dict[str, int] = {}
        for record in self._checked:
            blobs |= record.blobs()
        index = {
            "python": platform.python_version_tuple()[:2],
            "records": [vars(record) for record in self._checked],
            "cells": self._cells,
        }
        snapshot_files.write_document(self._directory, self._number, "index.json", index)
        snapshot_files.sync_directory(self._directory)
        write_manifest(
            self._directory, self._number, kept=kept, lost=lost, partly=partly, blobs=blobs
        )


class _Sharing:
    """Finds out which variables share objects."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._owners: dict[int, str] = {}
        # No other object may get the id of one that was made for pickling.
        self._alive: list[object] = []
        # Variables with too many objects to look at: they may share with any that has some.
        self._holders: list[str] = []
        self._is_crowded = False
        # Every frame has a list of its class, which subclasses replace.
        pandas: Any = sys.modules.get("pandas")
        kinds = (pandas.DataFrame, pandas.Series) if pandas else ()
        self._common = {id(kind._metadata) for kind in kinds}

    def add(self, name: str, pickler: variable_pickler.VariablePickler) -> None:
        """Add a variable that was pickled alone."""
        is_large = sys.getsizeof(pickler) > _MAX_MEMO_BYTES
        if is_large or len(self._owners) > _MAX_SHAREABLE:
            self._is_crowded = True
            self._holders.append(name)
            return
        objects = {
            key: obj
            for key, (_, obj) in pickler.memo.copy().items()
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


def write_manifest(
    directory: str,
    number: int,
    *,
    kept: list[str] | None = None,
    lost: dict[str, str] | None = None,
    partly: dict[str, str] | None = None,
    blobs: dict[str, int] | None = None,
    problem: str = "",
    is_disk_full: bool = False,
) -> None:
    """Write what the bot reads of a generation, which ends the saving.

    Args:
        directory: of the session's snapshots.
        number: of the generation.
        kept: names.
        lost: what could not be kept, and why.
        partly: of what a part could not be kept, and which.
        blobs: sizes of the large buffers that it needs.
        problem: why nothing was saved, if nothing was.
        is_disk_full: whether that is why.
    """
    kept, lost, partly = kept or [], lost or {}, partly or {}
    for most in _LISTED:
        manifest = {
            "format": FORMAT,
            "problem": problem,
            "is_disk_full": is_disk_full,
            "kept": [name[:_MAX_LISTED_CHARACTERS] for name in kept[:most]],
            "kept_count": len(kept),
            "lost": dict(shortened(lost, most)),
            "lost_count": len(lost),
            "partly": dict(shortened(partly, most)),
            "partly_count": len(partly),
            "blobs": blobs or {},
        }
        if len(snapshot_files.encode(manifest)) <= _MAX_MANIFEST_BYTES:
            break
    snapshot_files.write_document(directory, number, "manifest.json", manifest)


def shortened(words: dict[str, str], most: int) -> Iterator[tuple[str, str]]:
    """Yield the first names with words for them, both in a length that the bot reads."""
    for name, text in itertools.islice(words.items(), most):
        yield name[:_MAX_LISTED_CHARACTERS], text[: variable_pickler.MAX_REASON_CHARACTERS]


def _step(name: str, until: float, *, is_last: bool = False) -> snapshot_children.Step:
    """Return the step to a variable, which leaves some time to others that wait behind it."""
    left = until - time.monotonic()
    return snapshot_children.Step(name, left if is_last else left * _SHARE)


def _names_in(records: Iterable[snapshot_files.Record]) -> list[str]:
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
