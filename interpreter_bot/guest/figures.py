"""Pictures of what platforms without a browser cannot show: figures, drawings, formulas.

A plotly figure is drawn by plotly.js only; what is made of it here with matplotlib is a preview of
the common kinds of traces and says so. Where one trace is of another kind there is none.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import re
from typing import Any

from . import previews

_LATEX_DPI = 200
_MOST_LATEX = 2000
_MOST_SVG = 2_000_000
_SVG_ZOOM = 2.0
_DELIMITED = re.compile(r"\s*(\$\$?|\\\[|\\\()(.+?)(\$\$?|\\\]|\\\))\s*", re.S)
_STYLE = re.compile(r"\\(?:display|text|script)style\b")


def title_of_plotly(figure: dict[str, Any]) -> str:
    """Return the title of a figure without its markup; may be empty."""
    return previews.text(figure.get("layout", {}).get("title"))


def said_of_plotly(figure: dict[str, Any]) -> str:
    """Say in words what a figure shows."""
    traces = figure.get("data") or []
    kinds = [
        " ".join(filter(None, (one.get("type", "scatter"), one.get("name")))) for one in traces[:8]
    ]
    title = title_of_plotly(figure)
    return f"plotly figure{f' {title!r}' if title else ''}: {', '.join(kinds) or 'no traces'}"


def of_plotly(figure: dict[str, Any]) -> bytes | None:
    """Draw a preview; None where a trace is of no common kind."""
    return previews.draw(figure)


def of_latex(latex: str) -> bytes | None:
    """Draw a formula; None where it is more than matplotlib can set."""
    found = _DELIMITED.fullmatch(latex)
    if found is None or len(latex) > _MOST_LATEX:
        return None
    from matplotlib import mathtext

    buffer = io.BytesIO()
    formula = _STYLE.sub("", found[2]).strip().replace("\n", " ")
    mathtext.math_to_image(f"${formula}$", buffer, dpi=_LATEX_DPI, format="png")
    return buffer.getvalue()


def of_svg(svg: str) -> bytes | None:
    """Draw an SVG where there is a library for it."""
    if len(svg) > _MOST_SVG or importlib.util.find_spec("resvg_py") is None:
        return None
    png = importlib.import_module("resvg_py").svg_to_bytes(
        svg_string=svg, zoom=_SVG_ZOOM, font_files=_fonts(), font_family="DejaVu Sans"
    )
    return bytes(png)


def _fonts() -> list[str]:
    """List fonts that are surely there: the sandbox need not have any of the system's."""
    from matplotlib import font_manager

    names = ("DejaVu Sans", "Noto Sans CJK SC")
    fonts = {one.name: one.fname for one in font_manager.fontManager.ttflist}
    return [fonts[name] for name in names if name in fonts and os.path.exists(fonts[name])]
