"""Preview pictures of plotly figures, SVG and LaTeX, for platforms without a browser.

Only plotly.js draws a plotly figure exactly. The preview, which is labelled so, is drawn with
matplotlib from the common kinds of traces; a figure with a trace of another kind has none. The
figures that user code has open stay as they are, because pyplot is not used.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import re
from typing import Any

from . import plotly_drawing

_LATEX_DPI = 200
_MAX_LATEX_CHARACTERS = 2000
_MAX_SVG_CHARACTERS = 2_000_000
_SVG_ZOOM = 2.0
_DELIMITED_FORMULA = re.compile(r"\s*(\$\$?|\\\[|\\\()(.+?)(\$\$?|\\\]|\\\))\s*", re.S)
_STYLE_COMMAND = re.compile(r"\\(?:display|text|script)style\b")

_DRAW_FUNCTIONS = {
    "scatter": plotly_drawing.draw_scatter,
    "scattergl": plotly_drawing.draw_scatter,
    "bar": plotly_drawing.draw_bars,
    "histogram": plotly_drawing.draw_histograms,
    "heatmap": plotly_drawing.draw_heatmaps,
    "box": plotly_drawing.draw_boxes,
    "violin": plotly_drawing.draw_boxes,
}
_PIE = "pie"
_MAX_TRACES = 60
_SIZE_INCHES, _DPI = (8, 5), 110
_LEFT_MARGIN, _WIDTH, _BOTTOM_MARGIN, _HEIGHT = 0.11, 0.85, 0.14, 0.74
_COLOURS = (
    *("#636efa", "#ef553b", "#00cc96", "#ab63fa", "#ffa15a"),
    *("#19d3f3", "#ff6692", "#b6e880", "#ff97ff", "#fecb52"),
)
_MARKUP = re.compile(r"<[^<>]{0,200}>")


def plotly_title(figure: dict[str, Any]) -> str:
    """Return the title of a figure without its markup; may be empty."""
    return title_text(figure.get("layout", {}).get("title"))


def describe_plotly(figure: dict[str, Any]) -> str:
    """Describe in words what a figure shows."""
    traces = figure.get("data") or []
    kinds = [
        " ".join(filter(None, (trace.get("type", "scatter"), trace.get("name"))))
        for trace in traces[:8]
    ]
    title = plotly_title(figure)
    return f"plotly figure{f' {title!r}' if title else ''}: {', '.join(kinds) or 'no traces'}"


def draw_latex(latex: str) -> bytes | None:
    """Draw a formula as PNG; None if matplotlib cannot set it."""
    match = _DELIMITED_FORMULA.fullmatch(latex)
    if match is None or len(latex) > _MAX_LATEX_CHARACTERS:
        return None
    from matplotlib import mathtext

    buffer = io.BytesIO()
    formula = _STYLE_COMMAND.sub("", match[2]).strip().replace("\n", " ")
    mathtext.math_to_image(f"${formula}$", buffer, dpi=_LATEX_DPI, format="png")
    return buffer.getvalue()


def draw_svg(svg: str) -> bytes | None:
    """Draw an SVG as PNG; None if it is too large or the library is missing."""
    if len(svg) > _MAX_SVG_CHARACTERS or importlib.util.find_spec("resvg_py") is None:
        return None
    png = importlib.import_module("resvg_py").svg_to_bytes(
        svg_string=svg, zoom=_SVG_ZOOM, font_files=_list_fonts(), font_family="DejaVu Sans"
    )
    return bytes(png)


def _list_fonts() -> list[str]:
    """List fonts that matplotlib knows, because the sandbox may have none of the system's."""
    from matplotlib import font_manager

    fonts = {font.name: font.fname for font in font_manager.fontManager.ttflist}
    names = [name for name in fonts if name == "DejaVu Sans" or name.startswith("Noto Sans ")]
    return [fonts[name] for name in names if os.path.exists(fonts[name])]


def title_text(title: Any) -> str:
    """Return the text of a title, which is a string or an object with the key `text`."""
    if isinstance(title, dict):
        title = title.get("text")
    return " ".join(_MARKUP.sub(" ", title).split()) if isinstance(title, str) else ""


def draw_plotly(figure: dict[str, Any]) -> bytes | None:
    """Draw a preview as PNG; None if any trace is of an uncommon kind, or there are too many."""
    traces = [trace for trace in figure.get("data") or [] if trace.get("visible", True) is True]
    kinds = {trace.setdefault("type", "scatter") for trace in traces}
    if not 0 < len(traces) <= _MAX_TRACES or not kinds <= {_PIE, *_DRAW_FUNCTIONS}:
        return None
    from matplotlib import figure as figures
    from matplotlib.backends import backend_agg

    canvas = figures.Figure(figsize=_SIZE_INCHES, dpi=_DPI)
    backend_agg.FigureCanvasAgg(canvas)
    layout = figure.get("layout") or {}
    _draw_traces(canvas, traces, layout)
    if title := title_text(layout.get("title")):
        canvas.suptitle(title, size=12)
    canvas.text(0.995, 0.005, "preview", ha="right", va="bottom", size=7, color="#999999")
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw_traces(canvas: Any, traces: list[dict[str, Any]], layout: dict[str, Any]) -> None:
    """Draw all traces; those of one kind on the same axes are drawn together."""
    groups: dict[tuple[str, str, str], plotly_drawing.Traces] = {}
    for number, trace in enumerate(traces):
        colour = plotly_drawing.find_colour(trace) or _COLOURS[number % len(_COLOURS)]
        if trace["type"] == _PIE:
            _draw_pie(canvas, trace)
            continue
        group = (trace.get("xaxis") or "x", trace.get("yaxis") or "y", trace["type"])
        groups.setdefault(group, []).append((trace, colour))
    axes_by_name: dict[tuple[str, str], Any] = {}
    for (x_name, y_name, kind), group_traces in groups.items():
        axes = axes_by_name.get((x_name, y_name))
        if axes is None:
            axes = axes_by_name[x_name, y_name] = _create_axes(
                canvas, axes_by_name, (x_name, y_name), layout
            )
        _DRAW_FUNCTIONS[kind](axes, group_traces, layout.get("barmode") or "")
    _annotate(canvas, layout)
    for names, axes in axes_by_name.items():
        _reverse_axes(axes, names, layout)
        handles, _ = axes.get_legend_handles_labels()
        if layout.get("showlegend", len(handles) > 1) and handles:
            axes.legend(fontsize=8)


def _create_axes(
    canvas: Any,
    axes_by_name: dict[tuple[str, str], Any],
    names: tuple[str, str],
    layout: dict[str, Any],
) -> Any:
    """Create axes at the layout's position, or a second scale on the axes that it overlays."""
    x, y = (layout.get(_layout_key(name)) or {} for name in names)
    base_axes = axes_by_name.get((names[0], str(y.get("overlaying", ""))))
    if base_axes is not None:
        axes = base_axes.twinx()
    else:
        (left, right), (bottom, top) = (axis.get("domain") or (0.0, 1.0) for axis in (x, y))
        position = (_LEFT_MARGIN + _WIDTH * left, _BOTTOM_MARGIN + _HEIGHT * bottom)
        axes = canvas.add_axes((*position, _WIDTH * (right - left), _HEIGHT * (top - bottom)))
        axes.grid(visible=True, color="#e8e8e8")
        axes.set_axisbelow(True)
    for side, options in (("x", x), ("y", y)):
        getattr(axes, f"set_{side}label")(title_text(options.get("title")))
        if options.get("type") == "log":
            getattr(axes, f"set_{side}scale")("log")
        if options.get("showticklabels") is False:
            axes.tick_params(**{f"label{'bottom' if side == 'x' else 'left'}": False})
    return axes


def _reverse_axes(axes: Any, names: tuple[str, str], layout: dict[str, Any]) -> None:
    """Reverse the axes that the layout reverses."""
    for side, name in zip("xy", names, strict=True):
        if (layout.get(_layout_key(name)) or {}).get("autorange") == "reversed":
            getattr(axes, f"invert_{side}axis")()


def _annotate(canvas: Any, layout: dict[str, Any]) -> None:
    """Write the figure's annotations, such as titles of its parts."""
    for annotation in layout.get("annotations") or []:
        if annotation.get("xref") == annotation.get("yref") == "paper" and not annotation.get(
            "textangle"
        ):
            position = (
                _LEFT_MARGIN + _WIDTH * annotation.get("x", 0.5),
                _BOTTOM_MARGIN + _HEIGHT * annotation.get("y", 1.0),
            )
            canvas.text(*position, title_text(annotation), ha="center", va="bottom", size=9)


def _layout_key(name: str) -> str:
    return f"{name[0]}axis{name[1:]}"


def _draw_pie(canvas: Any, trace: dict[str, Any]) -> None:
    domain = trace.get("domain") or {}
    (left, right), (bottom, top) = (domain.get(side) or (0.0, 1.0) for side in "xy")
    axes = canvas.add_axes((left, 0.9 * bottom, right - left, 0.9 * (top - bottom)))
    names = [str(name)[:24] for name in plotly_drawing.read_values(trace.get("labels"))]
    sizes = plotly_drawing.read_numbers(trace.get("values")) or [1.0] * len(names)
    sizes_by_name: dict[str, float] = {}
    for name, size in zip(names or map(str, range(len(sizes))), sizes, strict=False):
        sizes_by_name[name] = sizes_by_name.get(name, 0.0) + size
    wedge_style = {"width": 1 - float(trace.get("hole") or 0), "edgecolor": "white"}
    axes.pie(
        list(sizes_by_name.values()),
        labels=list(sizes_by_name),
        autopct="%.1f%%",
        pctdistance=0.8,
        wedgeprops=wedge_style,
        colors=_COLOURS,
        startangle=90,
        counterclock=False,
    )
