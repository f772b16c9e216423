"""The environment that code runs in: where it is, and how uv makes it from the locks.

It is apart from the bot's, so that code sees none of the bot's libraries.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from interpreter_bot import errors

if TYPE_CHECKING:
    from interpreter_bot import settings

GROUPS: Final = ("core", "full", "media")
STATE: Final = ".libraries.json"
"""In an environment that was made here: which groups it has, and of which locks."""
_HERE: Final = pathlib.Path(__file__).parent
_NAME: Final = re.compile(r"[\w.-]+")
# Compiles all but tests. Templates, and code for other Pythons, cannot be compiled.
_COMPILE: Final = """
import compileall, os, re, sys
os.nice(int(sys.argv[2]))
compileall.compile_dir(sys.argv[1], quiet=2, workers=0, rx=re.compile("/(tests?|third_party)/"))
"""
_IDLE_PRIORITY: Final = 19
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
_MISSING: Final = (
    "The Python for code is not installed yet ({place}). Run `interpreter-bot libraries`, or set "
    "kernels.python."
)
_FAILED: Final = (
    "The libraries for code could not be installed: {reason}. Try `interpreter-bot libraries` "
    "again, or set kernels.python to a Python that has ipykernel and cloudpickle."
)


def python(config: settings.Settings) -> pathlib.Path:
    """Return the kernels' Python.

    Raises:
        KernelStartError: it is to be made by `ensure`, and was not.
    """
    if config.kernels.python is not None:
        return config.kernels.python
    executable = _executable(_place(config))
    if not executable.exists():
        raise errors.KernelStartError(_MISSING.format(place=executable.parents[1]))
    return executable


def ensure(config: settings.Settings, report: Callable[[str], object]) -> None:
    """Make the kernels' environment if it is missing, or older than the locks.

    Its modules are compiled behind it, in a process that outlives this one.

    Raises:
        KernelStartError: it cannot be made; the sentence says why.
    """
    if config.kernels.python is not None:
        return
    place = _place(config)
    is_made_by_another_user = _executable(place).exists() and not os.access(place, os.W_OK)
    if not is_made_by_another_user and _fill(place, _groups(place), report):
        _compile(place, _IDLE_PRIORITY)


def install(
    config: settings.Settings, report: Callable[[str], object], *, groups: Collection[str]
) -> None:
    """Make the kernels' environment with some groups, or update those that it has.

    Raises:
        KernelStartError: it cannot be made; the sentence says why.
    """
    place = _place(config)
    chosen = {*groups, *_groups(place)}
    _fill(place, [group for group in GROUPS if group in chosen], report)
    _compile(place).wait()


def _fill(place: pathlib.Path, groups: Collection[str], report: Callable[[str], object]) -> bool:
    """Fill an environment with what the locks of some groups name; says whether it was another.

    Raises:
        KernelStartError: it cannot be made; the sentence says why.
    """
    expected = _expected(groups)
    if _state(place) == expected:
        return False
    try:
        place.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        with open(f"{place}.lock", "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            state = _state(place)
            if state == expected:
                return False
            report(f"Installing {_count(groups)} libraries for code…\n")
            began = time.monotonic()
            if state.get("python") != expected["python"] or not _executable(place).exists():
                import venv

                # A copied Python has an AppArmor profile of its own, so this one is copied too.
                links = sys.prefix == sys.base_prefix or os.path.islink(sys.executable)
                venv.EnvBuilder(clear=True, symlinks=links).create(place)
            (place / STATE).write_text(json.dumps(expected | {"locks": ""}))
            _sync(place, groups)
            (place / STATE).write_text(json.dumps(expected))
            report(f"Installed them in {time.monotonic() - began:.0f} s.\n")
    except OSError as error:
        raise errors.KernelStartError(_FAILED.format(reason=error)) from error
    return True


def _compile(place: pathlib.Path, niceness: int = 0) -> subprocess.Popen[bytes]:
    """Begin to write the modules' bytecode, which kernels cannot: they only read them."""
    command = [str(_executable(place)), "-I", "-c", _COMPILE, str(place / "lib"), str(niceness)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def promised() -> frozenset[str]:
    """Return the names of all packages that the lists name, not of what those need."""
    lines = [line for group in GROUPS for line in _lines(_HERE / f"{group}.in")]
    return frozenset(match[0].lower() for match in map(_NAME.match, lines) if match)


def _place(config: settings.Settings) -> pathlib.Path:
    beside = pathlib.Path(sys.prefix, "kernels")
    has_own_prefix = sys.prefix != sys.base_prefix
    if has_own_prefix and (beside.exists() or os.access(sys.prefix, os.W_OK)):
        return beside
    return config.paths.data / "kernels"


def _executable(place: pathlib.Path) -> pathlib.Path:
    return place / "bin" / "python"


def _state(place: pathlib.Path) -> dict[str, object]:
    try:
        return dict(json.loads((place / STATE).read_text()))
    except (OSError, ValueError):
        return {}


def _groups(place: pathlib.Path) -> list[str]:
    groups = _state(place).get("groups")
    return [group for group in groups if group in GROUPS] if isinstance(groups, list) else ["core"]


def _expected(groups: Collection[str]) -> dict[str, object]:
    locks = b"".join(_lock(group).read_bytes() for group in groups)
    return {
        "groups": list(groups),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "locks": hashlib.sha256(locks).hexdigest(),
    }


def _lock(group: str) -> pathlib.Path:
    return _HERE / f"{group}.lock"


def _lines(path: pathlib.Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and line[0] not in " #"]


def _count(groups: Collection[str]) -> int:
    return len({line for group in groups for line in _lines(_lock(group))})


def _sync(place: pathlib.Path, groups: Collection[str]) -> None:
    """Run uv, with the index and the cache that it is set up with.

    Raises:
        KernelStartError: it failed; the sentence says why.
    """
    command = [os.path.join(sysconfig.get_path("scripts"), "uv"), "pip", "sync", "--quiet"]
    command += ["--require-hashes", "--only-binary", ":all:", "--python", str(_executable(place))]
    if os.path.exists(_CERTIFICATES):
        command.append("--system-certs")
    done = subprocess.run(
        [*command, *(str(_lock(group)) for group in groups)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise errors.KernelStartError(
            _FAILED.format(reason=" ".join(done.stderr.split()).rstrip("."))
        )
