"""Hooks that run right after a module's first import, without importing it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

Hook = Callable[[ModuleType], None]


class _Finder:
    """Meta path finder for modules with a waiting hook; other finders do the finding."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._waiting = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module; None, as for most, leaves it to the next finder."""
        hook = self._waiting.pop(name, None)
        if hook is None:
            return None
        # Its hook no longer waits, so this does not recurse.
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _run_after(spec.loader, hook)
        return spec


def _run_after(loader: Any, hook: Hook) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            hook(module)
        except Exception:
            # Any version of the module: its displays then stay as they would have been.
            return

    loader.exec_module = exec_module


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Run each hook once, when its module is imported; now, if it already is."""
    waiting = {}
    for name, hook in hooks.items():
        if (module := sys.modules.get(name)) is not None:
            hook(module)
        else:
            waiting[name] = hook
    sys.meta_path.insert(0, _Finder(waiting))
