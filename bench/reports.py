"""The printed table, and the file of raw results."""

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
    # The width is fixed, because a narrow terminal would break the table into unreadable columns.
    rich.console.Console(width=_WIDTH, highlight=False).print(table)


def write(path: pathlib.Path, machine: dict[str, Any], measures: Iterable[metrics.Measure]) -> None:
    """Write all measures with their raw samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "measures": [measure.to_json() for measure in measures]}
    # A list of numbers takes one line, not one each.
    text = json.dumps(content, indent=1, ensure_ascii=False)
    path.write_text(_NUMBERS.sub(lambda match: " ".join(match[0].split()), text) + "\n", "utf-8")


def _row(measure: metrics.Measure) -> tuple[str, ...]:
    bars = [] if measure.bar is None else [f"≤ {measure.bar:g} {measure.unit}"]
    if measure.least_ratio is not None:
        bars.append(_format_ratio_bar(measure.least_ratio))
    comparison = ""
    if measure.alternative is not None and measure.ratio is not None:
        alternative_figure = measure.ratio * measure.figure
        figure, ratio = _format_number(alternative_figure), _format_ratio(measure.ratio)
        comparison = f"{measure.alternative.name}: {figure} ({ratio})"
    return (
        measure.name,
        f"{_format_number(measure.figure)} {measure.unit} {measure.statistic}",
        _format_number(measure.percentile(0.5)),
        _format_number(measure.percentile(0.9)),
        str(len(measure.samples)),
        ", ".join(bars),
        {True: "yes", False: "NO", None: ""}[measure.is_met],
        comparison,
    )


def _format_ratio_bar(least_ratio: float) -> str:
    return (
        f"{least_ratio:g} times faster"
        if least_ratio > 1
        else f"≤ {1 / least_ratio:g} times the other"
    )


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.3g} times as much" if ratio >= 1 else f"we take {1 / ratio:.3g} times as much"


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
