"""Saves a session's variables as a generation, after reading every one of them back.

1. Each variable is pickled alone, without storing the result. This finds failures, missing
   parts, and variables that share objects.
2. Each group of variables that share objects is written, small groups first.
3. Another child reads all groups back.

If a child dies or hangs at a variable, another child goes on without the variable. If a variable of
a group cannot be read back, the group is written again without it.
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
    dataframe_displays,
    interpreter_state,
    snapshot_children,
    snapshot_files,
    snapshot_readers,
    variable_pickler,
)

# Variables that IPython defines while it runs cells.
_HISTORY = re.compile(r"_+|_i+|_[iod]h|_i?\d+|_exit_code|In|Out|__\w+__")
_MAX_NAME_CHARACTERS = 200
# Each costs a fork and a trial of all variables; the time is limited, too.
MAX_ATTEMPTS = 30
# Maximum share of the remaining time for one variable, if others follow.
_MAX_SHARE_OF_TIME = 0.5
# The time for all work, and the time until the process is killed, as multiples of the time for
# trying variables. The bot (`kernels/snapshots`) waits until the process is killed.
_MAX_TIME_FACTOR = 2.5
_ALARM_FACTOR = 3
# Finding shared objects takes 100 to 200 bytes of memory for each object.
_MAX_MEMO_BYTES = 8 * 1024 * 1024
_MAX_SHAREABLE_OBJECTS = 500_000
_MAX_CELL_CHARACTERS = 1_000_000
_MAX_MISSING_PARTS = 10
_BYTES_PER_VALUE = 8
# Libraries with tables and arrays, whose size is easy to find.
_SIZED_LIBRARIES = ("pandas", "numpy", "polars", "pyarrow")

_SAVING_ENDED_PYTHON = "saving it ended Python"
_READING_BACK_ENDED_PYTHON = "reading it back ended Python"
_TOO_MANY_FAILED = "it was not tried, as too many others failed"

Namespace = dict[str, Any]


def select_names(namespace: Namespace, hidden: Mapping[str, Any]) -> list[str]:
    """Return the names of the variables to save, without those that every session starts with."""
    return [
        name
        for name in list(namespace)
        if type(name) is str
        and len(name) <= _MAX_NAME_CHARACTERS
        and name.isidentifier()
        and not _HISTORY.fullmatch(name)
        and not (name in hidden and namespace[name] is hidden[name])
    ]


def start_saving(
    namespace: Namespace,
    names: list[str],
    directory: str,
    generation: int,
    *,
    seconds: float,
    max_bytes: int,
) -> int:
    """Start a process that saves variables as they are now, and writes the manifest at the end.

    Args:
        namespace: of the session.
        names: of the variables to save.
        directory: of the session's snapshots.
        generation: its number; it must be new.
        seconds: time for trying variables.
        max_bytes: of all pickles and buffers.

    Returns:
        The pid of the process, for `snapshot_children.kill_leader`.
    """
    attempts = _Attempts(namespace, names, directory, generation, seconds, max_bytes)

    def write_failure(error: BaseException) -> None:
        problem = variable_pickler.describe_error(error)
        manifest = snapshot_files.Manifest(
            problem=problem, is_disk_full=snapshot_files.is_disk_full(error)
        )
        snapshot_files.write_manifest(directory, generation, manifest)

    return snapshot_children.start_leader(attempts.save, write_failure, _ALARM_FACTOR * seconds)


class _Attempts:
    """Attempts to save a generation, repeated until all remaining variables can be saved.

    Children report every change of state, so the leader and each child have the same state.
    """

    def __init__(
        self,
        namespace: Namespace,
        names: list[str],
        directory: str,
        generation: int,
        seconds: float,
        max_bytes: int,
    ) -> None:
        self._namespace, self._names = namespace, names
        self._directory, self._generation, self._max_bytes = directory, generation, max_bytes
        now = time.monotonic()
        self._trial_deadline = now + seconds
        self._deadline = now + seconds * _MAX_TIME_FACTOR
        self._remaining_attempts = MAX_ATTEMPTS
        self._losses: dict[str, str] = {}
        self._missing_parts: dict[str, list[str]] = {}
        # Groups of variables to write; None until all variables were tried.
        self._groups_to_write: list[list[str]] | None = None
        self._unchecked_records: list[snapshot_files.Record] = []
        self._checked_records: list[snapshot_files.Record] = []
        self._cell_texts: dict[str, str] = {}

    def save(self) -> None:
        """Save as many variables as possible in time.

        Raises:
            OSError: the system refused disk space or descriptors.
            RuntimeError: no computed variable was reached; keep the earlier snapshot instead.
        """
        snapshot_files.create_generation(self._directory, self._generation)
        while self._remaining_attempts >= 0 and time.monotonic() < self._deadline:
            is_writing = self._groups_to_write is None or bool(self._groups_to_write)
            if not is_writing and not self._unchecked_records:
                break
            work = self._write_in_child if is_writing else self._check_in_child
            report = snapshot_children.run_in_child(work, self._apply_message, self._deadline)
            if report.errno:
                raise OSError(report.errno, report.reason)
            if report.reason and not report.name:
                raise RuntimeError(f"nothing was tried: {report.reason}")
            if report.reason:
                self._handle_child_end(report.name, report.reason, is_writing=is_writing)
        self._write_documents()

    # In the leader and its children.

    def _apply_message(self, message: snapshot_children.Message) -> None:
        match message:
            case snapshot_children.Trial(name, missing):
                self._missing_parts[name] = missing
            case snapshot_children.Loss(name, reason):
                self._record_loss(name, reason)
            case snapshot_children.Grouping(groups):
                self._groups_to_write = groups
            case snapshot_children.WrittenGroup(record):
                self._groups_to_write = [
                    group for group in self._groups_to_write or () if group != record.names
                ]
                self._unchecked_records.append(record)
            case snapshot_children.CellText(file_name, text):
                self._cell_texts[file_name] = text
            case snapshot_children.CheckedRecord(names):
                self._checked_records += [
                    record for record in self._unchecked_records if record.names == names
                ]
                self._unchecked_records = [
                    record for record in self._unchecked_records if record.names != names
                ]

    def _record_loss(self, name: str, reason: str) -> None:
        """Leave a variable out, and write its group (again) without it."""
        self._losses[name] = reason
        if self._groups_to_write is None:
            return
        rewritten_groups = [
            record.names for record in self._unchecked_records if name in record.names
        ]
        self._unchecked_records = [
            record for record in self._unchecked_records if name not in record.names
        ]
        remaining_groups = [
            [other_name for other_name in group if other_name != name]
            for group in [*rewritten_groups, *self._groups_to_write]
        ]
        self._groups_to_write = [group for group in remaining_groups if group]

    def _handle_child_end(self, name: str, reason: str, *, is_writing: bool) -> None:
        """Leave out the variable at which a child died."""
        self._remaining_attempts -= 1
        if reason == snapshot_children.DIED:
            reason = _SAVING_ENDED_PYTHON if is_writing else _READING_BACK_ENDED_PYTHON
        self._record_loss(name, reason)

    def _get_value(self, name: str) -> Any:
        if name == snapshot_readers.STATE_NAME:
            state = interpreter_state.collect()
            with contextlib.suppress(Exception):
                # Any exception: a table may be of the user's class.
                tables = dataframe_displays.collect_handles(self._namespace)
                state[snapshot_readers.TABLES_KEY] = tables
            return state
        return self._namespace[name]

    def _dependency_key(self, name: str) -> tuple[bool, bool]:
        """Return a sort key for reading: modules, then definitions, then other variables."""
        value = None if name == snapshot_readers.STATE_NAME else self._namespace[name]
        is_module = name == snapshot_readers.STATE_NAME or issubclass(type(value), types.ModuleType)
        return not is_module, not is_module and not _is_definition(value)

    # In a child that writes.

    def _write_in_child(self, report: snapshot_children.MessageHandler) -> object:
        def report_and_apply(message: snapshot_children.Message) -> None:
            report(message)
            self._apply_message(message)

        arrays = [value for value in self._namespace.values() if _is_array_with_memory(value)]
        if self._groups_to_write is None:
            self._try_variables(arrays, report_and_apply)
        used_bytes = sum(
            record.size() for record in [*self._checked_records, *self._unchecked_records]
        )
        writer = snapshot_files.Writer(
            self._directory, self._generation, self._max_bytes, used_bytes
        )
        while self._groups_to_write:
            self._write_group(self._groups_to_write[0], arrays, writer, report_and_apply)
        writer.close()
        return arrays

    def _try_variables(self, arrays: list[Any], report: snapshot_children.MessageHandler) -> None:
        """Pickle each variable alone without storing it, and group those that share objects."""
        names = [snapshot_readers.STATE_NAME, *sorted(self._names, key=self._trial_key)]
        names = [name for name in names if name not in self._losses]
        sharing = _SharingGroups(self._create_pickler(_NullFile(), arrays, _is_small))
        for name in names:
            now = time.monotonic()
            is_new = name not in self._missing_parts
            if is_new and (now > self._trial_deadline or not self._remaining_attempts):
                continue
            deadline = self._trial_deadline if is_new else self._deadline
            report(_create_step(name, deadline, is_last=name is names[-1]))
            pickler = self._create_pickler(_NullFile(), arrays, _is_small)
            try:
                value = self._get_value(name)
                pickler.dump(value)
                if loss := pickler.losses.get(id(value)):
                    report(snapshot_children.Loss(name, ": ".join(filter(None, loss))))
                    continue
                missing_parts = list(
                    dict.fromkeys(description for description, _ in pickler.losses.values())
                )
                report(snapshot_children.Trial(name, missing_parts[:_MAX_MISSING_PARTS]))
                sharing.add(name, pickler)
            except Exception as error:
                # Any exception, because the variable's methods may raise it.
                report(snapshot_children.Loss(name, variable_pickler.describe_error(error)))
        names = [name for name in self._missing_parts if name not in self._losses]
        # If a variable fails to load, later ones of its group are lost, too. Plain data is first.
        names.sort(
            key=lambda name: (
                name in sharing.names_with_code,
                self._dependency_key(name),
                not self._is_library_data(name),
            )
        )
        groups = sharing.group_names(names)
        report(
            snapshot_children.Grouping(
                sorted(groups, key=lambda group: max(map(self._trial_key, group)))
            )
        )

    def _write_group(
        self,
        group: list[str],
        arrays: list[Any],
        writer: snapshot_files.Writer,
        report: snapshot_children.MessageHandler,
    ) -> None:
        """Write a group, or report the loss of one of its variables."""
        pickled = io.BytesIO()
        buffers: list[memoryview] = []

        def take_buffer(buffer: pickle.PickleBuffer) -> bool:
            if _is_small(buffer):
                return True
            buffers.append(buffer.raw())
            return False

        pickler = self._create_pickler(pickled, arrays, take_buffer)
        record = snapshot_files.Record(list(group))
        for name in group:
            report(_create_step(name, self._deadline))
            pickled.seek(0)
            pickled.truncate()
            buffers.clear()
            try:
                pickler.dump(self._get_value(name))
            except Exception as error:
                # The variable was pickled before, but now memory may be short.
                report(snapshot_children.Loss(name, variable_pickler.describe_error(error)))
                return
            try:
                writer.append(pickled.getbuffer(), buffers, record)
            except (OSError, snapshot_files.TooLargeError) as error:
                if snapshot_files.find_refusal_errno(error):
                    raise
                report(snapshot_children.Loss(name, variable_pickler.describe_error(error)))
                return
            self._add_source(name, record.sources, report)
        report(snapshot_children.WrittenGroup(record))

    def _add_source(
        self, name: str, sources: dict[str, str], report: snapshot_children.MessageHandler
    ) -> None:
        """Store the source of a cell's function or class, for other Pythons and tracebacks."""
        value: Any = self._namespace.get(name)
        if not _is_definition(value):
            return
        with contextlib.suppress(Exception):
            # The source may be unknown, and a metaclass may raise anything.
            if value.__module__ != "__main__":
                return
            sources[name] = inspect.getsource(value)
            code = getattr(value, "__code__", None)
            if code is not None and code.co_filename not in self._cell_texts:
                text = "".join(linecache.getlines(code.co_filename))
                if code.co_filename.startswith("<") and len(text) < _MAX_CELL_CHARACTERS:
                    report(snapshot_children.CellText(code.co_filename, text))

    def _is_library_data(self, name: str) -> bool:
        return _find_library(type(self._namespace.get(name))) in ("builtins", *_SIZED_LIBRARIES)

    def _create_pickler(
        self, file: Any, arrays: list[Any], take_buffer: Any
    ) -> variable_pickler.VariablePickler:
        return variable_pickler.VariablePickler(file, self._namespace, arrays, take_buffer)

    def _trial_key(self, name: str) -> tuple[bool, bool, int]:
        """Return a sort key for trials: by dependency, then by size."""
        size = -1 if name == snapshot_readers.STATE_NAME else _estimate_size(self._namespace[name])
        return *self._dependency_key(name), size

    # In a child that checks.

    def _check_in_child(self, report: snapshot_children.MessageHandler) -> object:
        """Read the records into a new namespace, as the session's next kernel will."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        reader = snapshot_readers.SnapshotReader(
            self._directory, self._generation, module.__dict__, is_check=True
        )
        # Read checked records, too, because others may need their variables.
        records = self._sort_for_reading([*self._checked_records, *self._unchecked_records])
        for record in records:
            for name in reader.read(record):
                report(_create_step(name, self._deadline, is_last=name is records[-1].names[-1]))
            if any(record is unchecked for unchecked in self._unchecked_records):
                if name in reader.failures:
                    report(snapshot_children.Loss(name, reader.failures[name]))
                else:
                    report(snapshot_children.CheckedRecord(record.names))
        return reader

    def _sort_for_reading(
        self, records: Iterable[snapshot_files.Record]
    ) -> list[snapshot_files.Record]:
        return sorted(records, key=lambda record: min(map(self._dependency_key, record.names)))

    # In the leader, at the end.

    def _write_documents(self) -> None:
        """Write the index and the manifest of the checked records."""
        records = self._sort_for_reading(self._checked_records)
        kept_names = [name for name in _list_names(records) if name != snapshot_readers.STATE_NAME]
        unreached_names = {*self._names} - {*kept_names, *self._losses}
        computed_names = {name for name in self._names if _is_computed(self._namespace[name])}
        for names in (computed_names, {*self._names}):
            if names & unreached_names and not names.intersection(kept_names):
                raise RuntimeError("no variable was reached")
        reason = snapshot_children.TOO_LATE if self._remaining_attempts > 0 else _TOO_MANY_FAILED
        index = snapshot_files.Index(records, self._cell_texts)
        snapshot_files.write_index(self._directory, self._generation, index)
        manifest = snapshot_files.Manifest(
            kept_names=kept_names,
            loss_reasons=self._losses | dict.fromkeys(sorted(unreached_names), reason),
            missing_parts={
                name: ", ".join(self._missing_parts[name])
                for name in kept_names
                if self._missing_parts[name]
            },
            blobs={digest: size for record in records for digest, size in record.blobs().items()},
        )
        snapshot_files.write_manifest(self._directory, self._generation, manifest)


class _SharingGroups:
    """Groups of variables that share objects, as a union-find structure.

    Args:
        pickler: used to find objects that all tables of pandas share.

    Attributes:
        names_with_code: of variables with code of cells, which no other version of Python can read.
    """

    def __init__(self, pickler: variable_pickler.VariablePickler) -> None:
        self.names_with_code: set[str] = set()
        self._parents: dict[str, str] = {}  # links of the union-find structure, by variable
        self._owners: dict[int, str] = {}  # by an object's id, the first variable that has it
        # Names of variables with shareable objects. Above a limit, all of them form one group.
        self._names_with_shareable: list[str] = []
        self._is_over_limit = False
        # Objects are identified by their ids, so temporary ones must be kept alive.
        self._keep_alive: list[object] = [pickler]
        pandas: Any = sys.modules.get("pandas")
        with contextlib.suppress(Exception):
            # All tables share some lists of their class, whose ids are in the memo of empty tables.
            # Any exception, because code may have changed the library.
            pickler.dump([pandas.DataFrame(), pandas.Series()])
        self._common_ids = pickler.memo.copy().keys()

    def add(self, name: str, pickler: variable_pickler.VariablePickler) -> None:
        """Add a variable that was pickled alone."""
        is_large = sys.getsizeof(pickler) > _MAX_MEMO_BYTES
        if is_large or len(self._owners) > _MAX_SHAREABLE_OBJECTS:
            self._is_over_limit = True
            self._names_with_shareable.append(name)
            self.names_with_code.add(name)
            return
        memo = {key: obj for key, (_, obj) in pickler.memo.copy().items()}
        if any(type(obj) is types.CodeType for obj in memo.values()):
            self.names_with_code.add(name)
        objects = {
            key: obj
            for key, obj in memo.items()
            if key not in self._common_ids and variable_pickler.is_shareable(obj)
        }
        for shared_id in objects.keys() & self._owners.keys():
            self._union(name, self._owners[shared_id])
        self._owners |= dict.fromkeys(objects, name)
        self._keep_alive.append(objects)
        if objects:
            self._names_with_shareable.append(name)

    def group_names(self, names: list[str]) -> list[list[str]]:
        """Return the groups of variables that share objects, each in the order of `names`."""
        if self._is_over_limit:
            for name in self._names_with_shareable:
                self._union(name, self._names_with_shareable[0])
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._find_root(name), []).append(name)
        return list(groups.values())

    def _union(self, name: str, other_name: str) -> None:
        own_root, other_root = self._find_root(name), self._find_root(other_name)
        if own_root != other_root:
            self._parents[own_root] = other_root

    def _find_root(self, name: str) -> str:
        while name in self._parents:
            name = self._parents[name]
        return name


class _NullFile:
    """File that drops what is written."""

    def write(self, data: Any) -> int:
        return len(data)


def _create_step(name: str, deadline: float, *, is_last: bool = False) -> snapshot_children.Step:
    """Return the message for the next variable, with a time limit that leaves time for others."""
    remaining_seconds = deadline - time.monotonic()
    return snapshot_children.Step(
        name, remaining_seconds if is_last else remaining_seconds * _MAX_SHARE_OF_TIME
    )


def _list_names(records: Collection[snapshot_files.Record]) -> list[str]:
    return [name for record in records for name in record.names]


def _is_small(buffer: pickle.PickleBuffer) -> bool:
    return buffer.raw().nbytes < snapshot_files.MIN_OUT_OF_BAND_BYTES


def _is_array_with_memory(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.base is None


def _is_definition(value: Any) -> bool:
    # Not isinstance(), as proxies may claim another class or raise an error.
    return issubclass(type(value), (types.FunctionType, type))


def _is_computed(value: Any) -> bool:
    """Return whether a value is neither a module nor a definition, which are quickly recreated."""
    return not issubclass(type(value), (types.ModuleType, types.FunctionType, type))


def _find_library(kind: type) -> str:
    with contextlib.suppress(AttributeError):
        # This bypasses the metaclass. The attribute may be missing or of any type.
        module = type.__dict__["__module__"].__get__(kind)
        return module.partition(".")[0] if type(module) is str else ""
    return ""


def _estimate_size(value: Any) -> int:
    """Estimate the size of a value in bytes."""
    kind = type(value)
    if _find_library(kind) in _SIZED_LIBRARIES:
        with contextlib.suppress(Exception):
            # Any exception: the size only determines the order.
            if hasattr(value, "nbytes") and not hasattr(value, "memory_usage"):
                return int(value.nbytes)
            # pandas needs milliseconds for the exact size, and polars does not know it.
            return _BYTES_PER_VALUE * int(math.prod(value.shape))
    if kind in (str, bytes, bytearray, list, tuple, dict, set):
        return 64 * len(value)
    return 0
