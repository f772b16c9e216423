"""How much is measured."""

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
        unused: sessions that nobody uses.
        idle_seconds: how long they run nothing.
        computing_seconds: how long some of them compute.
        flood_seconds: how long a cell prints.
        fuzz_cases: inputs at random to what reads a kernel.
        snapshots: sessions of each kind that are saved and brought back.
        rows: of their tables, in part.
        turns: turns taken one after the other.
        crowd: people who ask at once.
        file_mebibytes: size of a file that goes up and down.
        kills: processes that are killed in the middle of a turn.
        restarts: bots that are killed in the middle of a cell that prints.
        chaos_seconds: how long processes of a fleet are killed and stopped.
    """

    starts: int = 20
    trips: int = 300
    idle_kernels: int = 6
    sessions: int = 100
    unused: int = 500
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
    unused=50,
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
