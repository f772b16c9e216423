"""Run a command as a plain user, started by root: `python -m tests.unprivileged COMMAND…`.

With `--subordinate` before the command, the user is granted subordinate ids in the command's view
of /etc; `tests/conftest.py` takes them.

The checkout or the interpreter may lie below a home directory that other users cannot enter. Such a
home is covered with an empty one, in a mount namespace of the command; the directories that the
command needs are mounted again at their paths.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

SUBORDINATE_IDS_VARIABLE = "TESTS_WITH_SUBORDINATE_IDS"
USER = 1500
SUBORDINATE_ID_RANGE = "1700000000:70000"
ROOT = pathlib.Path(__file__).resolve().parents[1]
NEEDED_DIRECTORIES = (ROOT, pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix))
"""Directories that every command reads, as any user."""
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID = 4096, 16384, 1 << 18, 2
_SEARCHABLE_BY_OTHERS = 0o001
libc = ctypes.CDLL(None, use_errno=True)


def main(command: list[str]) -> int:
    """Run `command`; returns its exit status."""
    has_subordinate_ids = command[:1] == ["--subordinate"]
    command = command[has_subordinate_ids:]
    if os.geteuid() or not command:
        sys.exit("usage, as root: python -m tests.unprivileged COMMAND…")
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    _expose_needed_directories()
    with tempfile.TemporaryDirectory(prefix="plain-") as home:
        os.chown(home, USER, USER)
        if has_subordinate_ids:
            _grant_subordinate_ids(home)
        completed = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(home) | {SUBORDINATE_IDS_VARIABLE: "1" if has_subordinate_ids else ""},
            user=USER,
            group=USER,
            extra_groups=[],
            check=False,
        )
    # A shell reports a signal in the same way.
    return completed.returncode if completed.returncode >= 0 else 128 - completed.returncode


def environment(home: str) -> dict[str, str]:
    """Return the environment of a command, with none of the caller's variables."""
    return {
        "HOME": home,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{home}/.hypothesis",
    }


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Call mount(2); pass None for an argument that it ignores."""
    arguments = [text and text.encode() for text in (source, target, kind)]
    result = libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None)
    check(result, f"mount {target}")


def check(result: int, call: str) -> None:
    """Raise OSError if a C library call failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), call)


def closed_parent(path: pathlib.Path) -> pathlib.Path | None:
    """Return the topmost parent of `path` that other users may not pass."""
    return next(
        (p for p in reversed(path.parents) if not p.stat().st_mode & _SEARCHABLE_BY_OTHERS), None
    )


def _grant_subordinate_ids(home: str) -> None:
    """Give the user a name and subordinate ids."""
    lines = {
        "passwd": f"plain:x:{USER}:{USER}::{home}:/bin/sh",
        "subuid": f"plain:{SUBORDINATE_ID_RANGE}",
        "subgid": f"plain:{SUBORDINATE_ID_RANGE}",
    }
    for name, line in lines.items():
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(pathlib.Path("/etc", name).read_text() + line + "\n")
            file.flush()
            os.chmod(file.name, 0o644)
            mount(file.name, f"/etc/{name}", None, MS_BIND)


def _expose_needed_directories() -> None:
    """Cover directories that other users cannot enter, except the needed ones below them."""
    paths_by_parent: dict[pathlib.Path, dict[pathlib.Path, int]] = {}
    for path in NEEDED_DIRECTORIES:
        parent = closed_parent(path)
        if parent is not None:
            # Opened before anything is covered: afterwards the path leads nowhere.
            paths_by_parent.setdefault(parent, {})[path] = os.open(path, os.O_PATH | os.O_DIRECTORY)
    for parent, paths in paths_by_parent.items():
        mount("cover", str(parent), "tmpfs", MS_NOSUID, "mode=0755,size=1m")
        for path, descriptor in sorted(paths.items()):
            if not any(other in path.parents for other in paths):
                path.mkdir(parents=True)
                mount(f"/proc/self/fd/{descriptor}", str(path), None, MS_BIND | MS_REC)
            os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
