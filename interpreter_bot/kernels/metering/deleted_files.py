"""Disk space of deleted files that are open or mapped, which no directory walk sees.

The size of an open file is known, and that of a mapped one where `map_files` is readable, which
takes root. A plain user sees how far into the file the mapping reaches, a lower bound: programs
usually map files as a whole, but need not. So `_FEW_UNKNOWN` files count by that, and if there are
more, each counts as the largest file that can be made. What remains uncounted for a plain user is
`_FEW_UNKNOWN` files of the largest size; where control of the disk matters more than that,
`disk_reserve_bytes` protects the machine.

Anonymous shared memory looks like a deleted file, and is found by the same reading: `shared` counts
it, in the same way. No piece of it is larger than `_SHARED_BYTES`; `guest/seccomp` ensures that.

Not seen: files in flight between two sockets, at most `open_files` for each user of the machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Final

from interpreter_bot import settings
from interpreter_bot.kernels.metering import memory, procfs

_MOST_DESCRIPTORS: Final = 16_384
_FEW_UNKNOWN: Final = 8
_SHARED: Final = b"/dev/zero"
_SHARED_BYTES: Final = 64 * settings.MIB
_FEW_SHARED: Final = 4
# A kernel with the analysis stack has 700.
_FEW_MAPPINGS: Final = 16_384
_MAPPING_BYTES: Final = 256
# In no file system.
_MAPPINGS: Final = (-1, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """The file system whose deleted files count.

    Attributes:
        device: its number as `stat` has it.
        mapped_device: its number as /proc/PID/maps has it; another one on btrfs.
        file_bytes: size of the largest file that code can make.
    """

    device: int
    mapped_device: int
    file_bytes: int

    @classmethod
    def of(cls, directory: pathlib.Path, file_bytes: int) -> Disk:
        """Describe the file system of a directory.

        Raises:
            OSError: the directory is gone.
        """
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            device = os.fstat(descriptor).st_dev
            facts = procfs.read_or_raise(f"/proc/self/fdinfo/{descriptor}").split()
        finally:
            os.close(descriptor)
        mount = facts[facts.index(b"mnt_id:") + 1]
        for line in procfs.read_or_raise("/proc/self/mountinfo").split(b"\n")[:-1]:
            number, _, pair, *_ = line.split()
            if number == mount:
                major, minor = map(int, pair.split(b":"))
                return cls(device, os.makedev(major, minor), file_bytes)
        return cls(device, device, file_bytes)


@dataclasses.dataclass(frozen=True, slots=True)
class Deleted:
    """Space held by deleted files.

    Attributes:
        bytes: each file once, however many processes hold it.
        hidden: processes that could not be read, or had too many files.
        is_late: the time was too short for everything.
        shared: memory, which is on no disk.
    """

    bytes: int
    hidden: int
    is_late: bool
    shared: memory.HeldBytes = dataclasses.field(default_factory=dict)


def count(shown: Mapping[int, int], disk: Disk, *, allowance: procfs.TimeBudget) -> Deleted:
    """Count the space of deleted files that processes hold.

    Args:
        shown: process ids, to the thread ids to read them by; the first is the session's init.
        disk: the file system that counts.
        allowance: time budget.
    """
    counting = _Counting(disk)
    hidden = 0
    init = next(iter(shown), 0)
    for pid, number in shown.items():
        if allowance.is_spent:
            return Deleted(counting.bytes, hidden, is_late=True, shared=counting.shared)
        try:
            counting.look(number)
        except PermissionError:
            # Init is the bot's own, and undumpable.
            hidden += pid != init and procfs.is_hiding(number)
        except OSError:
            # It is gone. If only a thread represented the process, another thread may remain.
            hidden += number != pid
    return Deleted(counting.bytes, hidden, is_late=False, shared=counting.shared)


class _Counting:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._left = _MOST_DESCRIPTORS
        self._mappings = 0
        self._known: dict[int, int] = {}
        self._unknown: dict[int, int] = {}
        self._shared: memory.HeldBytes = {}

    @property
    def bytes(self) -> int:
        """Bytes counted so far."""
        unknown = [size for inode, size in self._unknown.items() if inode not in self._known]
        if len(unknown) > _FEW_UNKNOWN:
            unknown = [self._disk.file_bytes] * len(unknown)
        return sum(self._known.values()) + sum(unknown)

    @property
    def shared(self) -> memory.HeldBytes:
        """Pieces of shared memory: few count as far as they are mapped, many each in full.

        And what the host's kernel holds to describe mappings, if they are many.
        """
        found = dict(self._shared)
        if len(found) > _FEW_SHARED:
            found = {key: max(size, _SHARED_BYTES) for key, size in found.items()}
        if self._mappings > _FEW_MAPPINGS:
            found[_MAPPINGS] = self._mappings * _MAPPING_BYTES
        return found

    def look(self, number: int) -> None:
        """Read one process.

        Raises:
            PermissionError: it hides, or has too many files.
            OSError: it is gone.
        """
        names = os.listdir(f"/proc/{number}/fd")
        for name in names[: self._left]:
            with contextlib.suppress(OSError):
                self._add(os.stat(f"/proc/{number}/fd/{name}"))
        self._left -= len(names)
        text = procfs.mappings(number)
        self._mappings += text.count(b"\n")
        device = self._disk.mapped_device
        for mapping in procfs.deleted_mappings(text, device=device, path=_SHARED):
            if mapping.path == _SHARED:
                key = mapping.device, mapping.inode
                self._shared[key] = max(self._shared.get(key, 0), mapping.end_bytes)
            elif mapping.device == device:
                self._look_at(number, mapping)
        if self._left < 0:
            self._left = 0
            raise PermissionError

    def _look_at(self, number: int, mapping: procfs.Mapping) -> None:
        try:
            self._add(os.stat(f"/proc/{number}/map_files/{mapping.addresses}"))
        except PermissionError:
            if not self._is_there(number, mapping):
                before = self._unknown.get(mapping.inode, 0)
                self._unknown[mapping.inode] = max(before, mapping.end_bytes)
        except OSError:
            return  # Unmapped by now.

    def _is_there(self, number: int, mapping: procfs.Mapping) -> bool:
        """Return whether the file's real name ends in " (deleted)", so that a directory walk counts
        it.
        """
        path = os.fsencode(f"/proc/{number}/root") + mapping.path + b" (deleted)"
        with contextlib.suppress(OSError):
            return os.lstat(path).st_ino == mapping.inode
        return False

    def _add(self, seen: os.stat_result) -> None:
        if seen.st_dev == self._disk.device and seen.st_nlink == 0:
            self._known[seen.st_ino] = seen.st_blocks * 512
