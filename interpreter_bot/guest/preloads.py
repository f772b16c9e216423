"""Modules imported and state set up once, in the fork server, and renewed in each kernel."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import multiprocessing
import os
import random
import ssl
import sys
import tempfile
import uuid
from types import ModuleType

from . import import_hooks

_SEED_BYTES = 32

_FONT_PACKAGE = "mplfonts"
_FONT_FILE = "NotoSansCJKsc-Regular.otf"
_PLOT_DPI = 120

# Imported lazily by a kernel's first execution, which would therefore be slow.
_LAZY = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "faulthandler",
    "pdb",
    "psutil",
    "tornado.platform.asyncio",
)


def renew() -> None:
    """Reseed all module-level random generators, so that no two forked kernels draw the same
    numbers.
    """
    random.seed(os.urandom(_SEED_BYTES))
    ssl.RAND_add(os.urandom(_SEED_BYTES), 0.0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    multiprocessing.current_process().authkey = os.urandom(_SEED_BYTES)
    # Forked kernels all have the same pid, by which these two tell processes apart.
    tempfile._name_sequence = None  # type: ignore[attr-defined]
    uuid._last_timestamp = None  # type: ignore[attr-defined]
    uuid._node = uuid._random_getnode() if hasattr(uuid, "_random_getnode") else None  # type: ignore[attr-defined]


def load(modules: list[str]) -> dict[str, str]:
    """Import the modules that are installed.

    Returns:
        The missing ones, with the reason.
    """
    missing = {}
    # A debugger has no channel here, costs megabytes, and starts threads.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]
    for name in (*modules, *_LAZY):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    if "matplotlib" in sys.modules:
        importlib.import_module("matplotlib_inline.backend_inline")
    # Where it is not preloaded, upon its first import in a kernel.
    import_hooks.after_import({"matplotlib.font_manager": _set_up_plots})
    return missing


def _set_up_plots(font_manager: ModuleType) -> None:
    """Make plots sharp, and add a font for Chinese, Japanese and Korean."""
    import matplotlib

    matplotlib.rcParams["figure.dpi"] = _PLOT_DPI
    spec = importlib.util.find_spec(_FONT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return
    path = os.path.join(spec.submodule_search_locations[0], "fonts", _FONT_FILE)
    with contextlib.suppress(OSError):
        font_manager.fontManager.addfont(path)
        name = font_manager.get_font(path).family_name
        # A list of concrete families falls back glyph by glyph; a generic one does not.
        matplotlib.rcParams["font.family"] = ["DejaVu Sans", name]
