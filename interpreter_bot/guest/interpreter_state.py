"""State of a kernel's process that code may have changed, besides its variables.

Only differences from a new session are saved: working directory, search path, environment, random
numbers, and the options of matplotlib and pandas. They are restored before the variables.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

State = dict[str, Any]

_initial_path: list[str] = []
_initial_environment: dict[str, str] = {}
_initial_matplotlib_options: dict[str, Any] = {}
_initial_pandas_options: dict[str, Any] = {}


def record_initial_state() -> None:
    """Record the current state as that of a new session.

    Matplotlib's options are recorded at the first call only, in the fork server, because reading
    them takes longer than all the rest. `record_pandas_options` records those of pandas.
    """
    _initial_path[:] = sys.path
    _initial_environment.clear()
    _initial_environment.update(os.environ)
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib and not _initial_matplotlib_options:
        _initial_matplotlib_options.update(matplotlib.rcParams)


def record_pandas_options(pandas: Any) -> None:
    """Record the options of pandas, which was just imported, as those of a new session."""
    _initial_pandas_options.update(_pandas_options(pandas))


def add_environment_variables(variables: dict[str, str]) -> None:
    """Set environment variables that belong to this kernel, and are not saved."""
    os.environ.update(variables)
    _initial_environment.update(variables)


def collect() -> State:
    """Return the differences from a new session; every value can be pickled.

    Items that cannot be collected are left out: a deleted working directory, for example, or an
    option that code has broken.
    """
    collectors: dict[str, Callable[[], Any]] = {
        "directory": os.getcwd,
        "path": lambda: [entry for entry in sys.path if entry not in _initial_path],
        "environment": lambda: {
            name: value
            for name, value in os.environ.items()
            if _initial_environment.get(name) != value
        },
        "unset": lambda: [name for name in _initial_environment if name not in os.environ],
        "random": random.getstate,
    }
    if numpy := sys.modules.get("numpy"):
        collectors["numpy"] = lambda: numpy.random.get_state()
    if matplotlib := sys.modules.get("matplotlib"):
        collectors["matplotlib"] = lambda: _matplotlib_options(matplotlib)
    if pandas := sys.modules.get("pandas"):
        collectors["pandas"] = lambda: {
            name: value
            for name, value in _pandas_options(pandas).items()
            if _initial_pandas_options.get(name, value) != value
        }
    state: State = {}
    for name, collect_item in collectors.items():
        try:
            value = collect_item()
            pickle.dumps(value)
        except Exception:
            # A library that code changed may raise anything.
            continue
        state[name] = value
    return state


def _matplotlib_options(matplotlib: Any) -> dict[str, Any]:
    initial = _initial_matplotlib_options or matplotlib.rcParamsDefault
    return {
        name: value
        for name, value in matplotlib.rcParams.items()
        if not name.startswith("backend") and initial.get(name) != value
    }


def _pandas_options(pandas: Any) -> dict[str, Any]:
    """Return, by their full names, the options whose values are plain."""
    values: dict[str, Any] = {}

    def collect_values(options: Any, prefix: str) -> None:
        for name in dir(options):
            value = getattr(options, name)
            if type(value) is type(pandas.options):
                collect_values(value, f"{prefix}{name}.")
            elif isinstance(value, (bool, int, float, str, type(None))):
                values[f"{prefix}{name}"] = value

    with warnings.catch_warnings():
        # Some options are deprecated.
        warnings.simplefilter("ignore")
        collect_values(pandas.options, "")
    return values


def restore(state: State) -> None:
    """Restore the state that `collect` returned, in a process that has just started.

    Raises:
        Exception: a library rejects a value that an earlier release accepted, or the working
            directory is gone. Everything else is restored.
    """
    os.environ.update(state.get("environment", {}))
    for name in state.get("unset", ()):
        os.environ.pop(name, None)
    sys.path += [entry for entry in state.get("path", ()) if entry not in sys.path]
    # The stack calls all of them, even if some raise.
    with contextlib.ExitStack() as stack:
        if "directory" in state:
            stack.callback(os.chdir, state["directory"])
        if "random" in state:
            stack.callback(random.setstate, state["random"])
        if "numpy" in state:
            import numpy

            stack.callback(numpy.random.set_state, state["numpy"])
        if state.get("matplotlib"):
            import matplotlib

            for name, value in state["matplotlib"].items():
                stack.callback(matplotlib.rcParams.__setitem__, name, value)
        if state.get("pandas"):
            import pandas

            for name, value in state["pandas"].items():
                stack.callback(pandas.set_option, name, value)
