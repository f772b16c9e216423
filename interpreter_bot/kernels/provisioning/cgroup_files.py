"""The cgroup file system: the cgroups of this process, and operations on their files.

Functions block and work on directories. `cgroups` decides which cgroups exist, and their limits.
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
"""Child that the bot moves itself into: a cgroup v2 has processes or bounded children, not both."""
_REMOVE_SECONDS: Final = 2.0
_MAX_FILE_BYTES: Final = 64 * 1024
_INSTANCE: Final = re.compile(r"interpreter-bot-(\d+)-(\d+)-(\d+)\.\d+")
_numbers: Final = itertools.count(1)
_USAGES: Final = (
    ("memory.current", "inactive_file"),
    ("memory.usage_in_bytes", "total_inactive_file"),
)
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


def write(directory: str, file: str, value: str | int) -> None:
    """Write an existing file of a cgroup; an OSError if Linux refuses."""
    descriptor = os.open(f"{directory}/{file}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode("ascii"))
    finally:
        os.close(descriptor)


def read(directory: str, file: str) -> str:
    """Read a short file of a cgroup; an OSError if Linux refuses.

    Faster than `pathlib` by a factor of three: each kernel's files are read several times a second.
    """
    descriptor = os.open(f"{directory}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES).decode("ascii")
    finally:
        os.close(descriptor)


def processes(directory: str) -> set[int]:
    """Return the process ids in a cgroup, without its children; empty if it does not exist."""
    try:
        text = pathlib.Path(directory, "cgroup.procs").read_text("ascii")
    except OSError:
        return set()
    # 0 stands for a process of another pid namespace.
    return {int(line) for line in text.split()} - {0}


def kill(directory: str, *, forks_of: str) -> None:
    """Send SIGKILL to every process of a cgroup, without waiting. Never raises OSError.

    Where needed, `pids.max` in the directory `forks_of` is set to 0 first, so that no new process
    escapes.
    """
    try:
        write(directory, "cgroup.kill", 1)
    except OSError:  # Version 1, or a kernel before 5.14.
        with contextlib.suppress(OSError):
            write(forks_of, "pids.max", 0)
        signalled_pids: set[int] = set()
        while new_pids := processes(directory) - signalled_pids:
            _signal(new_pids, directory)
            signalled_pids |= new_pids


def _signal(pids: set[int], directory: str) -> None:
    pidfds: dict[int, int] = {}
    try:
        for pid in pids:
            with contextlib.suppress(OSError):
                pidfds[pid] = os.pidfd_open(pid)
        # Read again: a pid that is still listed was not recycled, so its descriptor is right.
        for pid in processes(directory) & pidfds.keys():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfds[pid], signal.SIGKILL)
    finally:
        for handle in pidfds.values():
            os.close(handle)


def remove(directory: str, *, seconds: float = _REMOVE_SECONDS) -> bool:
    """Remove a cgroup once its killed processes have left it; return whether it is removed."""
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
    """Kill and remove a cgroup and its children; return whether all are removed."""
    subgroups = [f"{directory}/{name}" for name in children(directory)]
    for group in (*subgroups, directory):
        kill(group, forks_of=group)
    return all([remove(group) for group in (*subgroups, directory)])


def children(directory: str) -> list[str]:
    """Return the names of a cgroup's children; empty if it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def own_cgroups(proc: pathlib.Path) -> tuple[str | None, dict[str, str]]:
    """Find the cgroups of this process by `cgroup` and `mountinfo` in the directory `proc`.

    Returns:
        The directory in version 2, if there is one; and for each controller of version 1 its
        directory, or the root of the hierarchy if the mount does not show this process's cgroup.

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
        root, point = (_unescape(field) for field in mount.split()[3:5])
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
        limit_bytes: limit of all its processes together.
    """

    directory: pathlib.Path
    limit_bytes: int

    def free_bytes(self) -> int:
        """Return the unused part of the limit, without file cache; the limit if unreadable."""
        with contextlib.suppress(OSError, ValueError):
            for name, cache in _USAGES:
                if (usage := self.directory / name).exists():
                    words = (self.directory / "memory.stat").read_text("ascii").split()
                    cached_bytes = int(words[words.index(cache) + 1])
                    return self.limit_bytes - int(usage.read_text("ascii")) + cached_bytes
        return self.limit_bytes


def memory_groups(proc: pathlib.Path = pathlib.Path("/proc/self")) -> list[MemoryGroup]:
    """List the readable cgroups above this process whose memory has a limit."""
    try:
        unified, places = own_cgroups(proc)
    except (OSError, ValueError):
        return []
    groups = []
    for place in [pathlib.Path(unified), *pathlib.Path(unified).parents] if unified else []:
        with contextlib.suppress(OSError, ValueError):  # The root has none; it may be "max".
            groups.append(MemoryGroup(place, int((place / "memory.max").read_text("ascii"))))
    if "memory" in places:
        # In version 1 this is the smallest limit of all cgroups above.
        place = pathlib.Path(places["memory"])
        with contextlib.suppress(OSError):
            words = (place / "memory.stat").read_text("ascii").split()
            limit_bytes = int(words[words.index("hierarchical_memory_limit") + 1])
            groups.append(MemoryGroup(place, limit_bytes))
    return groups


def _unescape(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))


def _mounted_path(path: str, root: str, point: str) -> str | None:
    """Return a cgroup's path below a mount of `root` at `point`; None if it is not mounted."""
    inside = os.path.relpath(path, root)
    if inside.split("/")[0] == ".." or path.startswith("/.."):
        return None
    mounted = os.path.normpath(f"{point}/{inside}")
    return mounted if os.path.isdir(mounted) else None


def claim(group: str, controllers: Iterable[str]) -> str:
    """Enable controllers for children of this process's cgroup, of version 2.

    If needed, its processes move into the child `MAIN` first.

    Returns:
        The directory to create cgroups in.

    Raises:
        OSError: the cgroup is not delegated, lacks controllers, or Linux refuses.
    """
    base = os.path.dirname(group) if os.path.basename(group) == MAIN else group
    needed = set(controllers)
    if missing := needed - _words(base, "cgroup.controllers"):
        raise OSError(f"{base} has no {', '.join(sorted(missing))} controller")
    # The root cgroup may have processes and bounded children, and has no type.
    is_root = not os.path.exists(f"{base}/cgroup.type")
    if not is_root and not _is_delegated(base):
        raise OSError(f"{base} is not delegated to the bot (systemd: Delegate=yes)")
    if needed <= _words(base, "cgroup.subtree_control"):
        return base
    moved_pids = set() if is_root else processes(base)
    try:
        if moved_pids:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{base}/{MAIN}")
            _move(moved_pids, f"{base}/{MAIN}")
        enable(base, needed)
    except OSError:
        _move(moved_pids, base)
        with contextlib.suppress(OSError):
            os.rmdir(f"{base}/{MAIN}")
        raise
    return base


def enable(directory: str, controllers: Iterable[str]) -> None:
    """Enable controllers for the children of a version 2 cgroup. Raises OSError."""
    write(directory, "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))


def could_enable(directory: str, controller: str) -> bool:
    """Enable a controller for the children of a version 2 cgroup; return whether it worked."""
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


def _is_delegated(base: str) -> bool:
    """Return whether a cgroup is delegated to this process, so that its processes may be moved."""
    if not os.access(f"{base}/cgroup.procs", os.W_OK) or not os.access(base, os.W_OK):
        return False
    for attribute in ("user.delegate", "trusted.delegate"):  # Set by systemd for Delegate=yes.
        with contextlib.suppress(OSError):
            if os.getxattr(base, attribute) == b"1":
                return True
    if os.path.ismount(base):  # A container's own namespace of groups.
        return True
    # To root everything is writable, which proves nothing. A cgroup that is shared with a shell,
    # say, must not be rearranged.
    return os.geteuid() != 0 and processes(base) <= {os.getpid()}


def instance_name() -> str:
    """Return a new name for a directory of cgroups, which identifies this process."""
    pid = os.getpid()
    number = next(_numbers)
    return f"interpreter-bot-{pid}-{session_metering.start_ticks(pid)}-{_namespace()}.{number}"


def is_left_over(name: str) -> bool:
    """Return whether `name` is that of an ended bot of this pid namespace."""
    match = _INSTANCE.fullmatch(name)
    if match is None:
        return False
    pid, start, namespace = (int(part) for part in match.groups())
    return namespace == _namespace() and session_metering.start_ticks(pid) != start


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
