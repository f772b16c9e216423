"""A pickler for the variables of a session: what cannot be kept is replaced where it lies.

Functions of cells are bound to the new namespace rather than to a copy of the old one, and share
the variables of an outer function as before. An object that cannot be pickled becomes a `Lost` in
its place, so that a dict of models with a generator somewhere inside still comes back. A view of an
array that is kept is kept as a view. cloudpickle does the rest: classes of cells above all.
"""

from __future__ import annotations

import _thread
import contextlib
import datetime
import decimal
import enum
import functools
import importlib.util
import io
import marshal
import multiprocessing.process
import os
import pathlib
import pickle
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle

from . import snapshot_files

PROTOCOL = 5
# Pickles name what rebuilds an object by this module: the real one's name depends on the release.
_MODULE = "interpreter_bot_variables"
_TOO_DEEP = "it is nested too deeply"

# Objects of these types cannot be kept; people read the words.
_UNKEEPABLE: dict[type, str] = {
    types.GeneratorType: "a generator",
    types.CoroutineType: "a coroutine",
    types.AsyncGeneratorType: "an asynchronous generator",
    types.FrameType: "a frame",
    types.TracebackType: "a traceback",
    threading.Thread: "a thread",
    subprocess.Popen: "a process",
    multiprocessing.process.BaseProcess: "a process",
    socket.socket: "a socket",
    threading.local: "a thread's storage",
    sqlite3.Cursor: "a database cursor",
    re.Match: "a match",
    weakref.ReferenceType: "a weak reference",
}
_WORDS = {"DuckDBPyConnection": "a duckdb connection", "DuckDBPyRelation": "a duckdb relation"}
_CONNECTION_STATE = ("isolation_level", "row_factory", "text_factory")
_CACHED_FUNCTION = type(functools.lru_cache(lambda: None))
# What a function has beside its code, its namespace and the variables of outer functions.
_FUNCTION_ATTRIBUTES = (
    *("__dict__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    *("__defaults__", "__kwdefaults__"),
    *(["__type_params__"] if hasattr(types.FunctionType, "__type_params__") else ()),
)
# Two variables may as well have equal objects of these types as the same one.
_VALUES = (
    *(int, float, complex, bool, type(None), range, slice, tuple, frozenset, enum.Enum),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType, re.Pattern, pathlib.PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal),
)
# A longer text is kept once, however many variables have it.
_MAX_VALUE_LENGTH = 64 * 1024


class Lost:
    """Placeholder of an object that could not be kept; any use raises an error that names it."""

    def __init__(self, what: str, why: str) -> None:
        self.__dict__.update(_what=what, _why=why)

    def __repr__(self) -> str:
        return f"<not kept: {self._what}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self()

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{self._what} was not kept{self._why and f': {self._why}'}")

    __iter__ = __len__ = __getitem__ = __call__


class _Namespace:
    """Stands in a pickle for the namespace of the session, whichever it is when that is read."""


_NAMESPACE = _Namespace()
# Of the session that is being restored; a process restores one.
_namespace: dict[str, Any] = {}


def describe(kind: type) -> str:
    """Return what an object of a type is, in words, with its article."""
    for known, words in _UNKEEPABLE.items():
        if issubclass(kind, known):
            return words
    try:
        words = f"an object of type {kind.__module__}.{kind.__qualname__}"
        return _WORDS.get(kind.__name__, words)[: snapshot_files.MAX_REASON_CHARACTERS]
    except Exception:
        # The names may come from a metaclass of a cell.
        return "an object"


def reason(error: BaseException) -> str:
    """Return an exception's name and text, even if its own methods raise."""
    # cloudpickle raises another error from it.
    cause = BaseException.__dict__["__cause__"].__get__(error)
    if any(issubclass(type(exception), RecursionError) for exception in (error, cause)):
        return _TOO_DEEP
    if issubclass(type(error), (snapshot_files.TooLargeError, snapshot_files.DamagedError)):
        return str(error)
    with contextlib.suppress(Exception):
        # Any exception: the method is the person's.
        return f"{type(error).__name__}: {error}"[: snapshot_files.MAX_REASON_CHARACTERS]
    return type(error).__name__[: snapshot_files.MAX_REASON_CHARACTERS]


def restore_into(namespace: dict[str, Any]) -> None:
    """Let functions that are unpickled from now on use a namespace as their own."""
    global _namespace
    _namespace = namespace


def is_shareable(obj: Any) -> bool:
    """Return whether two variables that share an object must share it again when they are back."""
    kind = type(obj)
    if kind in (str, bytes):
        return len(obj) > _MAX_VALUE_LENGTH
    if issubclass(kind, _VALUES) or kind is _Namespace:
        return False
    if callable(obj) and _is_found_by_name(obj):
        return False
    numpy: Any = sys.modules.get("numpy")
    return numpy is None or not issubclass(kind, (numpy.dtype, numpy.generic))


def _is_found_by_name(obj: Any) -> bool:
    """Return whether a function or class belongs to a library: it is pickled as its name."""
    module = getattr(obj, "__module__", None)
    if type(module) is not str or module == "__main__":
        return False
    if module == "builtins":
        # Some have no name there: the types of functions and modules.
        return True
    value: Any = sys.modules.get(module)
    for name in str(getattr(obj, "__qualname__", "")).split("."):
        value = getattr(value, name, None)
    return value is obj


class VariablePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler of one variable, or of several that share objects.

    Attributes:
        losses: words for each object that was replaced, and why, by its id.
    """

    def __init__(
        self,
        file: Any,
        namespace: dict[str, Any],
        arrays: Iterable[Any],
        take_buffer: Callable[[pickle.PickleBuffer], bool],
    ) -> None:
        """Pickle nothing yet.

        Args:
            file: takes the pickles.
            namespace: the session's; functions that use it will use the new one.
            arrays: variables that are numpy arrays with memory of their own.
            take_buffer: as pickle's `buffer_callback`.
        """
        super().__init__(file, PROTOCOL, buffer_callback=take_buffer)
        self.losses: dict[int, tuple[str, str]] = {}
        self._namespace = namespace
        self._roots = {id(array) for array in arrays}

    def reducer_override(self, obj: Any) -> Any:
        """Reduce an object, as pickle wants it; what its own methods raise costs this object."""
        kind = type(obj)
        if kind is _Namespace:
            return _current_namespace, ()
        if obj is _make_lost:
            # Never replace the placeholder's own constructor.
            return NotImplemented
        try:
            if issubclass(kind, type):
                return super().reducer_override(obj)
            if kind is types.FunctionType:
                if obj.__globals__ is self._namespace:
                    return _reduce_function(obj)
                return super().reducer_override(obj)
            if reduce_known := _KNOWN.get(kind):
                return reduce_known(self, obj)
            if view := self._reduce_view(kind, obj):
                return view
            if issubclass(kind, tuple(_UNKEEPABLE)):
                return self.replace(obj)
            if reduce := self.dispatch_table.get(kind):
                return reduce(obj)
            return obj.__reduce_ex__(PROTOCOL)
        except Exception as error:
            if issubclass(type(error), RecursionError):
                # The same object may be kept where it is nested less deeply.
                raise
            return self.replace(obj, reason(error))

    def replace(self, obj: Any, why: str = "", what: str = "") -> tuple[Any, ...]:
        """Reduce an object to a placeholder for it, and record the loss."""
        what = what or describe(type(obj))
        self.losses[id(obj)] = what, why
        return _make_lost, (what, why)

    def _reduce_view(self, kind: type, obj: Any) -> tuple[Any, ...] | None:
        """Reduce an array that is a view of a variable to that variable and a place in it."""
        numpy: Any = sys.modules.get("numpy")
        if numpy is None or kind is not numpy.ndarray or obj.base is None:
            return None
        root = obj.base
        while type(getattr(root, "base", None)) is kind:
            root = root.base
        if id(root) not in self._roots or not root.flags.c_contiguous:
            return None
        start = obj.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return _view, (root, start, obj.shape, obj.strides, obj.dtype)


def _reduce_function(function: types.FunctionType) -> tuple[Any, ...]:
    """Reduce a function of a cell: the variables that it uses are kept in their own right."""
    arguments = function.__code__, _NAMESPACE, function.__name__, function.__closure__
    state = {name: getattr(function, name) for name in _FUNCTION_ATTRIBUTES}
    return _make_function, arguments, state, None, None, _set_all


def _reduce_cell(_: VariablePickler, cell: types.CellType) -> tuple[Any, ...]:
    # Empty at first: what is in it may be the function that uses it.
    try:
        content = cell.cell_contents
    except ValueError:
        return _make_cell, ()
    return _make_cell, (), (content,), None, None, _fill_cell


def _reduce_code(_: VariablePickler, code: types.CodeType) -> tuple[Any, ...]:
    return _make_code, (importlib.util.MAGIC_NUMBER, marshal.dumps(code))


def _reduce_file(pickler: VariablePickler, file: Any) -> tuple[Any, ...]:
    mode = getattr(file, "mode", "")
    if "r" in mode and "+" not in mode and not file.closed and os.path.isfile(str(file.name)):
        encoding = getattr(file, "encoding", None)
        return _reopen, (str(file.name), mode, encoding, file.tell())
    # cloudpickle would flush what the kernel has not written yet, and lose the file.
    return pickler.replace(file, "it is not opened for reading only")


def _reduce_database(pickler: VariablePickler, database: sqlite3.Connection) -> tuple[Any, ...]:
    cursor = database.cursor()
    cursor.row_factory = None
    rows = cursor.execute("pragma database_list").fetchall()
    path = rows[0][2] if rows else ""
    if path and database.in_transaction:
        return pickler.replace(database, "it has changes that are not committed")
    content = None if path else database.serialize()
    state = {name: getattr(database, name) for name in _CONNECTION_STATE}
    return _connect, (path, content), state, None, None, _set_all


_KNOWN: dict[type, Callable[[VariablePickler, Any], tuple[Any, ...]]] = {
    # An earlier Python lost it: this snapshot lacks it, too.
    Lost: lambda pickler, lost: pickler.replace(lost, lost._why, lost._what),
    types.CellType: _reduce_cell,
    types.CodeType: _reduce_code,
    _CACHED_FUNCTION: lambda _, cached: (_cache, (cached.__wrapped__, cached.cache_parameters())),
    _thread.LockType: lambda *_: (_make_lock, ()),
    _thread.RLock: lambda *_: (_make_reentrant_lock, ()),
    io.TextIOWrapper: _reduce_file,
    io.BufferedReader: _reduce_file,
    sqlite3.Connection: _reduce_database,
}


def _current_namespace() -> dict[str, Any]:
    return _namespace


def _make_lost(what: str, why: str) -> Lost:
    return Lost(what, why)


def _make_function(code: Any, namespace: Any, name: str, closure: Any) -> types.FunctionType:
    return types.FunctionType(code, namespace, name, None, closure)


def _make_cell() -> types.CellType:
    return types.CellType()


def _fill_cell(cell: types.CellType, content: tuple[Any]) -> None:
    (cell.cell_contents,) = content


def _make_code(magic: bytes, code: bytes) -> Any:
    if magic != importlib.util.MAGIC_NUMBER:
        raise TypeError("it was compiled by another version of Python")
    return marshal.loads(code)


def _cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _make_lock() -> Any:
    return threading.Lock()


def _make_reentrant_lock() -> Any:
    return threading.RLock()


def _connect(path: str, content: bytes | None) -> sqlite3.Connection:
    if content is None:
        return sqlite3.connect(path)
    connection = sqlite3.connect(":memory:")
    connection.deserialize(content)
    return connection


def _set_all(obj: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        setattr(obj, name, value)


def _reopen(path: str, mode: str, encoding: str | None, position: int) -> Any:
    file = open(path, mode, encoding=encoding)  # noqa: SIM115 - it is the variable
    file.seek(position)
    return file


def _view(root: Any, start: int, shape: Any, strides: Any, dtype: Any) -> Any:
    import numpy

    return numpy.ndarray(shape, dtype, root.view(numpy.ndarray), start, strides)


def _publish() -> None:
    """Make the functions that rebuild objects importable by a name that does not change."""
    module: Any = types.ModuleType(_MODULE)
    for rebuild in (
        *(_cache, _connect, _current_namespace, _fill_cell, _make_cell, _make_code, _make_function),
        *(_make_lock, _make_lost, _make_reentrant_lock, _reopen, _set_all, _view),
    ):
        rebuild.__module__ = _MODULE
        setattr(module, rebuild.__name__, rebuild)
    sys.modules[_MODULE] = module


_publish()
