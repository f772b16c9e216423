"""How much is measured: counts and durations."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Effort:
    """Counts and durations.

    Attributes:
        starts: kernels started of each kind.
        trips: round trips of each kind.
        idle_kernels: kernels whose memory is read.
        sessions: sessions that live at once.
        unused_sessions: sessions that nobody uses.
        idle_seconds: how long the unused sessions run nothing.
        computing_seconds: how long some live sessions compute.
        flood_seconds: how long a cell prints.
        fuzz_cases: random inputs to the reader of a kernel's messages.
        snapshots: sessions of each kind that are saved and restored.
        rows: rows of their tables; the largest table has ten times as many.
        turns: turns taken one after the other.
        crowd: people who ask at once.
        file_mebibytes: size of a file that is uploaded and downloaded.
        kills: processes that are killed during a turn.
        restarts: kills of the bot during a cell that prints.
        chaos_seconds: how long processes of a fleet are killed and stopped.
    """

    starts: int = 20
    trips: int = 300
    idle_kernels: int = 6
    sessions: int = 100
    unused_sessions: int = 500
    idle_seconds: float = 20.0
    computing_seconds: float = 10.0
    flood_seconds: float = 20.0
    fuzz_cases: int = 200_000
    snapshots: int = 5
    rows: int = 1_000_000
    turns: int = 50
    crowd: int = 50
    file_mebibytes: int = 512
    kills: int = 200
    restarts: int = 10
    chaos_seconds: float = 1200.0


FULL = Effort()
QUICK = Effort(
    starts=5,
    trips=100,
    idle_kernels=2,
    sessions=20,
    unused_sessions=50,
    idle_seconds=10.0,
    computing_seconds=3.0,
    flood_seconds=4.0,
    fuzz_cases=2000,
    snapshots=1,
    rows=100_000,
    turns=20,
    crowd=10,
    file_mebibytes=128,
    kills=20,
    restarts=3,
    chaos_seconds=40.0,
)
