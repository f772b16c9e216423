"""Measures: their samples, their bars, and whether the bars were met. Pure."""

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
    """An alternative that the same run measured for comparison.

    Attributes:
        name: what was measured.
        samples: its samples, in the unit of its measure.
    """

    name: str
    samples: Sequence[float]


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table.

    Attributes:
        name: what was measured.
        unit: of the samples, the bar and the alternative's samples.
        samples: all samples, in order. Lower is always better.
        statistic: the statistic of the samples that the bar limits.
        bar: the largest allowed value of that statistic; None if there is no limit.
        alternative: measured in the same run for comparison.
        least_ratio: the smallest allowed ratio of the alternative's figure to this one.
        notes: further details for the raw results.
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
        """The statistic that the bar limits."""
        return self.percentile(_SHARE_OF_STATISTIC[self.statistic])

    @property
    def ratio(self) -> float | None:
        """The alternative's figure divided by this one."""
        if self.alternative is None or not self.figure:
            return None
        return (
            percentile(self.alternative.samples, _SHARE_OF_STATISTIC[self.statistic]) / self.figure
        )

    @property
    def is_met(self) -> bool | None:
        """Whether all bars were met; None if there are none."""
        verdicts = []
        if self.bar is not None:
            verdicts.append(self.figure <= self.bar)
        if self.least_ratio is not None and self.ratio is not None:
            verdicts.append(self.ratio >= self.least_ratio)
        return all(verdicts) if verdicts else None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON, including the raw samples."""
        document = dataclasses.asdict(self)
        for samples in (document, document["alternative"] or {"samples": ()}):
            samples["samples"] = [round(sample, 4) for sample in samples["samples"]]
        if self.alternative is not None:
            document["alternative"] |= _summary(self.alternative.samples)
        return document | _summary(self.samples) | {"ratio": self.ratio, "is_met": self.is_met}


def _summary(samples: Sequence[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    return {"n": len(samples)} | {n: percentile(samples, share) for n, share in shares.items()}
