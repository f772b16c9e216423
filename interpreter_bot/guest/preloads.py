"""Modules imported and state set up once, in the fork server, and renewed in each kernel.

Other libraries are set up by a hook right after their first import.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import importlib.machinery
import importlib.util
import itertools
import logging
import multiprocessing
import os
import shutil
import ssl
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from . import interpreter_state

Hook = Callable[[ModuleType], None]


_SEED_BYTES = 32
_NUMPY_STATE_WORDS = 624

# Packages, and the pattern of their font's file.
_FONTS = {
    "mplfonts": "fonts/NotoSansCJKsc-Regular.otf",
    **{
        f"fontpkg_noto_sans_{script}": "files/*.ttf"
        for script in ("arabic", "devanagari", "tamil", "telugu", "thai")
    },
}
_FONT_LISTS = "share/matplotlib/fontlist-*.json"
_PLOT_DPI = 120

# Imported lazily by a kernel's first execution, which would therefore be slow.
_LAZY = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.guarded_eval",
    "IPython.core.oinspect",
    "faulthandler",
    "pdb",
    "psutil",
    "tornado.platform.asyncio",
)


class _Finder:
    """Meta path finder for modules with a pending hook; it delegates to the finders after it."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module; None, as for most, leaves it to the next finder."""
        if name not in self._hooks:
            return None
        # The finders before it have found nothing. One may be another `_Finder`: it would recurse.
        finders = itertools.dropwhile(lambda finder: finder is not self, sys.meta_path)
        later_finders = itertools.islice(finders, 1, None)
        finds = (finder.find_spec for finder in later_finders if hasattr(finder, "find_spec"))
        spec = next(filter(None, (find(name, path, target) for find in finds)), None)
        if spec is not None and spec.loader is not None:
            self._run_after(spec.loader, name)
        return spec

    def _run_after(self, loader: Any, name: str) -> None:
        """Run the hook when the loader executes the module: many searches never load one."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                if hook := self._hooks.pop(name, None):
                    hook(module)
            except Exception:
                # Any version of the module: its displays then stay as they would have been.
                return

        loader.exec_module = exec_module


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Run each hook once, when its module is imported; now, if it already is."""
    pending_hooks = {}
    for name, hook in hooks.items():
        if (module := sys.modules.get(name)) is not None:
            hook(module)
        else:
            pending_hooks[name] = hook
    sys.meta_path.insert(0, _Finder(pending_hooks))


def reseed() -> None:
    """Reseed the random generators of modules that `os.fork` does not reseed, as it does that of
    `random`: no two kernels may draw the same numbers.
    """
    ssl.RAND_add(os.urandom(_SEED_BYTES), 0.0)
    if numpy := sys.modules.get("numpy"):
        # A whole state: to make one of a seed, numpy would use a hundred pages more.
        state = numpy.frombuffer(os.urandom(4 * _NUMPY_STATE_WORDS), numpy.uint32)
        numpy.random.set_state(("MT19937", state, _NUMPY_STATE_WORDS))
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
    # If a library is not preloaded, the hook runs at its first import in a kernel.
    after_import(
        {
            "matplotlib": _bring_font_list,
            "matplotlib.font_manager": _set_up_plots,
            "pandas": interpreter_state.record_pandas_options,
        }
    )
    for name in (*modules, *_LAZY):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    if "matplotlib" in sys.modules:
        importlib.import_module("matplotlib_inline.backend_inline")
    return missing


def drop_fonts() -> None:
    """Close the font files that matplotlib has opened."""
    from matplotlib import font_manager

    with contextlib.suppress(AttributeError):
        # What it does after a fork; another version may do it otherwise.
        font_manager._get_font.cache_clear()  # type: ignore[attr-defined]


def _bring_font_list(matplotlib: ModuleType) -> None:
    """Put the list of the system's fonts where matplotlib keeps it; making it takes half a second.

    It is made with the environment that this Python is of.
    """
    for path in glob.glob(os.path.join(glob.escape(sys.prefix), _FONT_LISTS)):
        shutil.copy(path, matplotlib.get_cachedir())


def _set_up_plots(font_manager: ModuleType) -> None:
    """Make plots sharp, and add fonts for the scripts that matplotlib's own lacks."""
    import matplotlib

    # As preloaded, even if the working directory has a `matplotlibrc` now.
    matplotlib.rcdefaults()
    matplotlib.rcParams["figure.dpi"] = _PLOT_DPI
    # Missing fonts are replaced; otherwise each text of a plot would log a warning.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    names = ["DejaVu Sans"]
    for package, pattern in _FONTS.items():
        spec = importlib.util.find_spec(package)
        for directory in (spec and spec.submodule_search_locations) or ():
            for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
                with contextlib.suppress(OSError):
                    font_manager.fontManager.addfont(path)
                    names.append(font_manager.get_font(path).family_name)
    # A list of concrete families falls back glyph by glyph; a generic one does not.
    matplotlib.rcParams["font.family"] = names
