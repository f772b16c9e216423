"""Reading of a generation's variables into a namespace."""

from __future__ import annotations

import importlib
import pickle
import pickletools
import struct
from collections.abc import Container, Iterator
from typing import Any

from . import process_state, snapshot_encryption, snapshot_files, variable_pickler

STATE = "process state"
# What makes code of bytes, which mean something else to another minor Python.
_MAKES_CODE = frozenset({("cloudpickle.cloudpickle", "_builtin_type"), ("types", "CodeType")})


class _OtherPythonsUnpickler(pickle.Unpickler):
    """Unpickler that refuses compiled code, where another Python compiled it."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in _MAKES_CODE:
            raise TypeError("it was compiled by another version of Python")
        return super().find_class(module, name)


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

    Attributes:
        failed: what did not come back, and why.
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
                if record.is_damaged:
                    self.failed[record.name] = str(snapshot_encryption.DamagedError())
                if record.is_damaged or record.name in self._skipped:
                    self._refill(record, objects)
                else:
                    self._read(record, objects)
                objects = record.objects + 1

    def _read_state(self, payload: memoryview) -> None:
        try:
            process_state.restore(pickle.loads(payload))
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
        try:
            value = self._unpickler.load()
            # The two marks behind it; they keep the numbers of objects right.
            self._unpickler.load()
            self._unpickler.load()
        except Exception as error:
            # Whatever a type's methods raise, or another release of its library.
            self.failed[record.name] = variable_pickler.reason(error)
            self._refill(record, objects)
        else:
            if type(value) is not variable_pickler.Lost:
                self._namespace[record.name] = value

    def _refill(self, record: snapshot_files.Record, good: int) -> None:
        """Begin with an unpickler that knows the objects read so far, and of the rest the words.

        Words are shared by all: a key of one dict is that of the next. CPython's own setter of the
        memo forgets everything, so a pickle of persistent ids brings each object to its number.
        """
        known = self._unpickler.memo.copy()
        memo = {index: value for index, value in known.items() if index < good}
        number, argument = good, None
        for code, now, _ in pickletools.genops(bytes(record.payload)):
            if code.name == "MEMOIZE":
                if isinstance(argument, str):
                    memo[number] = argument
                number += 1
            argument = now
        lost = variable_pickler.Lost(f"a part of {record.name}", "it could not be read")
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
