"""Reading of a generation's variables into a namespace."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import pickle
import struct
import sys
from collections.abc import Container, Iterator
from typing import Any

from . import interpreter_state, snapshot_encryption, snapshot_files, variable_pickler

STATE = "process state"
_PythonUnpickler: Any = pickle._Unpickler
# Operations that make an object, and of how many on the stack.
_MAKING = {
    **{pickle.REDUCE: 2, pickle.NEWOBJ: 2, pickle.NEWOBJ_EX: 3, pickle.STACK_GLOBAL: 2},
    **{pickle.NEXT_BUFFER: 0, pickle.READONLY_BUFFER: 1},
}
# Those that fill the one below, and with how many; 0 are all down to a mark.
_FILLING = {
    **{pickle.BUILD: 1, pickle.APPEND: 1, pickle.SETITEM: 2},
    **{pickle.APPENDS: 0, pickle.SETITEMS: 0, pickle.ADDITEMS: 0},
}
# What makes code of bytes, which mean something else to another minor Python.
_MAKES_CODE = frozenset({("cloudpickle.cloudpickle", "_builtin_type"), ("types", "CodeType")})


class _OtherPythonsUnpickler(pickle.Unpickler):
    """Unpickler that refuses compiled code, where another Python compiled it."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in _MAKES_CODE:
            raise TypeError("it was compiled by another version of Python")
        return super().find_class(module, name)


class _Salvager(_PythonUnpickler):  # type: ignore[misc]
    """Unpickler that reads on where an object cannot be made, with a `Lost` in its place.

    What variables share, classes and types of arrays too, lies in the pickle of the first one.

    Attributes:
        replaced: what was read already of the objects that failed.
    """

    def __init__(
        self, record: snapshot_files.Record, find: Any, memo: dict[int, Any], *, is_tried: bool
    ) -> None:
        """Read nothing yet.

        Args:
            record: of the variable.
            find: an unpickler's `find_class`.
            memo: objects by their numbers; takes what is read.
            is_tried: make whatever can be made; else only what runs none of the person's code.
        """
        buffers = record.buffers if is_tried and not record.is_damaged else ()
        super().__init__(io.BytesIO(record.payload), buffers=buffers)
        self.memo = memo
        self.lost = variable_pickler.Lost(f"a part of {record.name}", "it could not be read")
        self.replaced: list[Any] = []
        self._find = find
        self._is_tried = is_tried
        self.dispatch = _PythonUnpickler.dispatch.copy()
        for code in (*_MAKING, *_FILLING):
            self.dispatch[code[0]] = functools.partial(_Salvager._try, code=code)

    def find_class(self, module: str, name: str, /) -> Any:
        if not (self._is_tried or module in sys.modules):
            raise ImportError(module)
        return self._find(module, name)

    def _try(self, *, code: bytes) -> None:
        taken = _MAKING[code] if code in _MAKING else _FILLING[code]
        stack = self.stack if taken or code in _MAKING else self.metastack[-1]
        below = len(stack) - taken
        filled = stack[below - 1] if code in _FILLING else None
        try:
            if filled is not self.lost and (self._is_tried or self._is_harmless(code, stack)):
                _PythonUnpickler.dispatch[code[0]](self)
                return
        except Exception:
            # Whatever it needs is another one now, or is lost itself.
            pass
        self.replaced += (filled, *stack[below:])
        if stack is not self.stack:
            self.pop_mark()
        del stack[below:]
        if code in _MAKING:
            self.append(self.lost)
        elif filled is not self.lost:
            stack[-1] = self.lost
            # It was numbered shortly before.
            at = next((k for k, one in reversed(self.memo.items()) if one is filled), None)
            if at is not None:
                self.memo[at] = self.lost

    def _is_harmless(self, code: bytes, stack: list[Any]) -> bool:
        numpy: Any = sys.modules.get("numpy")
        if code == pickle.REDUCE:
            return numpy is not None and stack[-2] is numpy.dtype
        if code == pickle.BUILD:
            return numpy is not None and isinstance(stack[-2], numpy.dtype)
        return code not in (pickle.NEWOBJ, pickle.NEWOBJ_EX)


class _Source:
    """The file that an unpickler reads: one payload after the other, each where it lies."""

    def __init__(self) -> None:
        self._view = memoryview(b"")

    def begin(self, payload: memoryview) -> None:
        """Read another payload from now on."""
        self._view = payload

    def read(self, size: int = -1) -> bytes:
        size = len(self._view) if size < 0 else size
        found, self._view = self._view[:size], self._view[size:]
        return bytes(found)

    def readinto(self, target: Any) -> int:
        size = min(len(target), len(self._view))
        target[:size] = self._view[:size]
        self._view = self._view[size:]
        return size

    def readline(self) -> bytes:
        return self.read(bytes(self._view).find(b"\n") + 1)


class SnapshotReader:
    """Reads a generation into a namespace, variable by variable.

    What was read only in part is kept as long as this is: in a check, a `__del__` of it would
    delete files of the session that goes on.

    Attributes:
        failed: what did not come back, and why.
        partly: what came back, but for a part of one that failed; and of which.
    """

    def __init__(
        self,
        directory: str,
        number: int,
        namespace: dict[str, Any],
        *,
        key: bytes = b"",
        skipped: Container[str] = (),
        is_check: bool = False,
        is_other_python: bool = False,
    ) -> None:
        """Read nothing yet.

        Args:
            directory: of the session's snapshots.
            number: of the generation.
            namespace: takes the variables.
            key: that it was written with.
            skipped: variables that must not be read.
            is_check: as in `snapshot_files.read`.
            is_other_python: another minor version than the one that saved them.
        """
        self._skipped = skipped
        self.failed: dict[str, str] = {}
        self.partly: dict[str, list[str]] = {}
        self._unread: list[variable_pickler.Lost] = []
        self._halves: list[Any] = []
        self._namespace = namespace
        self._records = snapshot_files.read(directory, number, key=key, is_check=is_check)
        self._source = _Source()
        self._buffers: list[memoryview] = []
        self._kind = _OtherPythonsUnpickler if is_other_python else pickle.Unpickler
        self._unpickler = self._new_unpickler()
        variable_pickler.restore_into(namespace)

    def _new_unpickler(self) -> Any:
        return self._kind(self._source, buffers=iter(self._next_buffer, None))

    def _next_buffer(self) -> memoryview:
        return self._buffers.pop(0)

    def variables(self) -> Iterator[str]:
        """Yield the name of each variable before it is read."""
        objects = 0
        for record in self._records:
            if record.kind != snapshot_files.VARIABLE and record.name in self._skipped:
                continue
            if record.kind == snapshot_files.SOURCE and record.name == STATE:
                yield STATE
                self._read_state(record.payload)
            elif record.kind == snapshot_files.MODULE:
                yield record.name
                self._import(record)
            elif record.kind == snapshot_files.SOURCE and record.name in self.failed:
                self._run_source(record)
            elif record.kind == snapshot_files.VARIABLE:
                yield record.name
                if record.name in self._skipped:
                    self._refill(record, objects, is_tried=False)
                elif record.is_damaged:
                    self.failed[record.name] = str(snapshot_encryption.DamagedError())
                    self._refill(record, objects, is_tried=True)
                else:
                    self._read(record, objects)
                objects = record.objects + 1

    def _read_state(self, payload: memoryview) -> None:
        try:
            interpreter_state.restore(pickle.loads(payload))
        except Exception as error:
            # Another release of a library: the rest of the session is worth as much without.
            self.failed[STATE] = variable_pickler.reason(error)

    def _import(self, record: snapshot_files.Record) -> None:
        try:
            module = importlib.import_module(str(record.payload, "utf-8"))
        except Exception as error:
            # An import runs code of the module's.
            self.failed[record.name] = variable_pickler.reason(error)
        else:
            self._namespace[record.name] = module

    def _read(self, record: snapshot_files.Record, objects: int) -> None:
        self._source.begin(record.payload)
        self._buffers[:] = record.buffers
        references = self._count_references()
        try:
            value = self._unpickler.load()
            # The two marks behind it; they keep the numbers of objects right.
            self._unpickler.load()
            self._unpickler.load()
        except Exception as error:
            # Whatever a type's methods raise, or another release of its library.
            self.failed[record.name] = variable_pickler.reason(error)
            self._halves.append(error)
            self._refill(record, objects, is_tried=True)
            return
        if any(value is one for one in self._unread):
            self.failed[record.name] = f"{value._what} could not be read"
        elif type(value) is not variable_pickler.Lost:
            self._namespace[record.name] = value
            counted = zip(self._unread, references, self._count_references(), strict=True)
            if parts := [lost._what for lost, before, now in counted if now > before]:
                self.partly[record.name] = parts

    def _count_references(self) -> list[int]:
        """Count what holds each part that could not be read; more do after a variable with it."""
        return list(map(sys.getrefcount, self._unread))

    def _refill(self, record: snapshot_files.Record, good: int, *, is_tried: bool) -> None:
        """Begin with an unpickler that knows the objects read so far, and what the rest has.

        CPython's own setter of the memo forgets everything, so a pickle of persistent ids brings
        each object to its number.
        """
        known, find = self._unpickler.memo.copy(), self._unpickler.find_class
        memo = {index: value for index, value in known.items() if index < good}
        salvager = _Salvager(record, find, memo, is_tried=is_tried)
        self._halves += (self._unpickler, salvager)
        with contextlib.suppress(Exception):
            # The two marks behind it, too.
            for _ in range(3):
                salvager.load()
        self._halves += salvager.replaced
        lost = salvager.lost
        self._unread.append(lost)
        self._unpickler = self._new_unpickler()
        self._unpickler.persistent_load = lambda index: memo.get(index, lost)
        count = record.objects + 1
        fill = [b"J" + struct.pack("<i", index) + b"Q\x940" for index in range(count)]
        self._source.begin(memoryview(b"\x80\x04" + b"".join(fill) + b"N."))
        self._unpickler.load()

    def _run_source(self, record: snapshot_files.Record) -> None:
        """Define a cell's function or class anew, where another Python cannot read its pickle."""
        try:
            exec(str(record.payload, "utf-8"), self._namespace)
        except Exception:
            # It stays lost, for the reason that is known already.
            return
        del self.failed[record.name]
