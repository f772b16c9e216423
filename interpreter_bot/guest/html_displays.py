"""Displays that need a browser: each becomes one page that opens offline, with a preview picture.

Plotting libraries are hooked when user code imports them, never imported before. The last step
before a display is sent is `add_visible_forms`. If it fails, the display is sent unchanged, because
no error of this module may reach user code.
"""

from __future__ import annotations

import base64
import functools
import gzip
import html
import importlib
import importlib.util
import json
import os
import re
import sys
import warnings
from typing import Any

from IPython.core import formatters

from . import display_hooks, display_previews

PREVIEW_MIME = "application/vnd.interpreter-bot.preview+png"
TITLE_MIME = "application/vnd.interpreter-bot.title"

_HTML_MIME, _PLAIN_MIME, _LATEX_MIME, _SVG_MIME = (
    "text/html",
    "text/plain",
    "text/latex",
    "image/svg+xml",
)
_PLOTLY_MIME = "application/vnd.plotly.v1+json"
_VEGA_MIME = re.compile(r"application/vnd\.(vega|vegalite)\.v(\d+)[.+]json")
_UNSUPPORTED = {
    "application/vnd.jupyter.widget-view+json": "Widgets cannot be shown here.",
    "application/javascript": "JavaScript of a display is not run here.",
}
_LINK = re.compile(
    r"""<script\b[^>]*\bsrc="(?P<script>https?://[^"]+)"[^>]*>\s*</script>"""
    r"""|<link\b[^>]*\bhref="(?P<style>https?://[^"]+)"[^>]*>"""
)
_PLOTLY_PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>html, body {{ height: 100%; margin: 0; font-family: sans-serif }}</style></head>
<body><div id="plot" style="height: 100%"></div>
<script type="application/json" id="figure">{figure}</script>
<script type="text/plain" id="library">{library}</script>
<script>
(async () => {{
  const text = (id) => document.getElementById(id).textContent;
  const packed = Uint8Array.from(atob(text("library")), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  Plotly.newPlot("plot", JSON.parse(text("figure")));
}})().catch((error) => {{
  document.getElementById("plot").textContent = "This figure could not be drawn: " + error;
}});
</script></body></html>
"""
_TITLE_LOCATIONS = ("center", "left", "right")
_printed_sentences: set[str] = set()


class TitleFormatter(formatters.BaseFormatter):
    """An IPython formatter for `TITLE_MIME`."""

    format_type = formatters.Unicode(TITLE_MIME)
    print_method = formatters.ObjectName("_repr_interpreter_bot_title_")
    _return_type = str

    def pop(self, typ: Any, default: Any = None) -> Any:
        """Keep all types, because matplotlib removes its figures from all formatters."""
        return default


def install(display_formatter: Any) -> None:
    """Register formatters for HTML displays, and hooks for libraries that are imported later."""
    # Both are read when the library is first imported.
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    os.environ.setdefault("BOKEH_RESOURCES", "inline")
    title_formatter = TitleFormatter(parent=display_formatter)
    title_formatter.for_type_by_name("matplotlib.figure", "Figure", _title_of_figure)
    display_formatter.formatters[TITLE_MIME] = title_formatter
    if display_formatter.active_types:
        display_formatter.active_types = [*display_formatter.active_types, TITLE_MIME]
    html_formatter = display_formatter.formatters[_HTML_MIME]
    html_formatter.for_type_by_name("bokeh.model.model", "Model", bokeh_page)
    html_formatter.for_type_by_name("folium.folium", "Map", folium_page)
    display_hooks.install()


def _title_of_figure(figure: Any) -> str | None:
    """Return the title of a matplotlib figure, or the first title of its axes."""
    try:
        titles = [figure.get_suptitle()]
        titles += [
            axes.get_title(location) for axes in figure.axes for location in _TITLE_LOCATIONS
        ]
    except Exception:
        # User code can break any of these objects; then the figure has no title.
        return None
    return next(filter(None, (display_previews.title_text(title) for title in titles)), None)


def close_blank_figures() -> None:
    """Close matplotlib figures without content, which failed code often leaves open."""
    plots: Any = sys.modules.get("matplotlib.pyplot")
    if plots is None:
        return
    try:
        # Not by their numbers, which would make each figure the current one.
        for manager in plots._pylab_helpers.Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if not (_has_content(figure) or any(map(_has_content, figure.axes))):
                plots.close(figure)
    except Exception:
        # User code can break any of these objects; then blank figures are shown.
        return


def _has_content(part: Any) -> bool:
    """Return whether a figure or axes have any content; a title alone does not count."""
    attributes = ("images", "texts", "lines", "patches", "artists", "legends", "tables")
    return any(getattr(part, attribute, ()) for attribute in attributes) or (
        hasattr(part, "has_data") and part.has_data()
    )


def add_visible_forms(data: dict[str, Any]) -> None:
    """Add forms that a person can see (HTML, preview picture) to a display's data."""
    try:
        with warnings.catch_warnings():
            # The person's output should have no warnings about code that is not theirs.
            warnings.simplefilter("ignore")
            _add_forms(data)
    except Exception:
        # User data and any version of a library may fail; the display is then sent unchanged.
        return


def _add_forms(data: dict[str, Any]) -> None:
    if "image/png" in data or PREVIEW_MIME in data:
        return
    if (figure := data.get(_PLOTLY_MIME)) is not None:
        _add_plotly(data, figure)
        return
    for mime in data:
        if (match := _VEGA_MIME.fullmatch(mime)) is not None:
            _add_vega(data, data.pop(mime), is_lite=match[1] == "vegalite")
            return
    for mime, sentence in _UNSUPPORTED.items():
        if mime in data and _HTML_MIME not in data:
            _print_once(sentence)
    if isinstance(svg := data.get(_SVG_MIME), str):
        _add_preview(data, display_previews.draw_svg(svg))
    elif isinstance(latex := data.get(_LATEX_MIME), str) and _HTML_MIME not in data:
        _add_preview(data, display_previews.draw_latex(latex))


def _add_preview(data: dict[str, Any], png: bytes | None) -> None:
    if png:
        data[PREVIEW_MIME] = base64.b64encode(png).decode()


def _add_plotly(data: dict[str, Any], figure: dict[str, Any]) -> None:
    title = display_previews.plotly_title(figure)
    document: dict[str, Any] = {
        name: figure[name] for name in ("data", "layout", "frames") if name in figure
    }
    # To fill the window at any size.
    document["config"] = {"responsive": True} | figure.get("config", {})
    data[_HTML_MIME] = _PLOTLY_PAGE.format(
        title=html.escape(title or "Figure"),
        figure=json.dumps(document).replace("<", "\\u003c"),
        library=_plotly_library(),
    )
    data[TITLE_MIME] = title
    data.setdefault(_PLAIN_MIME, display_previews.describe_plotly(figure))
    del data[_PLOTLY_MIME]
    _add_preview(data, display_previews.draw_plotly(figure))


@functools.cache
def _plotly_library() -> str:
    """Return plotly.js compressed: two megabytes per page rather than five."""
    from plotly import offline

    compressed = gzip.compress(offline.get_plotlyjs().encode(), 6, mtime=0)
    return base64.b64encode(compressed).decode()


def _add_vega(data: dict[str, Any], spec: dict[str, Any], *, is_lite: bool) -> None:
    title = spec.get("title", "")
    data[TITLE_MIME] = title if isinstance(title, str) else str(title.get("text", ""))
    data[_PLAIN_MIME] = f"A Vega chart {data[TITLE_MIME]}".rstrip()
    if importlib.util.find_spec("vl_convert") is None:
        data[_HTML_MIME] = _vega_page(spec, is_lite=is_lite)
        _print_once(
            "The page of an Altair chart can be opened only with a network connection here."
        )
        return
    converter = importlib.import_module("vl_convert")
    if is_lite:
        data[_HTML_MIME] = converter.vegalite_to_html(spec, bundle=True)
        _add_preview(data, converter.vegalite_to_png(spec, scale=2))
    else:
        data[_HTML_MIME] = converter.vega_to_html(spec, bundle=True)
        _add_preview(data, converter.vega_to_png(spec, scale=2))


def _vega_page(spec: dict[str, Any], *, is_lite: bool) -> str:
    """Return a page that fetches the Vega libraries, as Altair itself makes it."""
    altair = importlib.import_module("altair")
    page: str = importlib.import_module("altair.utils.html").spec_to_html(
        spec,
        mode="vega-lite" if is_lite else "vega",
        vega_version=altair.VEGA_VERSION,
        vegaembed_version=altair.VEGAEMBED_VERSION,
        vegalite_version=altair.VEGALITE_VERSION,
    )
    return page


def bokeh_page(model: Any) -> str:
    """Return the HTML page of a bokeh plot or layout."""
    title = getattr(getattr(model, "title", None), "text", "") or "Figure"
    inline = importlib.import_module("bokeh.resources").INLINE
    page: str = importlib.import_module("bokeh.embed").file_html(model, inline, title)
    return page


def folium_page(folium_map: Any) -> str:
    """Return the HTML page of a folium map, with scripts inlined if a package has them."""
    page: str = folium_map.get_root().render()
    try:
        library = importlib.import_module("offlinefolium.elements")._res
    except ImportError:
        _print_once("The page of a map can be opened only with a network connection.")
        return page
    _print_once(
        "The background of a map and the fonts of its icons come from the network, so they are "
        "missing here. They appear if you download the page and open it in a connected browser."
    )
    return inline_links(library, page)


def inline_links(library: dict[str, str], page: str) -> str:
    """Inline the scripts and styles of a page; `library` has their texts by address."""
    return _LINK.sub(functools.partial(_inline_link, library), page)


def _inline_link(library: dict[str, str], link: re.Match[str]) -> str:
    source = library.get(link["script"] or link["style"])
    if source is None:
        return link[0]
    if link["style"]:
        return f"<style>{source}</style>"
    return "<script>" + source.replace("</script", "<\\/script") + "</script>"


def _print_once(sentence: str) -> None:
    """Print a sentence to stderr, once per kernel."""
    if sentence not in _printed_sentences:
        _printed_sentences.add(sentence)
        sys.stderr.write(sentence + "\n")
