"""The table for people and the raw results for machines."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import rich.box
import rich.console
import rich.table

from bench import metrics

_HEADINGS = ("measure", "figure", "p50", "p90", "n", "bar", "met", "against, in the same run")
_WIDTH = 220
_NUMBERS = re.compile(r"\[\s+-?[\d.e+-]+(?:,\s+-?[\d.e+-]+)*\s+\]")


def show(measures: Iterable[metrics.Measure]) -> None:
    """Print the table."""
    table = rich.table.Table(*_HEADINGS, box=rich.box.SIMPLE)
    for column in table.columns[1:6]:
        column.justify = "right"
    for measure in measures:
        table.add_row(*_row(measure))
    # A narrow or missing terminal gets long lines rather than a broken table.
    rich.console.Console(width=_WIDTH, highlight=False).print(table)


def write(path: pathlib.Path, machine: dict[str, Any], measures: Iterable[metrics.Measure]) -> None:
    """Write everything there is to know, raw samples included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "measures": [measure.to_json() for measure in measures]}
    # A list of numbers takes one line, not one each.
    text = json.dumps(content, indent=1, ensure_ascii=False)
    path.write_text(_NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n", "utf-8")


def _row(measure: metrics.Measure) -> tuple[str, ...]:
    bars = [] if measure.bar is None else [f"≤ {measure.bar:g} {measure.unit}"]
    if measure.least_ratio is not None:
        bars.append(_ratio_bar(measure.least_ratio))
    against = ""
    if measure.alternative is not None and measure.ratio is not None:
        theirs = measure.ratio * measure.figure
        against = f"{measure.alternative.name}: {_size(theirs)} ({_times(measure.ratio)})"
    return (
        measure.name,
        f"{_size(measure.figure)} {measure.unit} {measure.statistic}",
        _size(measure.percentile(0.5)),
        _size(measure.percentile(0.9)),
        str(len(measure.samples)),
        ", ".join(bars),
        {True: "yes", False: "NO", None: ""}[measure.is_met],
        against,
    )


def _ratio_bar(least_ratio: float) -> str:
    return (
        f"{least_ratio:g} times faster"
        if least_ratio > 1
        else f"≤ {1 / least_ratio:g} times the other"
    )


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times as much" if ratio >= 1 else f"we take {1 / ratio:.3g} times as much"


def _size(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
