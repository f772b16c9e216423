"""Modules that the fork server imports for all kernels, and state that each kernel renews.

Hooks configure other libraries right after their first import.
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

# Packages, and the pattern of their font files.
_FONT_PACKAGES = {
    "mplfonts": "fonts/NotoSansCJKsc-Regular.otf",
    **{
        f"fontpkg_noto_sans_{script}": "files/*.ttf"
        for script in ("arabic", "devanagari", "tamil", "telugu", "thai")
    },
}
_FONT_LISTS = "share/matplotlib/fontlist-*.json"
_PLOT_DPI = 120

# A kernel's first execution would import these, and so be slow.
_LAZY_MODULES = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.guarded_eval",
    "IPython.core.oinspect",
    "faulthandler",
    "pdb",
    "psutil",
    "tornado.platform.asyncio",
)


class _HookFinder:
    """Meta path finder for modules with a pending hook; it delegates to the finders after it."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module; None, as for most, leaves it to the next finder."""
        if name not in self._hooks:
            return None
        # Only later finders are asked: earlier ones found nothing, and another `_HookFinder` among
        # them would recurse.
        finders = itertools.dropwhile(lambda finder: finder is not self, sys.meta_path)
        later_finders = itertools.islice(finders, 1, None)
        find_functions = (
            finder.find_spec for finder in later_finders if hasattr(finder, "find_spec")
        )
        spec = next(filter(None, (find(name, path, target) for find in find_functions)), None)
        if spec is not None and spec.loader is not None:
            self._run_after(spec.loader, name)
        return spec

    def _run_after(self, loader: Any, name: str) -> None:
        """Run the hook when the loader executes the module, as a found module may not be loaded."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                if hook := self._hooks.pop(name, None):
                    hook(module)
            except Exception:
                # Any exception, because the module may be of any version. It stays as it is.
                return

        loader.exec_module = exec_module


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Run each hook once, when its module is imported; now, if it is imported already."""
    pending_hooks = {}
    for name, hook in hooks.items():
        if (module := sys.modules.get(name)) is not None:
            hook(module)
        else:
            pending_hooks[name] = hook
    sys.meta_path.insert(0, _HookFinder(pending_hooks))


def reseed() -> None:
    """Reseed random generators, because no two kernels may draw the same numbers.

    `os.fork` reseeds only that of `random`.
    """
    ssl.RAND_add(os.urandom(_SEED_BYTES), 0.0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    multiprocessing.current_process().authkey = os.urandom(_SEED_BYTES)
    # These modules tell processes apart by the pid, which is the same in all kernels.
    tempfile._name_sequence = None  # type: ignore[attr-defined]
    uuid._last_timestamp = None  # type: ignore[attr-defined]
    uuid._node = uuid._random_getnode() if hasattr(uuid, "_random_getnode") else None  # type: ignore[attr-defined]


def load(modules: list[str]) -> dict[str, str]:
    """Import the modules that are installed.

    Returns:
        By name, why a module could not be imported.
    """
    import_errors = {}
    # The debugger would have no channel, but takes megabytes and starts threads.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]
    # If a library is not preloaded, the hook runs at its first import in a kernel.
    after_import(
        {
            "matplotlib": _copy_font_list,
            "matplotlib.font_manager": _configure_plots,
            "pandas": interpreter_state.record_pandas_options,
        }
    )
    for name in (*modules, *_LAZY_MODULES):
        try:
            importlib.import_module(name)
        except ImportError as error:
            import_errors[name] = str(error)
    if "matplotlib" in sys.modules:
        importlib.import_module("matplotlib_inline.backend_inline")
    return import_errors


def _copy_font_list(matplotlib: ModuleType) -> None:
    """Copy a list of the system's fonts to matplotlib's cache, which saves half a second.

    The installation of this Python's environment made the list.
    """
    for path in glob.glob(os.path.join(glob.escape(sys.prefix), _FONT_LISTS)):
        shutil.copy(path, matplotlib.get_cachedir())


def _configure_plots(font_manager: ModuleType) -> None:
    """Make plots sharp, and add fonts for scripts that matplotlib's font lacks."""
    import matplotlib

    # Ignore a `matplotlibrc` in the working directory, as when the library is preloaded.
    matplotlib.rcdefaults()
    matplotlib.rcParams["figure.dpi"] = _PLOT_DPI
    # Other fonts replace missing ones; do not log a warning for each text of a plot.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    names = ["DejaVu Sans"]
    for package, pattern in _FONT_PACKAGES.items():
        spec = importlib.util.find_spec(package)
        for directory in (spec and spec.submodule_search_locations) or ():
            for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
                with contextlib.suppress(OSError):
                    font_manager.fontManager.addfont(path)
                    names.append(font_manager.get_font(path).family_name)
    # matplotlib falls back glyph by glyph within a list of families, but not of generic ones.
    matplotlib.rcParams["font.family"] = names
