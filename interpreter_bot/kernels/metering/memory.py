"""How much memory processes hold together: from cheap bounds to what is exact, as far as needed.

A process counts with its proportional set, resident and swapped out (what it shares with the
fork server counts by share), and with its page tables. Not seen: shared memory that was swapped
out and is no file of the session's, and memory that no process shows, which the walls refuse.
Shared memory that nobody maps any more but by a page is found by `deleted_files`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from interpreter_bot.kernels.metering import procfs, unmapped_memory

_PROPORTIONAL: Final = re.compile(rb"^(?:Pss|SwapPss): +(\d+) kB", re.MULTILINE)
_MAPPING: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+).*\n"
    rb"(?:(?!Pss:)[A-Z]\w+:.*\n)*Pss: +(\d+) kB",
    re.MULTILINE,
)


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
    held: unmapped_memory.Held,
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


def _mapped_bytes(number: int, held: unmapped_memory.Held) -> int:
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
