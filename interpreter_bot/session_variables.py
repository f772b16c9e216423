"""Variables of a session, as kernels, sessions and platforms tell each other of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class SavedVariables:
    """Variables that a kernel saved. Names and words are harmless to print.

    Attributes:
        kernel: id of the kernel that saved them.
        run_count: how many pieces of code had run there.
        at: when, in seconds since the epoch.
        kept: how many there are.
        names: of the first of them.
        lost: those that could not be saved, and why; the first of `lost_count`.
        partly: those of which a part could not, and which; the first of `partly_count`.
    """

    kernel: str
    run_count: int
    at: float
    kept: int
    names: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    lost_count: int = 0
    partly: tuple[tuple[str, str], ...] = ()
    partly_count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RestoredState:
    """What a session begins with that goes back, or that is a copy of another one.

    Attributes:
        saved: the variables that its next kernel has; None if there are none.
        missed_runs: how many more pieces of code had run by the checkpoint.
        files_notice: why its files are as they are now, or one is missing in a copy, a sentence;
            empty if they are as they were.
    """

    saved: SavedVariables | None = None
    missed_runs: int = 0
    files_notice: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotSize:
    """What the saved variables of a session use of the disk.

    Attributes:
        bytes: as files.
        at: when they were saved or brought back last, in seconds since the epoch.
    """

    bytes: int
    at: float


SnapshotSizes: TypeAlias = Mapping[str, SnapshotSize]
"""Of sessions by their keys; one of which nothing is saved is missing."""


@dataclasses.dataclass(frozen=True, slots=True)
class HeldVariables:
    """The variables of a session.

    Attributes:
        names: those that its kernel has, the latest first.
        unlisted_count: how many it has besides.
        saved: what its next kernel begins with; None if nothing is saved.
    """

    names: tuple[str, ...] = ()
    unlisted_count: int = 0
    saved: SavedVariables | None = None
