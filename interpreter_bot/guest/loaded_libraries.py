"""The program and the libraries that this process has loaded: where they are mapped, and how."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import Any, NamedTuple

_PT_LOAD = 1
_PF_W = 2

# Of a kind that keeps Python's lock, as what it calls back is Python.
_libc = ctypes.PyDLL(None)


class _ProgramHeader(ctypes.Structure):
    """As in `elf(5)`, of 64 bits."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("offset", ctypes.c_size_t),
        ("address", ctypes.c_size_t),
        ("physical_address", ctypes.c_size_t),
        ("file_bytes", ctypes.c_size_t),
        ("memory_bytes", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
    )


class _Loaded(ctypes.Structure):
    """The beginning of `dl_phdr_info`, as in `dl_iterate_phdr(3)`."""

    _fields_ = (
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_void_p),
        ("headers", ctypes.POINTER(_ProgramHeader)),
        ("count", ctypes.c_uint16),
    )


_Visitor = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p
)


class Segment(NamedTuple):
    """Whole pages of a program or library that are mapped at once.

    Attributes:
        start: first address.
        file_end: address behind what comes of its file; what follows began as zeroes.
        end: address behind all of it.
        shift: how far its addresses are beyond its places in the file.
    """

    start: int
    file_end: int
    end: int
    shift: int


class Library(NamedTuple):
    """Segments of a program or library, by address: those only read, and those also written.

    The first page or more of what is written may be only read once it is loaded.
    """

    read: list[Segment]
    written: list[Segment]


def list_all() -> list[Library]:
    """List this process's program and libraries; 64 bits and a libc with `dl_iterate_phdr`."""
    found = []

    def add(loaded: Any, *_: object) -> int:
        library = Library([], [])
        for header in loaded.contents.headers[: loaded.contents.count]:
            if header.type == _PT_LOAD:
                segments = library.written if header.flags & _PF_W else library.read
                segments.append(_segment(loaded.contents.base, header))
        found.append(library)
        return 0

    _libc.dl_iterate_phdr(_Visitor(add), None)
    return found


def _segment(base: int, header: _ProgramHeader) -> Segment:
    start = base + header.address
    file_end, end = (_page_end(start + size) for size in (header.file_bytes, header.memory_bytes))
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    return Segment(first, file_end, end, start - header.offset)


def _page_end(address: int) -> int:
    """Return the first address from this one on at which a page begins."""
    return -(-address // mmap.PAGESIZE) * mmap.PAGESIZE


def join_read(library: Library) -> None:
    """Make one mapping, which may be executed, of neighbours of which not all might be.

    Where the system refuses that, they stay as they are.
    """
    for before, after in itertools.pairwise(library.read):
        if before.end == after.start and before.shift == after.shift:
            both = ctypes.c_void_p(before.start), ctypes.c_size_t(after.end - before.start)
            _libc.mprotect(*both, mmap.PROT_READ | mmap.PROT_EXEC)
