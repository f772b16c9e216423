"""Plotly traces drawn on matplotlib axes, all of one kind together."""

from __future__ import annotations

import base64
import re
from typing import Any

_MAX_POINTS = 20_000
_MAX_LABELS = 30
_RGB = re.compile(r"rgba?\(\s*([\d.]+)[\s,]+([\d.]+)[\s,]+([\d.]+)(?:[\s,/]+([\d.]+))?\s*\)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?")
_DASHES = {"dash": "--", "dot": ":", "dashdot": "-."}

Traces = list[tuple[dict[str, Any], Any]]
"""Traces with their colours."""


def scatter(axes: Any, traces: Traces, _: str) -> None:
    for trace, colour in traces:
        x, y = points(trace, "x", "y")
        mode = trace.get("mode") or ("lines" if len(y) > 20 else "lines+markers")
        marker, line = trace.get("marker") or {}, trace.get("line") or {}
        name = _name(trace)
        if trace.get("fill") in ("tozeroy", "tonexty"):
            axes.fill_between(x, y, color=colour, alpha=0.3)
        if "lines" in mode:
            style = _DASHES.get(line.get("dash", ""), "-")
            axes.plot(x, y, color=colour, linestyle=style, label=name)
        if "markers" in mode:
            colour_values, sizes = numbers(marker.get("color")), numbers(marker.get("size"))
            largest = max(sizes, default=0.0) or 1.0
            axes.scatter(
                x,
                y,
                s=[16 + 300 * size / largest for size in sizes] if len(sizes) == len(y) else 18,
                **(
                    {"c": colour_values, "cmap": "plasma"}
                    if len(colour_values) == len(y)
                    else {"color": colour}
                ),
                alpha=0.8,
                label=None if "lines" in mode else name,
            )


def bars(axes: Any, traces: Traces, mode: str) -> None:
    is_horizontal = traces[0][0].get("orientation") == "h"
    is_stacked = mode in ("stack", "relative")
    columns = [points(trace, *("yx" if is_horizontal else "xy")) for trace, _ in traces]
    keys = list(dict.fromkeys(key for positions, _ in columns for key in positions))
    places = {key: place for place, key in enumerate(keys)}
    width = 0.8 if is_stacked or mode == "overlay" else 0.8 / len(traces)
    tops = [0.0] * len(keys)
    draw = axes.barh if is_horizontal else axes.bar
    for number, ((trace, colour), (positions, heights)) in enumerate(
        zip(traces, columns, strict=True)
    ):
        shift = 0.0 if width == 0.8 else (number + 0.5) * width - 0.4
        bar_positions = [places[key] for key in positions]
        bottoms = [tops[place] if is_stacked else 0.0 for place in bar_positions]
        draw(
            [place + shift for place in bar_positions],
            heights,
            width,
            bottoms,
            color=colour,
            label=_name(trace),
        )
        for place, height in zip(bar_positions, heights, strict=True):
            tops[place] += float(height or 0) if is_stacked else 0.0
    step = -(-len(keys) // _MAX_LABELS) or 1
    labels = [_label(key) for key in keys[::step]]
    if is_horizontal:
        axes.set_yticks(range(0, len(keys), step), labels)
        return
    is_long = sum(map(len, labels)) > 90
    options = {"rotation": 40, "ha": "right"} if is_long else {}
    axes.set_xticks(range(0, len(keys), step), labels, **options)


def histograms(axes: Any, traces: Traces, mode: str) -> None:
    is_horizontal = traces[0][0].get("x") is None
    columns = [
        (value, colour, values(value.get("y" if is_horizontal else "x")))
        for value, colour in traces
    ]
    if any(isinstance(value, str) for *_, column in columns for value in column):
        counted_traces = []
        for trace, colour, column in columns:
            kinds = dict.fromkeys(column)
            counts: dict[str, Any] = {
                "x": list(kinds),
                "y": [column.count(value) for value in kinds],
            }
            if is_horizontal:
                counts = {"x": counts["y"], "y": counts["x"], "orientation": "h"}
            counted_traces.append(({"name": trace.get("name")} | counts, colour))
        bars(axes, counted_traces, mode or "stack")
        return
    present_values = [[value for value in column if value is not None] for *_, column in columns]
    bin_count = traces[0][0].get("nbinsx") or traces[0][0].get("nbinsy")
    largest = max(map(len, present_values))
    axes.hist(
        present_values,
        bins=min(int(bin_count), 500) if bin_count else min(max(int(largest**0.5), 8), 60),
        color=[colour for _, colour, _ in columns],
        label=[_name(trace) for trace, *_ in columns],
        orientation="horizontal" if is_horizontal else "vertical",
        stacked=mode != "group",
        edgecolor="white",
    )


def heatmaps(axes: Any, traces: Traces, _: str) -> None:
    import numpy as np

    trace = traces[-1][0]
    rows = [numbers(row) for row in values(trace.get("z"))]
    cells = np.array(rows, dtype=float)
    image = axes.imshow(cells, aspect="auto", origin="lower", cmap="plasma")
    axes.grid(visible=False)
    for side, count in (("x", cells.shape[1]), ("y", cells.shape[0])):
        names = [_label(label) for label in values(trace.get(side))]
        if len(names) == count <= _MAX_LABELS:
            getattr(axes, f"set_{side}ticks")(range(count), names)
    axes.figure.colorbar(image, ax=axes)


def boxes(axes: Any, traces: Traces, _: str) -> None:
    groups: dict[str, tuple[list[float], Any]] = {}
    is_horizontal = traces[0][0].get("y") is None
    value_side, key_side = "xy" if is_horizontal else "yx"
    for trace, colour in traces:
        data, keys = values(trace.get(value_side)), values(trace.get(key_side))
        for number, value in enumerate(data):
            key = _label(keys[number]) if len(keys) == len(data) else _name(trace) or ""
            if value is not None:
                groups.setdefault(key, ([], colour))[0].append(float(value))
    drawn = axes.boxplot(
        [data for data, _ in groups.values()],
        tick_labels=list(groups),
        orientation="horizontal" if is_horizontal else "vertical",
        patch_artist=True,
        medianprops={"color": "black"},
    )
    for patch, group in zip(drawn["boxes"], groups.values(), strict=True):
        patch.set_facecolor(group[1])


def values(field: Any) -> list[Any]:
    """Return the values of a field: a list, or numbers packed into base64."""
    if isinstance(field, dict) and "bdata" in field:
        import numpy as np

        packed = np.frombuffer(base64.b64decode(field["bdata"]), dtype=field["dtype"])
        if shape := field.get("shape"):
            packed = packed.reshape([int(length) for length in str(shape).split(",")])
        unpacked: list[Any] = packed.tolist()
        return unpacked
    return list(field) if isinstance(field, list | tuple) else []


def numbers(field: Any) -> list[float]:
    """Return the values of a field if all are numbers or missing; else an empty list."""
    items = values(field) if not isinstance(field, list) else field
    if not all(item is None or isinstance(item, int | float) for item in items):
        return []
    return [float("nan") if item is None else float(item) for item in items]


def points(
    trace: dict[str, Any], position_key: str, height_key: str
) -> tuple[list[Any], list[Any]]:
    """Return equally many x and y values, with dates parsed; too many points are thinned out."""
    import numpy as np

    heights = [float("nan") if value is None else value for value in values(trace.get(height_key))]
    positions = values(trace.get(position_key)) or list(range(len(heights)))
    count = min(len(heights), len(positions))
    step = -(-count // _MAX_POINTS) or 1
    positions, heights = positions[:count:step], heights[:count:step]
    if positions and all(isinstance(value, str) and _DATE.fullmatch(value) for value in positions):
        positions = list(np.array(positions, dtype="datetime64[ms]").tolist())
    elif not all(isinstance(value, int | float) for value in positions):
        positions = [_label(value) for value in positions]
    return positions, heights


def colour(trace: dict[str, Any]) -> Any:
    """Return the one colour of a trace for matplotlib; None if it names none."""
    for part in ("line", "marker"):
        color_name = (trace.get(part) or {}).get("color")
        if isinstance(color_name, str):
            return _parse_colour(color_name)
    color_name = trace.get("fillcolor")
    return _parse_colour(color_name) if isinstance(color_name, str) else None


def _parse_colour(name: str) -> Any:
    from matplotlib import colors

    if match := _RGB.fullmatch(name.strip()):
        parts = [min(float(part) / 255, 1.0) for part in match.groups()[:3]]
        return (*parts, min(float(match[4] or 1), 1.0))
    return name if colors.is_color_like(name) else None


def _name(trace: dict[str, Any]) -> str | None:
    name = trace.get("name")
    return str(name)[:40] if name and trace.get("showlegend", True) else None


def _label(key: Any) -> str:
    return str(key)[:24]
