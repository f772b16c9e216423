"""Plotly traces drawn on matplotlib axes, all of one kind together."""

from __future__ import annotations

import base64
import re
from typing import Any

_MOST_POINTS = 20_000
_MOST_LABELS = 30
_RGB = re.compile(r"rgba?\(\s*([\d.]+)[\s,]+([\d.]+)[\s,]+([\d.]+)(?:[\s,/]+([\d.]+))?\s*\)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?")
_DASHES = {"dash": "--", "dot": ":", "dashdot": "-."}

Traces = list[tuple[dict[str, Any], Any]]
"""Traces with their colours."""


def scatter(axes: Any, traces: Traces, _: str) -> None:
    """Draw lines and points."""
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
            shades, sizes = numbers(marker.get("color")), numbers(marker.get("size"))
            most = max(sizes, default=0.0) or 1.0
            axes.scatter(
                x,
                y,
                s=[16 + 300 * one / most for one in sizes] if len(sizes) == len(y) else 18,
                **({"c": shades, "cmap": "plasma"} if len(shades) == len(y) else {"color": colour}),
                alpha=0.8,
                label=None if "lines" in mode else name,
            )


def bars(axes: Any, traces: Traces, mode: str) -> None:
    """Draw bars: beside each other, or one upon the other."""
    is_flat = traces[0][0].get("orientation") == "h"
    is_piled = mode in ("stack", "relative")
    columns = [points(trace, *("yx" if is_flat else "xy")) for trace, _ in traces]
    keys = list(dict.fromkeys(key for found, _ in columns for key in found))
    places = {key: place for place, key in enumerate(keys)}
    width = 0.8 if is_piled or mode == "overlay" else 0.8 / len(traces)
    tops = [0.0] * len(keys)
    draw = axes.barh if is_flat else axes.bar
    for number, ((trace, colour), (found, heights)) in enumerate(zip(traces, columns, strict=True)):
        shift = 0.0 if width == 0.8 else (number + 0.5) * width - 0.4
        at = [places[key] for key in found]
        low = [tops[place] if is_piled else 0.0 for place in at]
        draw([place + shift for place in at], heights, width, low, color=colour, label=_name(trace))
        for place, height in zip(at, heights, strict=True):
            tops[place] += float(height or 0) if is_piled else 0.0
    step = -(-len(keys) // _MOST_LABELS) or 1
    labels = [_label(key) for key in keys[::step]]
    if is_flat:
        axes.set_yticks(range(0, len(keys), step), labels)
        return
    is_long = sum(map(len, labels)) > 90
    turned = {"rotation": 40, "ha": "right"} if is_long else {}
    axes.set_xticks(range(0, len(keys), step), labels, **turned)


def histograms(axes: Any, traces: Traces, mode: str) -> None:
    """Draw histograms."""
    is_flat = traces[0][0].get("x") is None
    columns = [(one, colour, values(one.get("y" if is_flat else "x"))) for one, colour in traces]
    if any(isinstance(one, str) for *_, found in columns for one in found):
        counted = []
        for trace, colour, found in columns:
            kinds = dict.fromkeys(found)
            counts: dict[str, Any] = {"x": list(kinds), "y": [found.count(one) for one in kinds]}
            if is_flat:
                counts = {"x": counts["y"], "y": counts["x"], "orientation": "h"}
            counted.append(({"name": trace.get("name")} | counts, colour))
        bars(axes, counted, mode or "stack")
        return
    cleaned = [[one for one in found if one is not None] for *_, found in columns]
    wanted = traces[0][0].get("nbinsx") or traces[0][0].get("nbinsy")
    most = max(map(len, cleaned))
    axes.hist(
        cleaned,
        bins=min(int(wanted), 500) if wanted else min(max(int(most**0.5), 8), 60),
        color=[colour for _, colour, _ in columns],
        label=[_name(trace) for trace, *_ in columns],
        orientation="horizontal" if is_flat else "vertical",
        stacked=mode != "group",
        edgecolor="white",
    )


def heatmaps(axes: Any, traces: Traces, _: str) -> None:
    """Draw heat maps."""
    import numpy as np

    trace = traces[-1][0]
    rows = [numbers(row) for row in values(trace.get("z"))]
    cells = np.array(rows, dtype=float)
    shown = axes.imshow(cells, aspect="auto", origin="lower", cmap="plasma")
    axes.grid(visible=False)
    for side, count in (("x", cells.shape[1]), ("y", cells.shape[0])):
        names = [_label(one) for one in values(trace.get(side))]
        if len(names) == count <= _MOST_LABELS:
            getattr(axes, f"set_{side}ticks")(range(count), names)
    axes.figure.colorbar(shown, ax=axes)


def boxes(axes: Any, traces: Traces, _: str) -> None:
    """Draw box plots, group by group."""
    groups: dict[str, tuple[list[float], Any]] = {}
    is_flat = traces[0][0].get("y") is None
    value_side, key_side = "xy" if is_flat else "yx"
    for trace, colour in traces:
        found, keys = values(trace.get(value_side)), values(trace.get(key_side))
        for number, one in enumerate(found):
            key = _label(keys[number]) if len(keys) == len(found) else _name(trace) or ""
            if one is not None:
                groups.setdefault(key, ([], colour))[0].append(float(one))
    drawn = axes.boxplot(
        [found for found, _ in groups.values()],
        tick_labels=list(groups),
        orientation="horizontal" if is_flat else "vertical",
        patch_artist=True,
        medianprops={"color": "black"},
    )
    for patch, group in zip(drawn["boxes"], groups.values(), strict=True):
        patch.set_facecolor(group[1])


def values(found: Any) -> list[Any]:
    """Return the values of a field: a list, or numbers packed into base64."""
    if isinstance(found, dict) and "bdata" in found:
        import numpy as np

        packed = np.frombuffer(base64.b64decode(found["bdata"]), dtype=found["dtype"])
        if shape := found.get("shape"):
            packed = packed.reshape([int(one) for one in str(shape).split(",")])
        unpacked: list[Any] = packed.tolist()
        return unpacked
    return list(found) if isinstance(found, list | tuple) else []


def numbers(found: Any) -> list[float]:
    """Return the values of a field if all are numbers or missing; else an empty list."""
    known = values(found) if not isinstance(found, list) else found
    if not all(one is None or isinstance(one, int | float) for one in known):
        return []
    return [float("nan") if one is None else float(one) for one in known]


def points(trace: dict[str, Any], keys: str, heights: str) -> tuple[list[Any], list[Any]]:
    """Return x and y values of equal number, dates as such; very many are thinned out."""
    import numpy as np

    up = [float("nan") if one is None else one for one in values(trace.get(heights))]
    along = values(trace.get(keys)) or list(range(len(up)))
    count = min(len(up), len(along))
    step = -(-count // _MOST_POINTS) or 1
    along, up = along[:count:step], up[:count:step]
    if along and all(isinstance(one, str) and _DATE.fullmatch(one) for one in along):
        along = list(np.array(along, dtype="datetime64[ms]").tolist())
    elif not all(isinstance(one, int | float) for one in along):
        along = [_label(one) for one in along]
    return along, up


def colour(trace: dict[str, Any]) -> Any:
    """Return the one colour of a trace for matplotlib; None if it names none."""
    for part in ("line", "marker"):
        named = (trace.get(part) or {}).get("color")
        if isinstance(named, str):
            return _known(named)
    named = trace.get("fillcolor")
    return _known(named) if isinstance(named, str) else None


def _known(named: str) -> Any:
    from matplotlib import colors

    if found := _RGB.fullmatch(named.strip()):
        parts = [min(float(one) / 255, 1.0) for one in found.groups()[:3]]
        return (*parts, min(float(found[4] or 1), 1.0))
    return named if colors.is_color_like(named) else None


def _name(trace: dict[str, Any]) -> str | None:
    name = trace.get("name")
    return str(name)[:40] if name and trace.get("showlegend", True) else None


def _label(key: Any) -> str:
    return str(key)[:24]
