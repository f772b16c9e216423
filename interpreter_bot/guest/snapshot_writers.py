"""Writing of variables as one generation, the smallest first."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import linecache
import math
import os
import pickle
import pickletools
import sys
import time
import types
from collections.abc import Container
from typing import Any

from . import (
    interpreter_state,
    snapshot_children,
    snapshot_files,
    snapshot_readers,
    variable_pickler,
)

TOO_LATE = "there was no time left for it"
_TOO_DEEP = "it is nested too deeply"
# Of the time that is left: what a variable may take while others wait behind it, and what the state
# of the process may, which takes milliseconds if it can be had at all.
SHARE = 0.5
_STATE_SHARE = 0.2
# Of the same: until when all may be given up, to be written anew.
_ANEW_SHARE = 0.25
# Objects of variables before one that failed, in all; it takes about half a second.
_MOST_LOOKED_THROUGH = 500_000
_CELL_CHARACTERS = 1_000_000
_SHOWN_LOSSES = 10
_NUMBER_BYTES = 8
# Libraries whose objects say how large they are.
_TABLES = ("pandas", "numpy", "polars", "pyarrow")
_REFERENCES = ("BINGET", "LONG_BINGET")


class SnapshotWriter:
    """One attempt to write a generation; tells what became of each variable."""

    def __init__(
        self,
        namespace: dict[str, Any],
        names: list[str],
        files: snapshot_files.Writer,
        tell: snapshot_children.Tell,
    ) -> None:
        """Write nothing yet.

        Args:
            namespace: the session's.
            names: of the variables.
            files: the generation's.
            tell: called with one of ``{"at": name, "seconds": that it may take}`` before a
                variable, and then with ``{"kept": name, "partly": what was lost in it, "blobs":
                sizes by name}`` or ``{"lost": name, "why": words}``; and with ``{"cell": name,
                "text": …}``. With ``{"anew": True}`` where from then on others that fail are only
                looked for, so that all of them are left out at once.
        """
        self._namespace = namespace
        self._files = files
        self._tell = tell
        self._payload = io.BytesIO()
        self._buffers: list[memoryview] = []
        self._names = sorted(names, key=lambda name: _order(namespace[name]))
        self._pickler = self._new_pickler()
        self._last_object = -1
        self._looked_through = 0
        self._is_void = False
        self._anew_until = 0.0
        self._process = os.getpid()
        self._cells: set[str] = set()

    def write(self, left_out: Container[str], deadline: float, end: float) -> None:
        """Write the process state and all variables, but for some.

        Args:
            left_out: these.
            deadline: those not begun by then are lost.
            end: when this process is ended.
        """
        names = [name for name in self._names if name not in left_out]
        self._anew_until = time.monotonic() + (deadline - time.monotonic()) * _ANEW_SHARE
        if snapshot_readers.STATE not in left_out:
            seconds = (end - time.monotonic()) * _STATE_SHARE
            self._tell({"at": snapshot_readers.STATE, "seconds": seconds})
            state = pickle.dumps(interpreter_state.collect(), variable_pickler.PROTOCOL)
            self._files.record(snapshot_files.SOURCE, snapshot_readers.STATE, state, [], 0)
        for name in names:
            if self._is_void and time.monotonic() > self._anew_until:
                break
            value = self._namespace[name]
            if module := _module_name(value):
                self._files.record(snapshot_files.MODULE, name, module.encode(), [], 0)
                self._tell({"kept": name, "partly": [], "blobs": {}})
            elif time.monotonic() > deadline:
                self._tell({"lost": name, "why": TOO_LATE})
            else:
                left = (self._anew_until if self._is_void else end) - time.monotonic()
                share = SHARE if name is not names[-1] else 1.0
                self._tell({"at": name, "seconds": left * share})
                self._write_variable(name, value)
        self._files.close()
        if self._is_void:
            raise RuntimeError("too much would have to be forgotten")

    def _write_variable(self, name: str, value: Any) -> None:
        self._payload.seek(0)
        self._payload.truncate()
        self._buffers.clear()
        self._pickler.lost.clear()
        self._files.blobs.clear()
        is_pickled = False
        try:
            self._pickler.dump(value)
            snapshot_children.end_copy(self._process)
            objects = self._count_objects()
            is_pickled = True
            with self._payload.getbuffer() as payload:
                self._files.check_room(payload, self._buffers)
                if self._is_void:
                    return
                self._files.record(snapshot_files.VARIABLE, name, payload, self._buffers, objects)
        except Exception as error:
            if is_pickled and snapshot_files.is_disk_full(error):
                # Not without this variable: an earlier generation may hold it.
                raise
            # Recursion, memory, or whatever a type's methods raise.
            self._tell({"lost": name, "why": _reason(error)})
            self._forget_unwritten()
            return
        self._last_object = objects
        if loss := self._pickler.lost.get(id(value)):
            self._tell({"lost": name, "why": loss.what + (loss.why and f": {loss.why}")})
            return
        words = dict.fromkeys(loss.what for loss in self._pickler.lost.values())
        partly = list(itertools.islice(words, _SHOWN_LOSSES))
        self._tell({"kept": name, "partly": partly, "blobs": self._files.blobs})
        if _is_definition(value):
            with contextlib.suppress(Exception):
                # A metaclass of the person's answers for its names.
                self._write_source(name, value)

    def _forget_unwritten(self) -> None:
        """Let the pickler refer to nothing that it met in a variable that failed.

        Where that would take too long, nothing is written any more: what else fails is found out,
        and all is to be written anew without it, if there is time for that.
        """
        self._pickler.fast = False
        self._looked_through += self._last_object
        if self._looked_through > _MOST_LOOKED_THROUGH and time.monotonic() < self._anew_until:
            self._is_void = True
            self._tell({"anew": True})
        if self._is_void:
            return
        memo = self._pickler.memo.copy()
        self._pickler.memo = {k: v for k, v in memo.items() if v[0] <= self._last_object}

    def _count_objects(self) -> int:
        """Return the number that the pickler gave to the last object it met.

        Of two pickles of the same new object the second names the number of the first.
        """
        mark: list[None] = []
        self._pickler.dump(mark)
        at = self._payload.tell()
        self._pickler.dump(mark)
        with self._payload.getbuffer() as payload:
            operations = pickletools.genops(bytes(payload[at:]))
            return next(int(n or 0) for code, n, _ in operations if code.name in _REFERENCES)

    def _write_source(self, name: str, value: Any) -> None:
        """Keep the source of a cell's function or class, for another Python and for tracebacks."""
        if value.__module__ != "__main__":
            return
        with contextlib.suppress(Exception):
            # It may be unknown, or too large beside what is written.
            source = inspect.getsource(value).encode()
            self._files.record(snapshot_files.SOURCE, name, source, [], 0)
        code = getattr(value, "__code__", None)
        if code is None or code.co_filename in self._cells:
            return
        text = "".join(linecache.getlines(code.co_filename))
        if code.co_filename.startswith("<") and len(text) < _CELL_CHARACTERS:
            self._cells.add(code.co_filename)
            self._tell({"cell": code.co_filename, "text": text})

    def _new_pickler(self) -> variable_pickler.VariablePickler:
        numpy: Any = sys.modules.get("numpy")
        values = [self._namespace[name] for name in self._names] if numpy else []
        arrays = [one for one in values if type(one) is numpy.ndarray and one.base is None]

        def take(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < snapshot_files.APART_BYTES:
                return True
            self._buffers.append(raw)
            return False

        return variable_pickler.VariablePickler(self._payload, self._namespace, arrays, take)


def _reason(error: Exception) -> str:
    if type(error) is snapshot_files.TooLargeError:
        return str(error)
    # cloudpickle tells it in words of its own. An error of the person's is not asked.
    cause = BaseException.__dict__["__cause__"].__get__(error)
    if any(issubclass(type(one), RecursionError) for one in (error, cause)):
        return _TOO_DEEP
    return variable_pickler.reason(error)


def _order(value: Any) -> tuple[bool, bool, int]:
    """Return a key that puts first what others need when they are read, and then the smallest."""
    return not _module_name(value), not _is_definition(value), _size(value)


def _module_name(value: Any) -> str:
    """Return by which name a module is imported; empty for anything else."""
    name = value.__dict__.get("__name__") if type(value) is types.ModuleType else None
    return name if type(name) is str and name in sys.modules else ""


def _is_definition(value: Any) -> bool:
    # What it says of its class itself may be another, or an error: proxies do so.
    return issubclass(type(value), (types.FunctionType, type))


def is_worked_out(value: Any) -> bool:
    """Return whether a value is more than an import or a definition, which are soon made again."""
    return not (_module_name(value) or _is_definition(value))


def holds_others(kind: type) -> bool:
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
