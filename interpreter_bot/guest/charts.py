"""Libraries that draw in a browser, taught to give what they draw to `pages` and `figures`.

Nothing here imports any of them: each is met when user code has imported it.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from . import imports, pages

_HTML = "text/html"


def install(display_formatter: Any) -> None:
    """Teach a shell's display formatter and the libraries to come."""
    # Both are read when the library is first imported.
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    os.environ.setdefault("BOKEH_RESOURCES", "inline")
    html = display_formatter.formatters[_HTML]
    html.for_type_by_name("bokeh.model.model", "Model", pages.of_bokeh)
    html.for_type_by_name("folium.folium", "Map", pages.of_folium)
    imports.watch({"bokeh.io.showing": _bokeh, "bokeh.io.output": _bokeh_output, "altair": _altair})


def drop_blank() -> None:
    """Close the matplotlib figures that hold nothing but empty axes, before they are shown.

    Code that failed leaves them behind: a frame without anything in it tells nobody anything.
    """
    plots: Any = sys.modules.get("matplotlib.pyplot")
    if plots is None:
        return
    try:
        # Not by their numbers: that would make each the current one in turn.
        for manager in plots._pylab_helpers.Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if not (_has_content(figure) or any(map(_has_content, figure.axes))):
                plots.close(figure)
    except Exception:
        # User code can change all of it; then they are shown as they are.
        return


def _has_content(drawn: Any) -> bool:
    """Say whether a figure or axes hold anything; a title of axes is nothing."""
    kinds = ("images", "texts", "lines", "patches", "artists", "legends", "tables")
    return any(getattr(drawn, kind, ()) for kind in kinds) or (
        hasattr(drawn, "has_data") and drawn.has_data()
    )


def _bokeh(module: ModuleType) -> None:
    """Let `show` display: it would write a file and look for a browser."""
    from IPython import display

    def show(obj: Any, *_: Any, **__: Any) -> None:
        display.display(obj)

    module.show = show  # type: ignore[attr-defined]


def _bokeh_output(module: ModuleType) -> None:
    """Let `output_notebook` do nothing: each page carries all it needs."""

    def output_notebook(*_: Any, **__: Any) -> None:
        return

    module.output_notebook = output_notebook  # type: ignore[attr-defined]


def _altair(module: ModuleType) -> None:
    """Let charts be displayed as what they are, for `pages` to draw."""
    module.renderers.enable("mimetype")
