"""What is preloaded, moved into a file in memory that the fork server maps privately.

A fork copies the page tables of anonymous memory, an entry for each of 45,000 pages, and counts
each page and each library's data; its end takes all that back. Of a private mapping of a file a
fork copies nothing: pages come as they are first read, sixteen at a time, and are copied as they
are first written. A fork takes a third of the time so, a kernel's start a tenth less, and saving
variables (a fork of the kernel) and the end of either gain, too. Addresses and contents stay.

What a fork does copy is each mapping. A library has six, and most are left with two: one of all
that is only read, executable or not, and one of all that is ever written. What was no longer
writable, or not executable, protected nothing here: code in a kernel can map what it likes.

Between the copy of a part and the change of its mapping nothing may write to it, not even this
interpreter by counting a reference. So both are done in one call into libc, which chains two
contexts (makecontext(3)): the first copies, the second maps, and the third is the caller.

Not moved is memory whose allocator trusts in zeroes after `MADV_DONTNEED`, or in more of them where
it makes a mapping longer, as many do. libc's main heap, Python's arenas, which are most of it, and
the data of libraries are in no such hands.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import errno
import fcntl
import gc
import itertools
import mmap
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import loaded_libraries

_NAME = "preloaded"

# Contexts as they are laid out here, with arguments of 64 bits.
_MACHINES = {"x86_64", "aarch64"}
_FUNCTIONS = ("makecontext", "memfd_create", "malloc_trim", "dl_iterate_phdr")
_LINK, _STACK_START, _STACK_SIZE = 8, 16, 32
_CONTEXT_BYTES = 8192
_STACK_BYTES = 64 * 1024

# Not in every Python's modules.
_MFD_CLOEXEC, _MFD_ALLOW_SEALING = 1, 2
_F_ADD_SEALS, _ALL_SEALS = 1033, 1 | 2 | 4 | 8
_MAP_FIXED = 0x10
_MADV_NORMAL = 0

_FAILED = ctypes.c_void_p(-1).value
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r[w-]-p \S+ \S+ \d+ *(.*)$", re.MULTILINE)
_MOVED = re.compile(rf"^([0-9a-f]+)-([0-9a-f]+) .*/memfd:{_NAME} ", re.MULTILINE)
_RUNNING = re.compile(r"^State:\s+R", re.MULTILINE)
_SWITCHES = re.compile(r"_ctxt_switches:\s+(\d+)")
_LISTING_BYTES = 2 * 1024 * 1024
_HEAP = "[heap]"
# A piece of memory that libc maps by itself is longer. Of an arena, a megabyte, most pages hold the
# beginning of a container; other allocators have at least two megabytes, without any.
_MOST_GAP_BYTES = 124 * 1024
_LEAST_RUN_BYTES = 512 * 1024
# What a library has that begins as zeroes; of more than that, most was never used.
_MOST_ZEROED_BYTES = 1024 * 1024

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
    offset: int


class _Thread(NamedTuple):
    """Another thread: whether it has a processor or waits for one, and how often it left one."""

    number: str
    is_running: bool
    switches: list[str]


def is_known() -> bool:
    """Return whether it is known how on this machine, with this libc and this Python."""
    return (
        os.uname().machine in _MACHINES
        and all(hasattr(_libc, name) for name in _FUNCTIONS)
        # Without it objects are in no arenas, and other threads of Python's run at any time.
        and getattr(sys, "_is_gil_enabled", lambda: True)()
    )


def move() -> None:
    """Move the memory that forks share, once all is loaded, collected and warmed up.

    Does nothing where it `is_known` not to work.

    Raises:
        OSError: there is too little memory, or another thread is at work; what was moved until then
            stays so.
    """
    if not is_known():
        return
    threads = _other_threads()
    # What is made from here on lives until the end: if any of it were freed, a part that is listed
    # could be unmapped. The heap has next to nothing left to give back.
    containers = sorted({id(one) // mmap.PAGESIZE for one in gc.get_objects()})
    libraries = loaded_libraries.list_all()
    _libc.malloc_trim(0)
    listing = _list_mappings()
    parts = list(_parts(_united(_spans(listing, containers, libraries))))
    # On a busy machine, one that runs may have waited for a processor all the while.
    if (now := _other_threads()) != threads or any(thread.is_running for thread in now):
        raise OSError(errno.EBUSY, "a thread of what is preloaded is at work")
    file = _libc.memfd_create(_NAME.encode(), _MFD_CLOEXEC | _MFD_ALLOW_SEALING)
    if file < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    try:
        with contextlib.closing(_Mover(file, parts)) as mover:
            # Signals are handled on a stack that may just be moving.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                for part in parts:
                    mover.move(part)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # Kernels read each other's beginning here; none can ever change it.
        fcntl.fcntl(file, _F_ADD_SEALS, _ALL_SEALS)
    finally:
        os.close(file)
    if _moved_bytes() != sum(part.size for part in parts):
        raise OSError(errno.EFAULT, "not all of it could be mapped")
    for library in libraries:
        loaded_libraries.join_read(library)


def _other_threads() -> list[_Thread]:
    # By the number in the namespace of that /proc, which may be another one's.
    own = os.path.basename(os.readlink("/proc/thread-self"))
    threads = []
    for number in sorted(set(os.listdir("/proc/self/task")) - {own}):
        with open(f"/proc/self/task/{number}/status") as file:
            status = file.read()
        is_running = _RUNNING.search(status) is not None
        threads.append(_Thread(number, is_running, _SWITCHES.findall(status)))
    return threads


def _list_mappings() -> str:
    """Read the mappings of this process, into memory that is there before they are listed."""
    buffer, size = bytearray(_LISTING_BYTES), 0
    with open("/proc/self/maps", "rb", buffering=0) as file, memoryview(buffer) as view:
        while count := file.readinto(view[size:]):
            size += count
    # Names may be in any encoding.
    return buffer[:size].decode("latin-1")


def _moved_bytes() -> int:
    with open("/proc/self/maps", encoding="latin-1") as file:
        spans = _MOVED.findall(file.read())
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


def _spans(
    listing: str, containers: list[int], libraries: list[loaded_libraries.Library]
) -> Iterator[tuple[int, int]]:
    """Iterate over what is to be moved, by first address and end.

    Args:
        listing: the mappings.
        containers: numbers of all pages where a container begins, sorted.
        libraries: what is loaded.
    """
    mappings = [
        (int(start, 16), int(end, 16), name) for start, end, name in _MAPPING.findall(listing)
    ]
    readable = _united((start, end) for start, end, _ in mappings)
    zeroed_ends = {}
    for segment in (one for library in libraries for one in library.written):
        zeroed_ends[segment.file_end] = segment.end
        is_short = segment.end - segment.file_end <= _MOST_ZEROED_BYTES
        end = segment.end if is_short else segment.file_end
        around = bisect.bisect(readable, (segment.start, sys.maxsize)) - 1
        if around >= 0 and end <= readable[around][1]:
            yield segment.start, end
    for start, end, name in mappings:
        if name == _HEAP:
            yield start, end
        elif not name:
            yield from _runs_of_arenas(zeroed_ends.get(start, start), end, containers)


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans, and make one of each row of those that touch."""
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if united and united[-1][1] >= start:
            start, before = united.pop()
            end = max(before, end)
        united.append((start, end))
    return united


def _parts(spans: Iterable[tuple[int, int]]) -> Iterator[_Part]:
    """Give each span a place in the file."""
    offset = 0
    for start, end in spans:
        yield _Part(start, end - start, offset)
        offset += end - start


def _runs_of_arenas(start: int, end: int, containers: list[int]) -> Iterator[tuple[int, int]]:
    """Iterate over what of a mapping is full of Python's objects, by first address and end."""
    first, behind = start // mmap.PAGESIZE, end // mmap.PAGESIZE
    inside = containers[bisect.bisect(containers, first) : bisect.bisect(containers, behind - 1)]
    begin = first
    for before, after in itertools.pairwise((first, *inside, behind)):
        if (after - before) * mmap.PAGESIZE > _MOST_GAP_BYTES:
            yield from _run(begin, before + 1)
            begin = after
    if inside:
        yield from _run(begin, behind)


def _run(first: int, behind: int) -> Iterator[tuple[int, int]]:
    if (behind - first) * mmap.PAGESIZE >= _LEAST_RUN_BYTES:
        yield first * mmap.PAGESIZE, behind * mmap.PAGESIZE


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
        self._size = sum(part.size for part in parts)
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
        self._initialize(self._copying, self._mapping, self._stacks)
        self._initialize(self._mapping, self._caller, self._stacks + _STACK_BYTES)
        copy = self._window + part.offset, part.start, part.size
        self._prepare_call(self._copying, _libc.memcpy, *copy)
        place = part.start, part.size, mmap.PROT_READ | mmap.PROT_WRITE
        there = mmap.MAP_PRIVATE | _MAP_FIXED, self._file, part.offset
        self._prepare_call(self._mapping, _libc.mmap, *place, *there)
        if _libc.madvise(ctypes.c_void_p(part.start), ctypes.c_size_t(part.size), _MADV_NORMAL):
            raise OSError(ctypes.get_errno(), "unmapped meanwhile")
        _libc.swapcontext(ctypes.c_void_p(self._caller), ctypes.c_void_p(self._copying))

    @staticmethod
    def _initialize(context: int, following: int, stack: int) -> None:
        """Give a context a stack, and another context that goes on after it."""
        _libc.getcontext(ctypes.c_void_p(context))
        for place, value in (
            (_LINK, following),
            (_STACK_START, stack),
            (_STACK_SIZE, _STACK_BYTES),
        ):
            ctypes.c_size_t.from_address(context + place).value = value

    @staticmethod
    def _prepare_call(context: int, function: Any, *arguments: int) -> None:
        """Have a context call a function of libc once it is switched to."""
        address = ctypes.cast(function, ctypes.c_void_p)
        words = map(ctypes.c_long, arguments)
        _libc.makecontext(ctypes.c_void_p(context), address, len(arguments), *words)
