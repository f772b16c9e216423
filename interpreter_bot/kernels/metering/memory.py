"""Memory of a group of processes: what they map, and what no mapping shows.

Files in memory, tmpfs and socket buffers need no mapping; what of them cannot be counted is
bounded:

* Sockets. No file of /proc says how much waits in a unix socket. Up to `_FEW_SOCKETS` of them
  pass uncounted: with the stock settings 208 KiB each, and twice that where both ends of the
  internet's protocols keep a queue; 104 and 208 MiB together. Beyond, each counts as all it can
  hold. `guest/seccomp` and `guest/confinement` see to it that no code can make one hold more.
* Pipes. The machine gives a user 64 MiB (`pipe-user-pages-soft`) and 8 KiB for each pipe more;
  `_MOST_DESCRIPTORS` makes that 192 MiB together.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from interpreter_bot.kernels.metering import procfs

Held: TypeAlias = dict[tuple[int, int], int]
"""Bytes by (device, inode); the inode 0 stands for all files of a file system."""

_MOST_DESCRIPTORS: Final = 16_384
_SHARED: Final = (b"/memfd:", b"/dev/shm/")
_TEMPORARY: Final = ("/tmp", "/dev/shm")  # noqa: S108 - of the session, each a tmpfs
_FEW_SOCKETS: Final = 512
_STOCK_BYTES: Final = 212_992
# Those who sent to a datagram socket may be closed already, ten messages ago.
_QUEUED_DATAGRAMS: Final = 11
_UNIX_SOCKET: Final = re.compile(
    rb"^[0-9a-f]+: [0-9A-F]{8} 0{8} [0-9A-F]{8} (\d{4}) ", re.MULTILINE
)
_OTHER_SOCKETS: Final = re.compile(rb"^(?:TCP|UDP|RAW)6?: inuse (\d+)", re.MULTILINE)
# Those of number 0 are the system's own.
_NETLINK_SOCKET: Final = re.compile(rb"^[0-9a-f]+ +\d+ +[1-9]\d* ", re.MULTILINE)
_DATAGRAM: Final = b"0002"

_PROPORTIONAL: Final = re.compile(rb"^(?:Pss|SwapPss): +(\d+) kB", re.MULTILINE)
_MAPPING: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+).*\n"
    rb"(?:(?!Pss:)[A-Z]\w+:.*\n)*Pss: +(\d+) kB",
    re.MULTILINE,
)


def memfd_bytes(shown: Mapping[int, int], apart_from: Iterable[int]) -> tuple[Held, set[int]]:
    """Count each memfd and shared memory file that is open, mapped or not.

    Nothing is opened: `stat` of /proc/PID/fd/N looks at the very file, whatever its name says.

    Args:
        shown: the processes, to the numbers that show them.
        apart_from: devices that are counted as a whole.

    Returns:
        the files, and the processes that hide or have more descriptors than are looked at.
    """
    held: Held = {}
    hidden: set[int] = set()
    left = _MOST_DESCRIPTORS
    for pid, number in shown.items():
        folder = f"/proc/{number}/fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            if procfs.is_hiding(number):
                hidden.add(pid)
            continue
        except OSError:
            continue
        if len(names) > left:
            hidden.add(pid)
        for name in names[:left]:
            try:
                if os.readlink(os.fsencode(f"{folder}/{name}")).startswith(_SHARED):
                    seen = os.stat(f"{folder}/{name}")
                    if seen.st_dev not in apart_from:
                        held[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
            except OSError:
                continue
        left -= len(names[:left])
    return held, hidden


def tmpfs_bytes(shown: Iterable[int]) -> Held:
    """Count what the session's own /tmp and /dev/shm hold, deleted files too.

    Args:
        shown: numbers of processes; whichever lets itself be looked at speaks for all.
    """
    number = _witness(shown, "mnt")
    held: Held = {}
    for place in _TEMPORARY if number else ():
        try:
            path = f"/proc/{number}/root{place}"
            device, usage = os.stat(path).st_dev, os.statvfs(path)
        except OSError:
            continue
        held[device, 0] = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    return held


def socket_bytes(shown: Iterable[int], *, has_group: bool = False) -> int:
    """Bound what waits in sockets, in bytes; 0 where there are few. See the module.

    Args:
        shown: numbers of processes, as above. They all have one network.
        has_group: a control group counts what waits in unix sockets, and nothing else for sure.
    """
    number = _witness(shown, "net")
    if not number:
        return 0
    table = b"" if has_group else procfs.read(f"/proc/{number}/net/unix")
    kinds = _UNIX_SOCKET.findall(table)
    unix = len(kinds) + (_QUEUED_DATAGRAMS - 1) * kinds.count(_DATAGRAM)
    others = len(_NETLINK_SOCKET.findall(procfs.read(f"/proc/{number}/net/netlink")))
    for name in ("sockstat", "sockstat6"):
        text = procfs.read(f"/proc/{number}/net/{name}")
        others += sum(map(int, _OTHER_SOCKETS.findall(text)))
    return (unix + 2 * others) * _queue_bytes() if unix + others > _FEW_SOCKETS else 0


def _queue_bytes() -> int:
    """What can wait to be sent by, or be read from, one socket."""
    return max(_STOCK_BYTES, _setting_bytes("wmem_default"), _setting_bytes("rmem_default"))


def _setting_bytes(name: str) -> int:
    try:
        with open(f"/proc/sys/net/core/{name}") as file:
            return int(file.readline())
    except OSError:  # A container does not have to show it.
        return _STOCK_BYTES


def _witness(shown: Iterable[int], kind: str) -> int:
    """A process that shows a namespace which is not ours, as without walls it would be."""
    ours = (0, procfs.namespace("self", kind))
    return next((n for n in shown if procfs.namespace(n, kind) not in ours), 0)


@dataclasses.dataclass(slots=True)
class MemoryCount:
    """What was counted.

    Attributes:
        bytes: an upper bound where `is_exact` is false; a lower one where `is_late` is true.
        hidden: processes that did not let themselves be looked at.
        is_exact: every process was looked at, and what is shared counts once.
        is_late: there was no time for everything.
    """

    bytes: int = 0
    hidden: set[int] = dataclasses.field(default_factory=set)
    is_exact: bool = False
    is_late: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What is worth knowing.

    Attributes:
        enough_bytes: an upper bound not over this is good enough.
        most_bytes: nor does it matter by how much this is exceeded; None where it does.
    """

    enough_bytes: int = 0
    most_bytes: int | None = None


def count(
    shown: Mapping[int, int],
    held: Held,
    bounds: Bounds,
    *,
    allowance: procfs.TimeBudget,
) -> MemoryCount:
    """Count the memory of processes, and of what they hold.

    Args:
        shown: process ids, to the numbers that show them; the first is the session's init.
        held: memory that counts in full, mapped or not, and is not to count twice.
        bounds: how exact to be.
        allowance: for how long.
    """
    sizes = {pid: procfs.most_bytes(number) for pid, number in shown.items()}
    extra = sum(held.values())
    if sum(sizes.values()) + extra <= bounds.enough_bytes:
        return MemoryCount(sum(sizes.values()) + extra)
    counting = _Counting(shown, sizes, bounds, allowance)
    quick = counting.walk(_proportional_bytes, extra)
    is_known = bounds.most_bytes is not None and quick.bytes <= bounds.most_bytes
    if quick.is_late or not held or is_known or counting.is_over(quick.bytes - extra):
        quick.is_exact = quick.is_exact and not held
        return quick
    # Only now is it worth some ten times as much to tell what of it was counted twice. All have
    # to be looked at: what one of them maps is not known before.
    left = dict(held)
    counting = _Counting(shown, sizes, Bounds(0, bounds.most_bytes), allowance)
    exact = counting.walk(lambda number: _mapped_bytes(number, left), 0)
    exact.bytes += sum(size for size in left.values() if size > 0)
    return exact


class _Counting:
    def __init__(
        self,
        shown: Mapping[int, int],
        sizes: Mapping[int, int],
        bounds: Bounds,
        allowance: procfs.TimeBudget,
    ) -> None:
        self._shown = shown
        self._sizes = sizes
        self._bounds = bounds
        self._allowance = allowance

    def is_over(self, size: int) -> bool:
        """Whether so much is too much, whatever else there is."""
        return self._bounds.most_bytes is not None and size > self._bounds.most_bytes

    def walk(self, measure: Callable[[int], int], extra: int) -> MemoryCount:
        """Sum up all processes, largest first, until enough is known."""
        init = next(iter(self._shown), 0)
        found, rest = MemoryCount(extra), sum(self._sizes.values())
        for pid in sorted(self._sizes, key=self._sizes.__getitem__, reverse=True):
            if self._allowance.is_spent:
                found.is_late = True
                return found
            if found.bytes + rest <= self._bounds.enough_bytes:
                found.bytes += rest
                return found
            if self.is_over(found.bytes - extra):
                return found
            rest -= self._sizes[pid]
            try:
                found.bytes += measure(self._shown[pid])
            except PermissionError:
                # Init is ours, forbids everybody to look, and has the fork server's pages.
                if pid != init and procfs.is_hiding(self._shown[pid]):
                    found.hidden.add(pid)
                    found.bytes += self._sizes[pid]
            except OSError:
                # It is gone. Of a process that only a thread stood for, another may be left.
                if self._shown[pid] != pid:
                    found.hidden.add(pid)
        found.is_exact = True
        return found


def _proportional_bytes(number: int) -> int:
    text = procfs.look(f"/proc/{number}/smaps_rollup")
    return _sum(_PROPORTIONAL.findall(text)) + procfs.table_bytes(number)


def _mapped_bytes(number: int, held: Held) -> int:
    """The same, taking off `held` what it maps of that."""
    if not procfs.shared_bytes(number):
        return _proportional_bytes(number)
    text = procfs.look(f"/proc/{number}/smaps")
    if len(text) >= procfs.MOST_BYTES:
        return _proportional_bytes(number)
    for major, minor, inode, kilobytes in _MAPPING.findall(text):
        device = os.makedev(int(major, 16), int(minor, 16))
        key = (device, int(inode))
        key = key if key in held else (device, 0)
        if key in held:
            held[key] -= int(kilobytes) * 1024
    return _sum(_PROPORTIONAL.findall(text)) + procfs.table_bytes(number)


def _sum(kilobytes: list[bytes]) -> int:
    return sum(map(int, kilobytes)) * 1024
