"""What is preloaded, moved into a file in memory that the fork server maps privately.

A fork copies the page tables of anonymous memory, an entry for each of 45,000 pages, and counts
each page and each library's data; its end takes all that back. Of a private mapping of a file a
fork copies nothing: pages come as they are first read, sixteen at a time, and are copied as they
are first written. To start a kernel costs a fifth less so, and so do the saving of its variables (a
fork of the kernel) and the end of either. Addresses and contents stay as they are.

Between the copy of a part and the change of its mapping nothing may write to it, not even this
interpreter by counting a reference. So both are done in one call into libc, which chains two
contexts (makecontext(3)): the first copies, the second maps, and the third is the caller.

Memory must not be moved where its allocator trusts in zeroes after `MADV_DONTNEED`, as many do.
libc's main heap and Python's arenas, which are most of it, do not; nor is it done with the data of
libraries.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import fcntl
import gc
import itertools
import mmap
import os
import re
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

_IS_KNOWN = os.uname().machine in {"x86_64", "aarch64"}
"""Whether contexts are laid out as below, and take arguments of 64 bits."""

_LINK, _STACK_START, _STACK_SIZE = 8, 16, 32
_MAP_FIXED = 0x10
_MADV_NORMAL = 0
_FAILED = ctypes.c_void_p(-1).value
_CONTEXT_BYTES = 8192
_STACK_BYTES = 64 * 1024
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r([w-])-p \S+ \S+ \d+ *(.*)")
_PRIVATE_PAGES = re.compile(r"^Anonymous: +[1-9]", re.MULTILINE)
_LISTING_BYTES = 8 * 1024 * 1024
_HEAP = "[heap]"
# An arena has a megabyte; other allocators map two at least, without any object of Python's.
_MOST_GAP_BYTES = 512 * 1024

# Of a kind that keeps Python's lock: no other thread of Python's runs meanwhile.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class _Part(NamedTuple):
    start: int
    size: int
    protection: int
    offset: int


def move() -> None:
    """Move the memory that forks share, once all is loaded, collected and warmed up.

    Does nothing on a machine or with a libc where it is not known how. Other threads must be
    asleep.

    Raises:
        OSError: there is too little memory; what was moved until then stays so.
    """
    if not (_IS_KNOWN and hasattr(_libc, "makecontext")):
        return
    # What is made from here on lives until the end: if any of it were freed, a part that is listed
    # could be unmapped. The heap has nothing left to give back.
    containers = sorted({id(one) // mmap.PAGESIZE for one in gc.get_objects()})
    _libc.malloc_trim(0)
    listing = _list_mappings()
    parts = list(_parts(listing, containers))
    file = os.memfd_create("preloaded", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with contextlib.closing(_Mover(file, parts)) as mover:
            # Signals are handled on a stack that may just be moving.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                for part in parts:
                    mover.move(part)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        # Kernels read each other's beginning here; none can ever change it.
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        os.close(file)


def _list_mappings() -> str:
    """Read the mappings of this process, into memory that is there before they are listed."""
    buffer, size = bytearray(_LISTING_BYTES), 0
    with open("/proc/self/smaps", "rb", buffering=0) as file, memoryview(buffer) as view:
        while count := file.readinto(view[size:]):
            size += count
    return buffer[:size].decode()


def _parts(listing: str, containers: list[int]) -> Iterator[_Part]:
    """Iterate over the mappings that are to be moved: those with private pages that may be."""
    end = 0
    for private in _PRIVATE_PAGES.finditer(listing):
        heading_end = listing.rindex("\nSize:", 0, private.start())
        heading = listing[listing.rfind("\n", 0, heading_end) + 1 : heading_end]
        if (mapping := _MAPPING.fullmatch(heading)) is None:
            continue
        first, last, is_writable, name = mapping.groups()
        start, size = int(first, 16), int(last, 16) - int(first, 16)
        is_known = name == _HEAP or name.startswith("/")
        if is_known or (not name and _is_of_arenas(start, start + size, containers)):
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable == "w" else 0)
            yield _Part(start, size, protection, end)
            end += size


def _is_of_arenas(start: int, end: int, containers: list[int]) -> bool:
    """Return whether a mapping is full of Python's objects.

    Args:
        start: its first address.
        end: the one behind its last.
        containers: numbers of all pages where a container begins, sorted.
    """
    first, last = start // mmap.PAGESIZE, end // mmap.PAGESIZE
    inside = containers[bisect.bisect(containers, first) : bisect.bisect(containers, last)]
    pages = (first, *inside, last)
    gaps = (after - before for before, after in itertools.pairwise(pages))
    return bool(inside) and max(gaps) * mmap.PAGESIZE <= _MOST_GAP_BYTES


class _Mover:
    """Mover of memory into one file, with contexts and stacks that are not moved themselves."""

    def __init__(self, file: int, parts: list[_Part]) -> None:
        self._file = file
        self._own = mmap.mmap(-1, 3 * _CONTEXT_BYTES + 2 * _STACK_BYTES)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._own))
        self._caller, self._copying, self._mapping = (
            start + number * _CONTEXT_BYTES for number in range(3)
        )
        self._stacks = start + 3 * _CONTEXT_BYTES
        self._size = max((part.offset + part.size for part in parts), default=0)
        os.ftruncate(file, self._size)
        both = mmap.PROT_READ | mmap.PROT_WRITE
        self._window = _libc.mmap(None, self._size, both, mmap.MAP_SHARED, file, 0)
        if self._window == _FAILED:
            raise OSError(ctypes.get_errno(), "mmap")

    def close(self) -> None:
        """Let go of the file."""
        _libc.munmap(self._window, self._size)

    def move(self, part: _Part) -> None:
        """Move a part to its place in the file."""
        # All memory is there before anything depends on it.
        os.posix_fallocate(self._file, part.offset, part.size)
        self._set(self._copying, self._mapping, self._stacks)
        self._set(self._mapping, self._caller, self._stacks + _STACK_BYTES)
        self._let(self._copying, _libc.memcpy, self._window + part.offset, part.start, part.size)
        there = mmap.MAP_PRIVATE | _MAP_FIXED
        where = part.start, part.size, part.protection, there, self._file, part.offset
        self._let(self._mapping, _libc.mmap, *where)
        if _libc.madvise(ctypes.c_void_p(part.start), ctypes.c_size_t(part.size), _MADV_NORMAL):
            raise OSError(ctypes.get_errno(), "unmapped meanwhile")
        _libc.swapcontext(ctypes.c_void_p(self._caller), ctypes.c_void_p(self._copying))

    @staticmethod
    def _set(context: int, following: int, stack: int) -> None:
        _libc.getcontext(ctypes.c_void_p(context))
        for place, value in (
            (_LINK, following),
            (_STACK_START, stack),
            (_STACK_SIZE, _STACK_BYTES),
        ):
            ctypes.c_size_t.from_address(context + place).value = value

    @staticmethod
    def _let(context: int, function: Any, *arguments: int) -> None:
        """Let a context call a function of libc."""
        address = ctypes.cast(function, ctypes.c_void_p)
        words = map(ctypes.c_long, arguments)
        _libc.makecontext(ctypes.c_void_p(context), address, len(arguments), *words)
