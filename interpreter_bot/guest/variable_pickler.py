"""A pickler for the variables of a session: what cannot be kept is replaced where it lies.

One pickler takes all variables, so what they share stays shared. Functions of cells are bound to
the new namespace rather than to a copy of the old one. An object that cannot be pickled becomes a
`Lost` in its place, so that a dict of models with a lock somewhere inside still comes back. A view
of an array that is kept is kept as a view.
"""

from __future__ import annotations

import _thread
import contextlib
import copyreg
import functools
import io
import multiprocessing.process
import os
import pickle
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

try:
    import cloudpickle
    from cloudpickle import cloudpickle as functions
except ImportError:
    # Without it, functions and classes that were defined in cells are not kept.
    cloudpickle = None

PROTOCOL = 5
# Pickles name what rebuilds an object by this module: the real one's name depends on the release.
_MODULE = "interpreter_bot_variables"
REASON_CHARACTERS = 200
"""Of what is said of one object."""

# Types by the words for them.
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


class Lost:
    """Stands where something was that could not be kept; any use says so."""

    def __init__(self, what: str, why: str) -> None:
        self.__dict__.update(_what=what, _why=why)
        _standing.add(self)

    def __repr__(self) -> str:
        return f"<not kept: {self._what}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self()

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{self._what} was not kept{self._why and f': {self._why}'}")

    __iter__ = __len__ = __getitem__ = __call__


_standing: weakref.WeakSet[Lost] = weakref.WeakSet()


def all_lost() -> list[Lost]:
    """Return all that stand for something that was lost."""
    return list(_standing)


class Loss(NamedTuple):
    """An object that was replaced, with the words for it and the reason, if they do not say it."""

    of: Any
    what: str
    why: str


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
        return _WORDS.get(kind.__name__, words)[:REASON_CHARACTERS]
    except Exception:
        # A metaclass of the person's answers for its names.
        return "an object"


def reason(error: BaseException) -> str:
    """Return an exception's name and text, even if its `__str__` raises."""
    with contextlib.suppress(Exception):
        # Any exception: the method is the person's.
        return f"{type(error).__name__}: {error}"[:REASON_CHARACTERS]
    return type(error).__name__[:REASON_CHARACTERS]


def restore_into(namespace: dict[str, Any]) -> None:
    """Let functions that are unpickled from now on use a namespace as their own."""
    global _namespace
    _namespace = namespace


def forget_classes() -> None:
    """Let classes of cells that are unpickled from now on be made anew, as in another process.

    Else each that was pickled or unpickled here before is taken for the one that is meant.
    """
    if cloudpickle:
        functions._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
        functions._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()


class VariablePickler(cloudpickle.Pickler if cloudpickle else pickle.Pickler):  # type: ignore[misc]
    """Pickler of one session's variables.

    Attributes:
        lost: what was replaced since this was last cleared, by the objects' ids.
    """

    def __init__(
        self,
        file: io.BytesIO,
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
        self.lost: dict[int, Loss] = {}
        # Of all that it pickled; an object that it holds cannot be another one with the same id.
        self._losses: dict[int, Loss] = {}
        self._namespace = namespace
        self._roots = {id(array) for array in arrays}

    def reducer_override(self, obj: Any) -> Any:
        """Reduce an object, as pickle wants it; never raises for what the object does."""
        kind = type(obj)
        if kind is _Namespace:
            return _current_namespace, ()
        if obj is _make_lost:
            # It stands for whatever is lost, and is never lost itself.
            return NotImplemented
        if id(obj) in self._losses:
            return self._note(self._losses[id(obj)])
        try:
            if kind is types.FunctionType or issubclass(kind, type):
                return super().reducer_override(obj) if cloudpickle else NotImplemented
            for known in (self._reduce_known(kind, obj), self._reduce_view(kind, obj)):
                if known is not None:
                    return known
            if issubclass(kind, tuple(_UNKEEPABLE)):
                return self._lose(obj)
            for table in (copyreg.dispatch_table, getattr(self, "dispatch_table", {})):
                if kind in table:
                    return table[kind](obj)
            return obj.__reduce_ex__(PROTOCOL)
        except Exception as error:
            # Whatever the type's own methods raise: this object is lost, not what holds it.
            loss = self._lose(obj, reason(error))
            if issubclass(type(error), (RecursionError, MemoryError)):
                # Where it lies less deep, or later, it may well be kept.
                del self._losses[id(obj)]
            return loss

    def _lose(self, obj: Any, why: str = "") -> tuple[Any, ...]:
        return self._note(Loss(obj, describe(type(obj)), why[:REASON_CHARACTERS]))

    def _note(self, loss: Loss) -> tuple[Any, ...]:
        self.lost[id(loss.of)] = self._losses[id(loss.of)] = loss
        # Each variable that has it is to come here: in this mode it gets no number by which another
        # would refer to it. Its items, of which there are none, are taken right after that.
        self.fast = True
        return _make_lost, (loss.what, loss.why), None, self._end_fast_mode()

    def _end_fast_mode(self) -> Iterator[Any]:
        self.fast = False
        yield from ()

    def _reduce_known(self, kind: type, obj: Any) -> tuple[Any, ...] | None:
        if kind is Lost:
            # An earlier Python lost it: that is to be said of this snapshot, too.
            return self._note(Loss(obj, obj._what, obj._why))
        if kind is _CACHED_FUNCTION:
            return _cache, (obj.__wrapped__, obj.cache_parameters())
        if kind is _thread.LockType:
            return _make_lock, ()
        if kind is _thread.RLock:
            return _make_reentrant_lock, ()
        if kind is sqlite3.Connection:
            cursor = obj.cursor()
            cursor.row_factory = None
            rows = cursor.execute("pragma database_list").fetchall()
            path = rows[0][2] if rows else ""
            if path and obj.in_transaction:
                return self._lose(obj, "it has changes that are not committed")
            content = None if path else obj.serialize()
            state = {name: getattr(obj, name) for name in _CONNECTION_STATE}
            return _connect, (path, content), state, None, None, _set_all
        if kind in (io.TextIOWrapper, io.BufferedReader):
            if not _is_plain_reading(obj):
                # cloudpickle would write here what the kernel still is to write, and lose the file.
                return self._lose(obj, "it is not opened for reading only")
            encoding = getattr(obj, "encoding", None)
            return _reopen, (str(obj.name), obj.mode, encoding, obj.tell())
        return None

    def _reduce_view(self, kind: type, obj: Any) -> tuple[Any, ...] | None:
        """Reduce an array that is a view of a variable to that variable and a place in it."""
        if kind.__name__ != "ndarray" or kind.__module__ != "numpy" or obj.base is None:
            return None
        root = obj.base
        while type(getattr(root, "base", None)) is kind:
            root = root.base
        if id(root) not in self._roots or not root.flags.c_contiguous:
            return None
        start = obj.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return _view, (root, start, obj.shape, obj.strides, obj.dtype)

    # The two that cloudpickle offers for this: what a function of a cell uses is variables in their
    # own right, not part of the function.
    def _function_getnewargs(self, func: types.FunctionType) -> tuple[Any, ...]:
        code, globals_, *rest = super()._function_getnewargs(func)
        return (code, _NAMESPACE if func.__globals__ is self._namespace else globals_, *rest)

    def _dynamic_function_reduce(self, func: types.FunctionType) -> tuple[Any, ...]:
        arguments = self._function_getnewargs(func)
        state = functions._function_getstate(func)
        if func.__globals__ is self._namespace:
            state[1]["__globals__"] = {}
            state[1]["_cloudpickle_submodules"] = []
        setter = functions._function_setstate
        return functions._make_function, arguments, state, None, None, setter


def _is_plain_reading(file: Any) -> bool:
    mode = getattr(file, "mode", "")
    return "r" in mode and "+" not in mode and not file.closed and os.path.isfile(str(file.name))


def _current_namespace() -> dict[str, Any]:
    return _namespace


def _make_lost(what: str, why: str) -> Lost:
    return Lost(what, why)


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
        *(_cache, _connect, _current_namespace, _make_lock, _make_lost, _make_reentrant_lock),
        *(_reopen, _set_all, _view),
    ):
        rebuild.__module__ = _MODULE
        setattr(module, rebuild.__name__, rebuild)
    sys.modules[_MODULE] = module


_publish()
