"""Values about the variables of a session, for kernels, sessions and platforms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class SavedVariables:
    """Variables that a kernel saved. All text is harmless to print.

    Attributes:
        kernel_id: of the kernel that saved them.
        run_count: how many pieces of code had run there.
        saved_at: when they were saved, in seconds since the epoch.
        kept_count: the number of variables.
        names: of the first ones.
        lost: variables that could not be saved, and why; the first of `lost_count`.
        partly_saved: variables that were saved in part, and what is missing; the first of
            `partly_saved_count`.
    """

    kernel_id: str
    run_count: int
    saved_at: float
    kept_count: int
    names: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    lost_count: int = 0
    partly_saved: tuple[tuple[str, str], ...] = ()
    partly_saved_count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RestoredState:
    """State of a session after going back to a checkpoint, or of a new copy.

    Attributes:
        saved: the variables of its next kernel; None if there are none.
        missed_runs: how many later pieces of code, up to the checkpoint, are not in `saved`.
        files_notice: a sentence if its files differ from those of the checkpoint, or one is
            missing in a copy; empty otherwise.
    """

    saved: SavedVariables | None = None
    missed_runs: int = 0
    files_notice: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotSize:
    """Disk space of the saved variables of a session.

    Attributes:
        bytes: of their files.
        used_at: when they were last saved or restored, in seconds since the epoch.
    """

    bytes: int
    used_at: float


SnapshotSizes: TypeAlias = Mapping[str, SnapshotSize]
"""By session key; sessions that have nothing saved are left out."""


@dataclasses.dataclass(frozen=True, slots=True)
class SessionVariables:
    """The variables of a session.

    Attributes:
        names: of variables in its kernel, the latest first.
        unlisted_count: the number of variables besides `names`.
        saved: the variables of its next kernel; None if nothing is saved.
    """

    names: tuple[str, ...] = ()
    unlisted_count: int = 0
    saved: SavedVariables | None = None
