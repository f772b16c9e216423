"""What was measured, what it had to reach, and whether it did. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

Statistic = Literal["p50", "p99", "most"]
_SHARE_OF_STATISTIC: dict[Statistic, float] = {"p50": 0.5, "p99": 0.99, "most": 1.0}


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` of all do not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """What the same run measured to compare with.

    Attributes:
        name: what it is.
        samples: in the unit of its measure.
    """

    name: str
    samples: Sequence[float]


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table.

    Attributes:
        name: what was measured.
        unit: of the samples, the bar and the alternative's samples.
        samples: all of them, in order. Lower is better, always.
        statistic: which figure of the samples the bar is about.
        bar: what that figure may be at most; None for what is only told.
        alternative: the same figure of something else, measured in the same run.
        least_ratio: how many times our figure the alternative's must be at least.
        notes: whatever else of this measure belongs into the raw results.
    """

    name: str
    unit: str
    samples: Sequence[float]
    statistic: Statistic = "p50"
    bar: float | None = None
    alternative: Alternative | None = None
    least_ratio: float | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def percentile(self, share: float) -> float:
        """Return a percentile of the samples."""
        return percentile(self.samples, share)

    @property
    def figure(self) -> float:
        """The figure that the bar is about."""
        return self.percentile(_SHARE_OF_STATISTIC[self.statistic])

    @property
    def ratio(self) -> float | None:
        """How many times our figure the alternative's is."""
        if self.alternative is None or not self.figure:
            return None
        return (
            percentile(self.alternative.samples, _SHARE_OF_STATISTIC[self.statistic]) / self.figure
        )

    @property
    def is_met(self) -> bool | None:
        """Whether every bar there is was reached; None where there is none."""
        verdicts = []
        if self.bar is not None:
            verdicts.append(self.figure <= self.bar)
        if self.least_ratio is not None and self.ratio is not None:
            verdicts.append(self.ratio >= self.least_ratio)
        return all(verdicts) if verdicts else None

    def to_json(self) -> dict[str, Any]:
        """Say everything as JSON, raw samples included."""
        document = dataclasses.asdict(self)
        for samples in (document, document["alternative"] or {"samples": ()}):
            samples["samples"] = [round(sample, 4) for sample in samples["samples"]]
        if self.alternative is not None:
            document["alternative"] |= _summary(self.alternative.samples)
        return document | _summary(self.samples) | {"ratio": self.ratio, "is_met": self.is_met}


def _summary(samples: Sequence[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    return {"n": len(samples)} | {n: percentile(samples, share) for n, share in shares.items()}
