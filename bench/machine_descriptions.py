"""The machine and the versions that the figures were measured on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

_DISTRIBUTIONS = (
    "interpreter-bot",
    "jupyter_client",
    "ipykernel",
    "ipython",
    "pyzmq",
    "tornado",
    "numpy",
    "pandas",
    "matplotlib",
)


def describe() -> dict[str, Any]:
    """Describe this machine, its load and the installed versions."""
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _read_processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "load_average": os.getloadavg(),
        "is_root": os.geteuid() == 0,
        "python": platform.python_version(),
        "commit": _read_commit(),
        "versions": {name: importlib.metadata.version(name) for name in _DISTRIBUTIONS},
    }


def _read_processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor()


def _read_commit() -> str:
    """Return the measured commit, with a plus if files differ from it; empty without git."""
    directory = pathlib.Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--abbrev=12", "--dirty=+"]
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()
