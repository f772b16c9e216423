"""Hooks for libraries that would open a window or a browser: they display their figures instead.

A library is hooked when code imports it; this module imports none. If a page cannot be shown,
stderr says so, which people and models see.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import os
import sys
import urllib.parse
import urllib.request
import warnings
import weakref
from typing import Any

from IPython import display, get_ipython
from IPython.core import pylabtools

from . import preloads

INLINE_BACKEND = "module://matplotlib_inline.backend_inline"
_HTML_SUFFIXES = (".html", ".htm")
_MAX_PICTURE_BYTES = 4 * 1024 * 1024
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16")

_saved_files: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()
"""By figure, the path of the file that it was saved to, and the file's modification time."""
_original_print_figure = pylabtools.print_figure


def install() -> None:
    """Hook the libraries that are imported, now or later."""
    pylabtools.print_figure = _print_figure
    preloads.after_import(
        {
            "PIL.ImageShow": _hook_pillow,
            "altair": _hook_altair,
            "bokeh.io.output": _hook_bokeh_output,
            "bokeh.io.showing": _hook_bokeh,
            "cv2": _hook_opencv,
            "folium.folium": _hook_folium,
            "matplotlib.figure": _hook_figure,
            "matplotlib.pyplot": _hook_pyplot,
            "matplotlib.text": _hook_text,
            "plotly.io._renderers": _hook_plotly,
            "plotly.offline.offline": _hook_plotly_offline,
            "tqdm.notebook": _hook_tqdm_notebook,
            "webbrowser": _hook_web_browser,
        }
    )


def _do_nothing(*_: Any, **__: Any) -> None:
    """Stand in for a function that has nothing to do here."""


def _hook_pyplot(module: Any) -> None:
    """Keep the backend that displays figures, even if code chooses another.

    `Agg`, which scripts choose for machines without a screen, would show nothing.
    """
    switch_backend = module.switch_backend

    def switch_to_inline(newbackend: str) -> None:
        switch_backend(INLINE_BACKEND)

    module.switch_backend = switch_to_inline
    shell = get_ipython()
    if shell is not None:
        shell.enable_matplotlib("inline")


def _hook_figure(module: Any) -> None:
    """Remember which file a figure was saved to, until it is changed."""
    savefig = module.Figure.savefig

    @functools.wraps(savefig)
    def save(figure: Any, fname: Any, **options: Any) -> Any:
        result = savefig(figure, fname, **options)
        if isinstance(fname, str | os.PathLike) and os.fspath(fname).endswith(".png"):
            path = os.path.abspath(fname)
            _saved_files[figure] = path, os.stat(path).st_mtime_ns
            # Each change of the figure marks it as stale again.
            figure.stale = False
        return result

    module.Figure.savefig = save


def _print_figure(figure: Any, fmt: str = "png", *args: Any, **options: Any) -> Any:
    """Draw a figure; if it was saved and has not changed since, return its file.

    The bot then recognizes the file as the same picture, and shows it once.
    """
    path, time_ns = _saved_files.get(figure, ("", 0))
    with contextlib.suppress(OSError):
        if fmt == "png" and path and not figure.stale and os.stat(path).st_mtime_ns == time_ns:
            with open(path, "rb") as file:
                data = file.read(_MAX_PICTURE_BYTES + 1)
            if data.startswith(b"\x89PNG") and len(data) <= _MAX_PICTURE_BYTES:
                return base64.b64encode(data).decode() if options.get("base64") else data
    return _original_print_figure(figure, fmt, *args, **options)


def _hook_text(module: Any) -> None:
    """Replace lone surrogates in texts, because matplotlib cannot draw a figure with any."""
    set_text = module.Text.set_text

    @functools.wraps(set_text)
    def set_valid_text(self: Any, s: Any) -> Any:
        if isinstance(s, str) and not s.isascii():
            s = s.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return set_text(self, s)

    module.Text.set_text = set_valid_text


def _hook_pillow(module: Any) -> None:
    def show(image: Any, title: str | None = None, **_: Any) -> bool:
        display.display(image if image.mode in _PNG_MODES else image.convert("RGB"))
        return True

    module.show = show


def _hook_opencv(module: Any) -> None:
    def imshow(winname: str, mat: Any) -> None:
        is_encoded, png = module.imencode(".png", mat)
        if is_encoded:
            display.display(display.Image(data=png.tobytes(), format="png"))

    def wait_key(*_: Any) -> int:
        return -1

    module.imshow = imshow
    module.waitKey = module.waitKeyEx = module.pollKey = wait_key
    for name in ("namedWindow", "moveWindow", "resizeWindow", "destroyWindow", "destroyAllWindows"):
        setattr(module, name, _do_nothing)


def _hook_bokeh(module: Any) -> None:
    """Make `show` display the figure: the original writes a file and looks for a browser."""

    def show(obj: Any, *_: Any, **__: Any) -> None:
        display.display(obj)

    module.show = show


def _hook_bokeh_output(module: Any) -> None:
    """Make `output_notebook` do nothing, because each page contains the library."""
    module.output_notebook = _do_nothing


def _hook_altair(module: Any) -> None:
    """Make charts display their Vega specification, which `html_displays` draws."""
    enable = module.renderers.enable

    def enable_mimetype(*_: Any, **__: Any) -> Any:
        return enable("mimetype")

    module.renderers.enable = enable_mimetype
    module.renderers.enable()


def _hook_folium(module: Any) -> None:
    """Display the map: the original waits for ever for somebody to close the browser."""
    module.Map.show_in_browser = display.display


def _hook_plotly(module: Any) -> None:
    """Display figures by their own MIME type: a renderer such as `browser` waits for ever."""
    show = module.show

    def show_in_answer(
        fig: Any, renderer: Any = None, validate: bool = True, **options: Any
    ) -> None:
        show(fig, renderer="plotly_mimetype", validate=validate, **options)

    module.show = show_in_answer


def _hook_plotly_offline(module: Any) -> None:
    module.init_notebook_mode = _do_nothing


def _hook_tqdm_notebook(module: Any) -> None:
    """Draw progress bars as text, because there are no widgets."""
    standard: Any = importlib.import_module("tqdm.std")
    module.IProgress = module.tqdm = module.tqdm_notebook = standard.tqdm
    module.trange = module.tnrange = standard.trange
    # `tqdm.autonotebook` says that it chose this module.
    warnings.filterwarnings("ignore", category=standard.TqdmExperimentalWarning)


def _hook_web_browser(module: Any) -> None:
    def open_in_answer(url: str, new: int = 0, autoraise: bool = True) -> bool:
        return _show_page(str(url))

    module.open = open_in_answer


def _show_page(url: str) -> bool:
    """Show a page that code has made, or say that a browser cannot be opened."""
    parts = urllib.parse.urlsplit(url)
    path = urllib.request.url2pathname(parts.path) if parts.scheme in ("file", "") else ""
    if not path.lower().endswith(_HTML_SUFFIXES) or not os.path.isfile(path):
        sys.stderr.write(f"No browser can be opened here. The address is {url}\n")
        return False
    with open(path, encoding="utf-8", errors="replace") as page:
        display.display(display.HTML(page.read()))
    return True
