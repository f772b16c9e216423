"""Memory of a session's processes: what they map, and what is in no mapping.

Cheap upper bounds come first, exact figures only as far as needed. A process counts with its
proportional set, resident and swapped out (pages shared with the fork server count by share), and
with its page tables. Not seen: swapped-out shared memory that is no file of the session's, and
memory outside all processes, which the sandbox denies. Shared memory of which only a page is mapped
any more is found by `deleted_files`.

Files in memory, tmpfs, watches of epoll and socket buffers need no mapping; the uncountable is
bounded:

- Sockets. No file of /proc says how much waits in a unix socket. Up to `_FEW_SOCKETS` of them
  pass uncounted: with the stock settings 208 KiB each, and twice that where both ends of the
  internet's protocols keep a queue; 104 and 208 MiB together. Beyond, each counts as all it can
  hold. Those of the internet's protocols in which something waits may not hold 64 MiB together,
  with a cgroup or without. The sandbox keeps code from enlarging their queues (`guest/seccomp`,
  `guest/confinement`).
- Pipes. The machine gives a user 64 MiB (`pipe-user-pages-soft`) and 8 KiB for each pipe more;
  `_MOST_DESCRIPTORS` makes that 192 MiB together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from interpreter_bot.kernels.metering import procfs

HeldBytes: TypeAlias = dict[tuple[int, int], int]
"""Bytes by (device, inode); the inode 0 stands for all files of a file system."""

_MOST_DESCRIPTORS: Final = 16_384
_EPOLL: Final = b"anon_inode:[eventpoll]"
_WATCH: Final = b"tfd:"
_WATCH_BYTES: Final = 192
# In no file system.
_WATCHES: Final = (-2, 0)
_SOCKETS: Final = (-3, 0)
_SHARED_BEYOND: Final = (-4, 0)
_SHARED: Final = (b"/memfd:", b"/dev/shm/")
_SHARED_FILES: Final = "/dev/shm"  # noqa: S108 - counted by owner
_TEMPORARY: Final = ("/tmp", _SHARED_FILES)  # noqa: S108 - of the session, each a tmpfs
# Each takes memory beside what it holds. To list so many takes some 10 ms.
_MOST_SHARED_FILES: Final = 10_000
_SOCKET: Final = b"socket:"
_FEW_SOCKETS: Final = 512
_STOCK_BYTES: Final = 212_992
# The senders of up to ten queued datagrams may be closed already.
_QUEUED_DATAGRAMS: Final = 11
_UNIX_SOCKET: Final = re.compile(
    rb"^[0-9a-f]+: [0-9A-F]{8} 0{8} [0-9A-F]{8} (\d{4}) ", re.MULTILINE
)
_OTHER_SOCKETS: Final = re.compile(rb"^(?:TCP|UDP|RAW)6?: inuse (\d+)", re.MULTILINE)
_INTERNET: Final = ("tcp", "tcp6", "udp", "udp6")
_QUEUES: Final = re.compile(rb"^ *\d+: \S+ \S+ [0-9A-F]{2} ([0-9A-F]{8}:[0-9A-F]{8}) ", re.M)
# All network connections of the machine share one pool of memory, of which this is a little.
_MOST_INTERNET_BYTES: Final = 64 * 1024 * 1024
_UNBEARABLE_BYTES: Final = 1 << 60
# Those of number 0 are the system's own.
_NETLINK_SOCKET: Final = re.compile(rb"^[0-9a-f]+ +\d+ +[1-9]\d* ", re.MULTILINE)
_DATAGRAM: Final = b"0002"

_PROPORTIONAL: Final = re.compile(rb"^(?:Pss|SwapPss): +(\d+) kB", re.MULTILINE)
_MAPPING: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+).*\n"
    rb"(?:(?!Pss:)[A-Z]\w+:.*\n)*Pss: +(\d+) kB",
    re.MULTILINE,
)


def memfd_bytes(shown: Mapping[int, int], apart_from: Iterable[int]) -> tuple[HeldBytes, set[int]]:
    """Count each memfd and shared memory file that is open, mapped or not, and what epoll watches.

    Nothing is opened: `stat` of /proc/PID/fd/N reads the very file, whichever name it has. Where no
    network namespace tells which sockets are the session's, the open ones are: if they are many,
    each counts as all it can hold.

    Args:
        shown: process ids, to the thread ids to read them by.
        apart_from: devices that are counted as a whole.

    Returns:
        the files, and the processes that hide or have too many descriptors.
    """
    held: HeldBytes = {}
    hidden: set[int] = set()
    left = _MOST_DESCRIPTORS
    watched_bytes = 0
    sockets: set[bytes] = set()
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
                target = os.readlink(os.fsencode(f"{folder}/{name}"))
                if target == _EPOLL:
                    text = procfs.read(f"/proc/{number}/fdinfo/{name}")
                    watched_bytes += text.count(_WATCH) * _WATCH_BYTES
                    if len(text) >= procfs.MOST_BYTES:
                        hidden.add(pid)
                elif target.startswith(_SOCKET):
                    sockets.add(target)
                elif target.startswith(_SHARED):
                    seen = os.stat(f"{folder}/{name}")
                    if seen.st_dev not in apart_from:
                        held[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
            except OSError:
                continue
        left -= len(names[:left])
    held[_WATCHES] = watched_bytes
    if len(sockets) > _FEW_SOCKETS and not _witness(shown.values(), "net"):
        held[_SOCKETS] = len(sockets) * _queue_bytes()
    return held, hidden


def shared_file_bytes(user: int) -> HeldBytes:
    """Count the files in /dev/shm that belong to a user, open or not.

    Each counts by itself, as `memfd_bytes` counts those that are open.
    """
    held: HeldBytes = {}
    try:
        with os.scandir(_SHARED_FILES) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    seen = entry.stat(follow_symlinks=False)
                    if seen.st_uid == user:
                        held[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
                if len(held) > _MOST_SHARED_FILES:
                    return {_SHARED_BEYOND: _UNBEARABLE_BYTES}
    except OSError:
        return {}
    return held


def tmpfs_bytes(shown: Iterable[int]) -> HeldBytes:
    """Count what the session's own /tmp and /dev/shm hold, deleted files too.

    Args:
        shown: thread ids to read processes by; the first readable one is used.
    """
    number = _witness(shown, "mnt")
    held: HeldBytes = {}
    for place in _TEMPORARY if number else ():
        try:
            path = f"/proc/{number}/root{place}"
            device, usage = os.stat(path).st_dev, os.statvfs(path)
        except OSError:
            continue
        held[device, 0] = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    return held


def socket_bytes(shown: Iterable[int], *, has_group: bool = False) -> int:
    """Bound what waits in sockets, in bytes; 0 if there are few. See the module.

    Args:
        shown: thread ids, as above. All processes have one network namespace.
        has_group: a cgroup counts what waits in unix sockets, and nothing else for sure.
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
    if 2 * others * _queue_bytes() > _MOST_INTERNET_BYTES:
        waiting_bytes = 2 * _full_sockets(number) * _queue_bytes()
        if waiting_bytes > _MOST_INTERNET_BYTES:
            return _UNBEARABLE_BYTES
    return (unix + 2 * others) * _queue_bytes() if unix + others > _FEW_SOCKETS else 0


def _full_sockets(number: int) -> int:
    """Count the sockets of the internet's protocols in which anything waits."""
    texts = (procfs.read(f"/proc/{number}/net/{name}") for name in _INTERNET)
    queues = (queue for text in texts for queue in _QUEUES.findall(text))
    return sum(queue.strip(b"0:") != b"" for queue in queues)


def _queue_bytes() -> int:
    """Return how much one socket can queue for sending or reading."""
    return max(_STOCK_BYTES, _setting_bytes("wmem_default"), _setting_bytes("rmem_default"))


def _setting_bytes(name: str) -> int:
    try:
        with open(f"/proc/sys/net/core/{name}") as file:
            return int(file.readline())
    except OSError:  # A container does not have to show it.
        return _STOCK_BYTES


def _witness(shown: Iterable[int], kind: str) -> int:
    """Return a process in a namespace other than the bot's; 0 if there is none."""
    ours = (0, procfs.namespace("self", kind))
    return next((n for n in shown if procfs.namespace(n, kind) not in ours), 0)


@dataclasses.dataclass(slots=True)
class MemoryCount:
    """Counted memory.

    Attributes:
        bytes: an upper bound where `is_exact` is false; a lower one where `is_late` is true.
        hidden: processes that could not be read.
        is_exact: every process was read, and shared memory counts once.
        is_late: the time was too short for everything.
    """

    bytes: int = 0
    hidden: set[int] = dataclasses.field(default_factory=set)
    is_exact: bool = False
    is_late: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Required precision.

    Attributes:
        enough_bytes: an upper bound not over this is precise enough.
        most_bytes: counting stops beyond this; None to count everything.
    """

    enough_bytes: int = 0
    most_bytes: int | None = None


def count(
    shown: Mapping[int, int],
    held: HeldBytes,
    bounds: Bounds,
    *,
    allowance: procfs.TimeBudget,
) -> MemoryCount:
    """Count the memory of processes, and of the files in memory that they hold.

    Args:
        shown: process ids, to the thread ids to read them by; the first is the session's init.
        held: memory that counts in full, mapped or not, and must not count twice.
        bounds: how precise to be.
        allowance: time budget.
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
    # Finding what was counted twice costs about ten times as much, so it is done only now. All
    # processes have to be read: what one of them maps is not known before.
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
        """Return whether so much exceeds the upper bound of interest."""
        return self._bounds.most_bytes is not None and size > self._bounds.most_bytes

    def walk(self, measure: Callable[[int], int], extra: int) -> MemoryCount:
        """Sum up all processes, largest first, until the result is precise enough."""
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
                # Init is the bot's own, undumpable, and has the init server's pages.
                if pid != init and procfs.is_hiding(self._shown[pid]):
                    found.hidden.add(pid)
                    found.bytes += self._sizes[pid]
            except OSError:
                # It is gone. If only a thread represented the process, another thread may remain.
                if self._shown[pid] != pid:
                    found.hidden.add(pid)
        found.is_exact = True
        return found


def _proportional_bytes(number: int) -> int:
    text = procfs.read_or_raise(f"/proc/{number}/smaps_rollup")
    return _sum(_PROPORTIONAL.findall(text)) + procfs.table_bytes(number)


def proportional_bytes(number: int) -> int:
    """Return a process's memory, of what it shares its part; all of that where it hides."""
    try:
        return _proportional_bytes(number)
    except OSError:
        return procfs.most_bytes(number)


def _mapped_bytes(number: int, held: HeldBytes) -> int:
    """As `_proportional_bytes`, subtracting from `held` what the process maps of it."""
    if not procfs.shared_bytes(number):
        return _proportional_bytes(number)
    text = procfs.read_or_raise(f"/proc/{number}/smaps")
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
