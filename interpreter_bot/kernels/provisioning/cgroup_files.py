"""The cgroup file system: the cgroups of this process, and operations on their files.

Everything here is blocking and works on directories; limits of a session, and which cgroups there
are, are the subject of `cgroups`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import logging
import os
import pathlib
import re
import signal
import time
from collections.abc import Iterable
from typing import Final

from interpreter_bot.kernels.metering import session_metering

_log = logging.getLogger(__name__)

MAIN: Final = "interpreter-bot.main"
"""Leaf that the bot moves itself into: a cgroup v2 has processes or bounded children, not both."""
_REMOVE_SECONDS: Final = 2.0
_SHORT_BYTES: Final = 64 * 1024
_INSTANCE: Final = re.compile(r"interpreter-bot-(\d+)-(\d+)-(\d+)\.\d+")
_numbers: Final = itertools.count(1)
_USAGES: Final = (
    ("memory.current", "inactive_file"),
    ("memory.usage_in_bytes", "total_inactive_file"),
)
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


def write(directory: str, file: str, value: str | int) -> None:
    """Write one of a cgroup's files; it is never created. Raises OSError as the kernel answers."""
    descriptor = os.open(f"{directory}/{file}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode("ascii"))
    finally:
        os.close(descriptor)


def read(directory: str, file: str) -> str:
    """Read one of a cgroup's files, of those that are short. Raises OSError as the kernel answers.

    A third of what `pathlib` takes; each kernel's are read several times a second.
    """
    descriptor = os.open(f"{directory}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _SHORT_BYTES).decode("ascii")
    finally:
        os.close(descriptor)


def processes(directory: str) -> set[int]:
    """Return the process ids in a cgroup itself, not beneath it. Empty when it is gone."""
    try:
        text = pathlib.Path(directory, "cgroup.procs").read_text("ascii")
    except OSError:
        return set()
    return {int(line) for line in text.split()} - {
        0
    }  # 0 stands for a process of another pid namespace.


def kill(directory: str, *, forks_of: str) -> None:
    """Send SIGKILL to every process of a cgroup, without waiting. Never raises OSError.

    Args:
        directory: the cgroup.
        forks_of: where its `pids.max` is, set to 0 first so that no fork escapes the signals.
    """
    try:
        write(directory, "cgroup.kill", 1)
    except OSError:  # Version 1, or a kernel before 5.14.
        with contextlib.suppress(OSError):
            write(forks_of, "pids.max", 0)
        signalled: set[int] = set()
        while fresh := processes(directory) - signalled:
            _signal(fresh, directory)
            signalled |= fresh


def _signal(pids: set[int], directory: str) -> None:
    handles: dict[int, int] = {}
    try:
        for pid in pids:
            with contextlib.suppress(OSError):
                handles[pid] = os.pidfd_open(pid)
        # Read again: a recycled pid is no longer listed, and for one still listed the handle is
        # right.
        for pid in processes(directory) & handles.keys():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
    finally:
        for handle in handles.values():
            os.close(handle)


def remove(directory: str, *, seconds: float = _REMOVE_SECONDS) -> bool:
    """Remove an emptied cgroup, waiting while killed processes leave it; returns whether it is
    gone.
    """
    deadline = time.monotonic() + seconds
    pause_seconds = 0.002
    while True:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                _log.warning("control group %s cannot be removed: %s", directory, error)
                return False
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, 0.05)
        else:
            return True


def remove_tree(directory: str) -> bool:
    """Kill and remove a cgroup and those right beneath it; returns whether they are gone."""
    beneath = [f"{directory}/{name}" for name in children(directory)]
    for each in (*beneath, directory):
        kill(each, forks_of=each)
    return all([remove(each) for each in (*beneath, directory)])


def children(directory: str) -> list[str]:
    """Return the names of the cgroups right beneath one. Empty when it is gone."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def own(proc: pathlib.Path) -> tuple[str | None, dict[str, str]]:
    """Find the cgroups of this process.

    Args:
        proc: the directory with `cgroup` and `mountinfo`, such as /proc/self.

    Returns:
        the directory in version 2, if there is one; and per controller that in version 1, or the
        root of its hierarchy where the mount does not show this process's cgroup.

    Raises:
        OSError: the two files cannot be read.
        ValueError: they are in an unknown format.
    """
    paths: dict[str, str] = {}
    for line in proc.joinpath("cgroup").read_text("utf-8", "surrogateescape").splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    unified: str | None = None
    hierarchies: dict[str, str] = {}
    for entry in proc.joinpath("mountinfo").read_bytes().splitlines():
        mount, _, kind = entry.partition(b" - ")
        if not kind.startswith((b"cgroup ", b"cgroup2 ")):
            continue
        root, point = (_unescaped(field) for field in mount.split()[3:5])
        if kind.startswith(b"cgroup2 "):
            unified = unified or _mounted_path(paths.get("", "/.."), root, point)
            continue
        for name in kind.split()[-1].decode("ascii").split(","):
            if name in paths:
                hierarchies.setdefault(name, _mounted_path(paths[name], root, point) or point)
    return unified, hierarchies


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A cgroup that bounds this process's memory.

    Attributes:
        directory: of the cgroup.
        limit_bytes: what everything in it may have together.
    """

    directory: pathlib.Path
    limit_bytes: int

    def free_bytes(self) -> int:
        """Return what is left of the limit, file cache not counted; all of it where unreadable."""
        with contextlib.suppress(OSError, ValueError):
            for name, cache in _USAGES:
                if (usage := self.directory / name).exists():
                    words = (self.directory / "memory.stat").read_text("ascii").split()
                    cached_bytes = int(words[words.index(cache) + 1])
                    return self.limit_bytes - int(usage.read_text("ascii")) + cached_bytes
        return self.limit_bytes


def memory_groups(proc: pathlib.Path = pathlib.Path("/proc/self")) -> list[MemoryGroup]:
    """List the cgroups around this process whose memory has a limit, as far as readable.

    Args:
        proc: as in `own`.
    """
    try:
        unified, places = own(proc)
    except (OSError, ValueError):
        return []
    found = []
    for place in [pathlib.Path(unified), *pathlib.Path(unified).parents] if unified else []:
        with contextlib.suppress(OSError, ValueError):  # The root has none; it may be "max".
            found.append(MemoryGroup(place, int((place / "memory.max").read_text("ascii"))))
    if "memory" in places:
        # One of version 1 has all limits above it, the least of which counts.
        place = pathlib.Path(places["memory"])
        with contextlib.suppress(OSError):
            words = (place / "memory.stat").read_text("ascii").split()
            limit_bytes = int(words[words.index("hierarchical_memory_limit") + 1])
            found.append(MemoryGroup(place, limit_bytes))
    return found


def _unescaped(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def _mounted_path(path: str, root: str, point: str) -> str | None:
    """Return where a cgroup is under a mount of `root` at `point`; None if it is not shown."""
    inside = os.path.relpath(path, root)
    if inside.split("/")[0] == ".." or path.startswith("/.."):
        return None
    found = os.path.normpath(f"{point}/{inside}")
    return found if os.path.isdir(found) else None


def claim(group: str, controllers: Iterable[str]) -> str:
    """Prepare a delegated version 2 cgroup for bounded children.

    Where needed, its processes move into the leaf `MAIN` beneath it.

    Args:
        group: the cgroup of this process.
        controllers: to be enabled for its children.

    Returns:
        the directory to create cgroups in.

    Raises:
        OSError: it is not delegated, lacks controllers, or the kernel refuses.
    """
    base = os.path.dirname(group) if os.path.basename(group) == MAIN else group
    wanted = set(controllers)
    if lacking := wanted - _words(base, "cgroup.controllers"):
        raise OSError(f"{base} has no {', '.join(sorted(lacking))} controller")
    # The root cgroup may have processes and bounded children, and has no type.
    is_root = not os.path.exists(f"{base}/cgroup.type")
    if not is_root and not _is_ours(base):
        raise OSError(f"{base} is not delegated to the bot (systemd: Delegate=yes)")
    if wanted <= _words(base, "cgroup.subtree_control"):
        return base
    moved = set() if is_root else processes(base)
    try:
        if moved:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{base}/{MAIN}")
            _move(moved, f"{base}/{MAIN}")
        enable(base, wanted)
    except OSError:
        _move(moved, base)
        with contextlib.suppress(OSError):
            os.rmdir(f"{base}/{MAIN}")
        raise
    return base


def enable(directory: str, controllers: Iterable[str]) -> None:
    """Enable controllers for the children of a version 2 cgroup. Raises OSError."""
    write(directory, "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))


def could_enable(directory: str, controller: str) -> bool:
    """Enable a controller for the children of a version 2 cgroup, if that can be had."""
    try:
        if controller not in _words(directory, "cgroup.subtree_control"):
            enable(directory, [controller])
    except OSError:
        return False
    return True


def _words(directory: str, file: str) -> set[str]:
    return set(pathlib.Path(directory, file).read_text("ascii").split())


def _move(pids: set[int], directory: str) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            write(directory, "cgroup.procs", pid)


def _is_ours(base: str) -> bool:
    """Return whether a whole cgroup is delegated to this process, so that its processes may be
    moved.
    """
    if not os.access(f"{base}/cgroup.procs", os.W_OK) or not os.access(base, os.W_OK):
        return False
    for mark in ("user.delegate", "trusted.delegate"):  # Set by systemd for Delegate=yes.
        with contextlib.suppress(OSError):
            if os.getxattr(base, mark) == b"1":
                return True
    if os.path.ismount(base):  # A container's own namespace of groups.
        return True
    # To root everything is writable, which proves nothing; and a cgroup shared with, say, a shell
    # must not be rearranged.
    return os.geteuid() != 0 and processes(base) <= {os.getpid()}


def instance_name() -> str:
    """Return a new name for a directory of this process's cgroups, which identifies the process."""
    pid = os.getpid()
    number = next(_numbers)
    return f"interpreter-bot-{pid}-{session_metering.start_ticks(pid)}-{_namespace()}.{number}"


def is_left_over(name: str) -> bool:
    """Return whether `name` is of a bot in this pid namespace that has ended."""
    match = _INSTANCE.fullmatch(name)
    if match is None:
        return False
    pid, start, namespace = (int(part) for part in match.groups())
    return namespace == _namespace() and session_metering.start_ticks(pid) != start


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
