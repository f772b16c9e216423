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
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_NOSUID = 4096, 16384, 1 << 18, 2
_FOR_OTHERS = 0o001
_libc = ctypes.CDLL(None, use_errno=True)


def main(command: list[str]) -> int:
    """Run `command`; returns its exit status."""
    is_granted = command[:1] == ["--subordinate"]
    command = command[is_granted:]
    if os.geteuid() or not command:
        sys.exit("usage, as root: python -m tests.unprivileged COMMAND…")
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    root = pathlib.Path(__file__).resolve().parents[1]
    _uncover([root, pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix)])
    with tempfile.TemporaryDirectory(prefix="plain-") as home:
        os.chown(home, USER, USER)
        if is_granted:
            _grant(home)
        environment = {
            GRANTED: "1" if is_granted else "",
            "HOME": home,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            user=USER,
            group=USER,
            extra_groups=[],
            check=False,
        )
    # A shell's way to say which signal it was.
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


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
            _mount(file.name, f"/etc/{name}", None, _MS_BIND)


def _uncover(needed: list[pathlib.Path]) -> None:
    """Make directories reachable that lie below closed ones; everything else there disappears."""
    covers: dict[pathlib.Path, dict[pathlib.Path, int]] = {}
    for path in needed:
        closed = next((p for p in reversed(path.parents) if _is_closed(p)), None)
        if closed is not None:
            # Held before anything is covered: afterwards its name leads nowhere.
            covers.setdefault(closed, {})[path] = os.open(path, os.O_PATH | os.O_DIRECTORY)
    for closed, paths in covers.items():
        _mount("cover", str(closed), "tmpfs", _MS_NOSUID, "mode=0755,size=1m")
        for path, descriptor in sorted(paths.items()):
            if not any(other in path.parents for other in paths):
                path.mkdir(parents=True)
                _mount(f"/proc/self/fd/{descriptor}", str(path), None, _MS_BIND | _MS_REC)
            os.close(descriptor)


def _is_closed(path: pathlib.Path) -> bool:
    return not path.stat().st_mode & _FOR_OTHERS


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    arguments = [text and text.encode() for text in (source, target, kind)]
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None)
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), what)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
