"""Run a command as a plain user, of a root who has only himself: `python -m tests.unprivileged …`.

With `--subordinate` before the command, the user is granted subordinate ids, in /etc as the command
sees it; `tests/conftest.py` takes them.

A plain user could not even read us where the checkout or the interpreter lies below a home that
is closed to others. In a mount namespace of our own such a home is covered with an empty one,
and of all it held, only what the command needs is put back at its own path.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

GRANTED = "TESTS_WITH_SUBORDINATE_IDS"
USER = 1500
GRANTED_IDS = "1700000000:70000"
ROOT = pathlib.Path(__file__).resolve().parents[1]
NEEDED = (ROOT, pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix))
"""What every command reads, whoever it runs as."""
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID = 4096, 16384, 1 << 18, 2
_FOR_OTHERS = 0o001
libc = ctypes.CDLL(None, use_errno=True)


def main(command: list[str]) -> int:
    """Run `command`; returns its exit status."""
    is_granted = command[:1] == ["--subordinate"]
    command = command[is_granted:]
    if os.geteuid() or not command:
        sys.exit("usage, as root: python -m tests.unprivileged COMMAND…")
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    _uncover()
    with tempfile.TemporaryDirectory(prefix="plain-") as home:
        os.chown(home, USER, USER)
        if is_granted:
            _grant(home)
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(home) | {GRANTED: "1" if is_granted else ""},
            user=USER,
            group=USER,
            extra_groups=[],
            check=False,
        )
    # A shell's way to say which signal it was.
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def environment(home: str) -> dict[str, str]:
    """Return the variables that a command starts with, none of them the caller's."""
    return {
        "HOME": home,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{home}/.hypothesis",
    }


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Call mount(2); None for what it ignores."""
    arguments = [text and text.encode() for text in (source, target, kind)]
    result = libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None)
    check(result, f"mount {target}")


def check(result: int, call: str) -> None:
    """Raise OSError if a call of the C library failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), call)


def closed_parent(path: pathlib.Path) -> pathlib.Path | None:
    """Return the topmost directory on the way to `path` that others may not pass."""
    return next((p for p in reversed(path.parents) if not p.stat().st_mode & _FOR_OTHERS), None)


def _grant(home: str) -> None:
    """Give the user a name, and ids to give away."""
    lines = {
        "passwd": f"plain:x:{USER}:{USER}::{home}:/bin/sh",
        "subuid": f"plain:{GRANTED_IDS}",
        "subgid": f"plain:{GRANTED_IDS}",
    }
    for name, line in lines.items():
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(pathlib.Path("/etc", name).read_text() + line + "\n")
            file.flush()
            os.chmod(file.name, 0o644)
            mount(file.name, f"/etc/{name}", None, MS_BIND)


def _uncover() -> None:
    """Make directories reachable that lie below closed ones; everything else there disappears."""
    covers: dict[pathlib.Path, dict[pathlib.Path, int]] = {}
    for path in NEEDED:
        closed = closed_parent(path)
        if closed is not None:
            # Held before anything is covered: afterwards its name leads nowhere.
            covers.setdefault(closed, {})[path] = os.open(path, os.O_PATH | os.O_DIRECTORY)
    for closed, paths in covers.items():
        mount("cover", str(closed), "tmpfs", MS_NOSUID, "mode=0755,size=1m")
        for path, descriptor in sorted(paths.items()):
            if not any(other in path.parents for other in paths):
                path.mkdir(parents=True)
                mount(f"/proc/self/fd/{descriptor}", str(path), None, MS_BIND | MS_REC)
            os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
