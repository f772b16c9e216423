"""A pickler for the variables of a session, which replaces objects that cannot be pickled.

Restored functions of cells use the new namespace instead of a copy of the old one, and still share
variables of outer functions. An object that cannot be pickled becomes a placeholder: a dict of
models, for example, is restored even if one of them contains a generator. A view of an array that
is a variable stays a view. cloudpickle does the rest, such as classes of cells.
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
# Pickles refer to rebuilding functions by this module name, because the real module may be renamed.
_rebuilders: Any = types.ModuleType("interpreter_bot_variables")
sys.modules[_rebuilders.__name__] = _rebuilders
_NESTED_TOO_DEEPLY = "it is nested too deeply"

# Objects of these types cannot be pickled; people read the descriptions.
_UNPICKLABLE: dict[type, str] = {
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
_TYPE_DESCRIPTIONS = {
    "DuckDBPyConnection": "a duckdb connection",
    "DuckDBPyRelation": "a duckdb relation",
}
_CONNECTION_STATE = ("isolation_level", "row_factory", "text_factory")
_CACHED_FUNCTION = type(functools.lru_cache(lambda: None))
# Attributes of a function, besides its code, its namespace and the variables of outer functions.
_FUNCTION_ATTRIBUTES = (
    *("__dict__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    *("__defaults__", "__kwdefaults__"),
    *(["__type_params__"] if hasattr(types.FunctionType, "__type_params__") else ()),
)
# Variables need not share objects of these types after a restore, as equal objects are as good.
_VALUE_TYPES = (
    *(int, float, complex, bool, type(None), range, slice, tuple, frozenset, enum.Enum),
    *(types.ModuleType, types.BuiltinFunctionType, types.CodeType, re.Pattern, pathlib.PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal),
)
# Longer texts are stored only once.
_MAX_VALUE_LENGTH = 64 * 1024


class LostObject:
    """Placeholder for an object that could not be saved; any use raises an error that says so."""

    def __init__(self, description: str, reason: str) -> None:
        self.__dict__.update(_description=description, _reason=reason)

    def __repr__(self) -> str:
        return f"<not kept: {self._description}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self()

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"{self._description} was not kept{self._reason and f': {self._reason}'}"
        )

    __iter__ = __len__ = __getitem__ = __call__


class _Namespace:
    """Placeholder in a pickle for the namespace of the session that reads it."""


_NAMESPACE = _Namespace()
# The namespace of the session that this process restores.
_restored_namespace: dict[str, Any] = {}


def describe_type(kind: type) -> str:
    """Describe an object of a type for people, with an article."""
    for unpicklable_type, description in _UNPICKLABLE.items():
        if issubclass(kind, unpicklable_type):
            return description
    try:
        description = f"an object of type {kind.__module__}.{kind.__qualname__}"
        return _TYPE_DESCRIPTIONS.get(kind.__name__, description)[
            : snapshot_files.MAX_REASON_CHARACTERS
        ]
    except Exception:
        # A metaclass of a cell may raise anything.
        return "an object"


def describe_error(error: BaseException) -> str:
    """Return an exception's name and text, even if its methods raise."""
    # cloudpickle raises another error from a recursion error.
    cause = BaseException.__dict__["__cause__"].__get__(error)
    if any(issubclass(type(exception), RecursionError) for exception in (error, cause)):
        return _NESTED_TOO_DEEPLY
    if issubclass(type(error), (snapshot_files.TooLargeError, snapshot_files.DamagedError)):
        return str(error)
    with contextlib.suppress(Exception):
        # Any exception: `__str__` may be the user's.
        return f"{type(error).__name__}: {error}"[: snapshot_files.MAX_REASON_CHARACTERS]
    return type(error).__name__[: snapshot_files.MAX_REASON_CHARACTERS]


def set_restored_namespace(namespace: dict[str, Any]) -> None:
    """Set the namespace of functions that are unpickled from now on."""
    global _restored_namespace
    _restored_namespace = namespace


def is_shareable(obj: Any) -> bool:
    """Return whether variables that share an object must still share it after a restore."""
    kind = type(obj)
    if kind in (str, bytes):
        return len(obj) > _MAX_VALUE_LENGTH
    if issubclass(kind, _VALUE_TYPES) or kind is _Namespace:
        return False
    if callable(obj) and _is_found_by_name(obj):
        return False
    numpy: Any = sys.modules.get("numpy")
    return numpy is None or not issubclass(kind, (numpy.dtype, numpy.generic))


def _is_found_by_name(obj: Any) -> bool:
    """Return whether a function or class belongs to a library, and so is pickled by its name."""
    module = getattr(obj, "__module__", None)
    if type(module) is not str or module == "__main__":
        return False
    if module == "builtins":
        # Some types, such as that of functions, cannot be found by name, but pickle knows them.
        return True
    value: Any = sys.modules.get(module)
    for name in str(getattr(obj, "__qualname__", "")).split("."):
        value = getattr(value, name, None)
    return value is obj


class VariablePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler of one variable, or of several that share objects.

    Attributes:
        losses: description and reason for each replaced object, by its id.
    """

    def __init__(
        self,
        file: Any,
        namespace: dict[str, Any],
        arrays: Iterable[Any],
        take_buffer: Callable[[pickle.PickleBuffer], bool],
    ) -> None:
        """Prepare the pickler; `dump` pickles.

        Args:
            file: to write pickles to.
            namespace: of the session; functions that use it will use the new one.
            arrays: variables that are numpy arrays with memory of their own.
            take_buffer: pickle's `buffer_callback`.
        """
        super().__init__(file, PROTOCOL, buffer_callback=take_buffer)
        self.losses: dict[int, tuple[str, str]] = {}
        self._namespace = namespace
        self._array_ids = {id(array) for array in arrays}

    def reducer_override(self, obj: Any) -> Any:
        """Reduce an object for pickle; if its methods raise, replace the object."""
        kind = type(obj)
        if kind is _Namespace:
            return _current_namespace, ()
        if obj is _make_lost_object:
            # Never replace the placeholder's own constructor.
            return NotImplemented
        try:
            if issubclass(kind, type):
                return super().reducer_override(obj)
            if kind is types.FunctionType:
                if obj.__globals__ is self._namespace:
                    return _reduce_function(obj)
                return super().reducer_override(obj)
            if reducer := _REDUCERS.get(kind):
                return reducer(self, obj)
            if view := self._reduce_view(kind, obj):
                return view
            if issubclass(kind, tuple(_UNPICKLABLE)):
                return self.replace(obj)
            if reduce := self.dispatch_table.get(kind):
                return reduce(obj)
            return obj.__reduce_ex__(PROTOCOL)
        except Exception as error:
            if issubclass(type(error), RecursionError):
                # Let an outer object be replaced, as this one may be less deeply nested elsewhere.
                raise
            return self.replace(obj, describe_error(error))

    def replace(self, obj: Any, reason: str = "", description: str = "") -> tuple[Any, ...]:
        """Reduce an object to a placeholder, and record the loss."""
        description = description or describe_type(type(obj))
        self.losses[id(obj)] = description, reason
        return _make_lost_object, (description, reason)

    def _reduce_view(self, kind: type, obj: Any) -> tuple[Any, ...] | None:
        """Reduce a view of an array that is a variable to that array and an offset."""
        numpy: Any = sys.modules.get("numpy")
        if numpy is None or kind is not numpy.ndarray or obj.base is None:
            return None
        root = obj.base
        while type(getattr(root, "base", None)) is kind:
            root = root.base
        if id(root) not in self._array_ids or not root.flags.c_contiguous:
            return None
        start = obj.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return _rebuild_view, (root, start, obj.shape, obj.strides, obj.dtype)


def _rebuilder(function: Any) -> Any:
    """Let pickles refer to a function by the module of rebuilding functions."""
    function.__module__ = _rebuilders.__name__
    setattr(_rebuilders, function.__name__, function)
    return function


def _reduce_function(function: types.FunctionType) -> tuple[Any, ...]:
    """Reduce a function of a cell, without the variables it uses, which are saved anyway."""
    arguments = function.__code__, _NAMESPACE, function.__name__, function.__closure__
    state = {name: getattr(function, name) for name in _FUNCTION_ATTRIBUTES}
    return _make_function, arguments, state, None, None, _set_all


def _reduce_cell(_: VariablePickler, cell: types.CellType) -> tuple[Any, ...]:
    # The content is set later, because it may be the function that uses the cell.
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
        return _reopen_file, (str(file.name), mode, encoding, file.tell())
    # Not by cloudpickle, which would flush the kernel's unwritten data, and lose the file.
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
    return _rebuild_connection, (path, content), state, None, None, _set_all


_REDUCERS: dict[type, Callable[[VariablePickler, Any], tuple[Any, ...]]] = {
    # An object that an earlier snapshot lost stays lost.
    LostObject: lambda pickler, lost: pickler.replace(lost, lost._reason, lost._description),
    types.CellType: _reduce_cell,
    types.CodeType: _reduce_code,
    _CACHED_FUNCTION: lambda _, cached: (
        _rebuild_cached_function,
        (cached.__wrapped__, cached.cache_parameters()),
    ),
    _thread.LockType: lambda *_: (_make_lock, ()),
    _thread.RLock: lambda *_: (_make_reentrant_lock, ()),
    io.TextIOWrapper: _reduce_file,
    io.BufferedReader: _reduce_file,
    sqlite3.Connection: _reduce_database,
}


@_rebuilder
def _current_namespace() -> dict[str, Any]:
    return _restored_namespace


@_rebuilder
def _make_lost_object(description: str, reason: str) -> LostObject:
    return LostObject(description, reason)


@_rebuilder
def _make_function(code: Any, namespace: Any, name: str, closure: Any) -> types.FunctionType:
    return types.FunctionType(code, namespace, name, None, closure)


@_rebuilder
def _make_cell() -> types.CellType:
    return types.CellType()


@_rebuilder
def _fill_cell(cell: types.CellType, content: tuple[Any]) -> None:
    (cell.cell_contents,) = content


@_rebuilder
def _make_code(magic: bytes, code: bytes) -> Any:
    if magic != importlib.util.MAGIC_NUMBER:
        raise TypeError("it was compiled by another version of Python")
    return marshal.loads(code)


@_rebuilder
def _rebuild_cached_function(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


@_rebuilder
def _make_lock() -> Any:
    return threading.Lock()


@_rebuilder
def _make_reentrant_lock() -> Any:
    return threading.RLock()


@_rebuilder
def _rebuild_connection(path: str, content: bytes | None) -> sqlite3.Connection:
    if content is None:
        return sqlite3.connect(path)
    connection = sqlite3.connect(":memory:")
    connection.deserialize(content)
    return connection


@_rebuilder
def _set_all(obj: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        setattr(obj, name, value)


@_rebuilder
def _reopen_file(path: str, mode: str, encoding: str | None, position: int) -> Any:
    file = open(path, mode, encoding=encoding)  # noqa: SIM115 - it is the variable
    file.seek(position)
    return file


@_rebuilder
def _rebuild_view(root: Any, start: int, shape: Any, strides: Any, dtype: Any) -> Any:
    import numpy

    return numpy.ndarray(shape, dtype, root.view(numpy.ndarray), start, strides)
