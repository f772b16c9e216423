"""Plotly traces drawn on matplotlib axes; a function draws all traces of one kind."""

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


def draw_scatter(axes: Any, traces: Traces, _: str) -> None:
    for trace, colour in traces:
        x, y = read_points(trace, "x", "y")
        mode = trace.get("mode") or ("lines" if len(y) > 20 else "lines+markers")
        marker, line = trace.get("marker") or {}, trace.get("line") or {}
        name = _legend_name(trace)
        if trace.get("fill") in ("tozeroy", "tonexty"):
            axes.fill_between(x, y, color=colour, alpha=0.3)
        if "lines" in mode:
            style = _DASHES.get(line.get("dash", ""), "-")
            axes.plot(x, y, color=colour, linestyle=style, label=name)
        if "markers" in mode:
            colour_values, sizes = (
                read_numbers(marker.get("color")),
                read_numbers(marker.get("size")),
            )
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


def draw_bars(axes: Any, traces: Traces, mode: str) -> None:
    is_horizontal = traces[0][0].get("orientation") == "h"
    is_stacked = mode in ("stack", "relative")
    series = [read_points(trace, *("yx" if is_horizontal else "xy")) for trace, _ in traces]
    keys = list(dict.fromkeys(key for trace_keys, _ in series for key in trace_keys))
    slots = {key: slot for slot, key in enumerate(keys)}
    width = 0.8 if is_stacked or mode == "overlay" else 0.8 / len(traces)
    tops = [0.0] * len(keys)
    draw = axes.barh if is_horizontal else axes.bar
    for number, ((trace, colour), (trace_keys, heights)) in enumerate(
        zip(traces, series, strict=True)
    ):
        shift = 0.0 if width == 0.8 else (number + 0.5) * width - 0.4
        bar_slots = [slots[key] for key in trace_keys]
        bottoms = [tops[slot] if is_stacked else 0.0 for slot in bar_slots]
        draw(
            [slot + shift for slot in bar_slots],
            heights,
            width,
            bottoms,
            color=colour,
            label=_legend_name(trace),
        )
        for slot, height in zip(bar_slots, heights, strict=True):
            tops[slot] += float(height or 0) if is_stacked else 0.0
    step = -(-len(keys) // _MAX_LABELS) or 1
    labels = [_label(key) for key in keys[::step]]
    if is_horizontal:
        axes.set_yticks(range(0, len(keys), step), labels)
        return
    is_long = sum(map(len, labels)) > 90
    options = {"rotation": 40, "ha": "right"} if is_long else {}
    axes.set_xticks(range(0, len(keys), step), labels, **options)


def draw_histograms(axes: Any, traces: Traces, mode: str) -> None:
    is_horizontal = traces[0][0].get("x") is None
    columns = [
        (trace, colour, read_values(trace.get("y" if is_horizontal else "x")))
        for trace, colour in traces
    ]
    if any(isinstance(value, str) for *_, column in columns for value in column):
        counted_traces = []
        for trace, colour, column in columns:
            categories = dict.fromkeys(column)
            counts: dict[str, Any] = {
                "x": list(categories),
                "y": [column.count(category) for category in categories],
            }
            if is_horizontal:
                counts = {"x": counts["y"], "y": counts["x"], "orientation": "h"}
            counted_traces.append(({"name": trace.get("name")} | counts, colour))
        draw_bars(axes, counted_traces, mode or "stack")
        return
    present_values = [[value for value in column if value is not None] for *_, column in columns]
    bin_count = traces[0][0].get("nbinsx") or traces[0][0].get("nbinsy")
    largest = max(map(len, present_values))
    axes.hist(
        present_values,
        bins=min(int(bin_count), 500) if bin_count else min(max(int(largest**0.5), 8), 60),
        color=[colour for _, colour, _ in columns],
        label=[_legend_name(trace) for trace, *_ in columns],
        orientation="horizontal" if is_horizontal else "vertical",
        stacked=mode != "group",
        edgecolor="white",
    )


def draw_heatmaps(axes: Any, traces: Traces, _: str) -> None:
    import numpy as np

    trace = traces[-1][0]
    rows = [read_numbers(row) for row in read_values(trace.get("z"))]
    cells = np.array(rows, dtype=float)
    image = axes.imshow(cells, aspect="auto", origin="lower", cmap="plasma")
    axes.grid(visible=False)
    for side, count in (("x", cells.shape[1]), ("y", cells.shape[0])):
        names = [_label(label) for label in read_values(trace.get(side))]
        if len(names) == count <= _MAX_LABELS:
            getattr(axes, f"set_{side}ticks")(range(count), names)
    axes.figure.colorbar(image, ax=axes)


def draw_boxes(axes: Any, traces: Traces, _: str) -> None:
    groups: dict[str, tuple[list[float], Any]] = {}
    is_horizontal = traces[0][0].get("y") is None
    value_side, key_side = "xy" if is_horizontal else "yx"
    for trace, colour in traces:
        data, keys = read_values(trace.get(value_side)), read_values(trace.get(key_side))
        for number, value in enumerate(data):
            key = _label(keys[number]) if len(keys) == len(data) else _legend_name(trace) or ""
            if value is not None:
                groups.setdefault(key, ([], colour))[0].append(float(value))
    box_plot = axes.boxplot(
        [data for data, _ in groups.values()],
        tick_labels=list(groups),
        orientation="horizontal" if is_horizontal else "vertical",
        patch_artist=True,
        medianprops={"color": "black"},
    )
    for patch, group in zip(box_plot["boxes"], groups.values(), strict=True):
        patch.set_facecolor(group[1])


def read_values(field: Any) -> list[Any]:
    """Return the values of a field, which is a list, or an array of numbers in base64."""
    if isinstance(field, dict) and "bdata" in field:
        import numpy as np

        array = np.frombuffer(base64.b64decode(field["bdata"]), dtype=field["dtype"])
        if shape := field.get("shape"):
            array = array.reshape([int(length) for length in str(shape).split(",")])
        array_values: list[Any] = array.tolist()
        return array_values
    return list(field) if isinstance(field, list | tuple) else []


def read_numbers(field: Any) -> list[float]:
    """Return the values of a field if all are numbers or missing; else an empty list."""
    items = read_values(field) if not isinstance(field, list) else field
    if not all(item is None or isinstance(item, int | float) for item in items):
        return []
    return [float("nan") if item is None else float(item) for item in items]


def read_points(
    trace: dict[str, Any], position_key: str, height_key: str
) -> tuple[list[Any], list[Any]]:
    """Return positions and heights in equal number, dates parsed; long traces are thinned out."""
    import numpy as np

    heights = [
        float("nan") if value is None else value for value in read_values(trace.get(height_key))
    ]
    positions = read_values(trace.get(position_key)) or list(range(len(heights)))
    count = min(len(heights), len(positions))
    step = -(-count // _MAX_POINTS) or 1
    positions, heights = positions[:count:step], heights[:count:step]
    if positions and all(isinstance(value, str) and _DATE.fullmatch(value) for value in positions):
        positions = list(np.array(positions, dtype="datetime64[ms]").tolist())
    elif not all(isinstance(value, int | float) for value in positions):
        positions = [_label(value) for value in positions]
    return positions, heights


def find_colour(trace: dict[str, Any]) -> Any:
    """Return the colour of a trace for matplotlib; None if it has none, or several."""
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


def _legend_name(trace: dict[str, Any]) -> str | None:
    name = trace.get("name")
    return str(name)[:40] if name and trace.get("showlegend", True) else None


def _label(key: Any) -> str:
    return str(key)[:24]
