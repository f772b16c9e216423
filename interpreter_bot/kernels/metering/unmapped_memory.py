"""Memory of a session that no mapping need show: files in memory, and what waits in sockets.

What cannot be counted is bounded:

* Sockets. No file of /proc says how much waits in a unix socket. Up to `_FEW_SOCKETS` of them
  pass uncounted: with the stock settings 208 KiB each, and twice that where both ends of the
  internet's protocols keep a queue; 104 and 208 MiB together. Beyond, each counts as all it can
  hold. The walls see to it that no code can make one hold more (`guest/filters`, `guest/walls`).
* Pipes. The machine gives a user 64 MiB (`pipe-user-pages-soft`) and 8 KiB for each pipe more;
  `_MOST_DESCRIPTORS` makes that 192 MiB together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
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
