"""Cgroups, which bound, measure and freeze all processes of a session together.

`Cgroups.probe` finds out by trying what is usable: it creates a cgroup, sets limits, moves a
process in and removes the cgroup. It chooses version 2 if a subtree is delegated, else version 1 if
its hierarchies are writable, else none. Missing cgroups are no error.

The bot's cgroups are named `interpreter-bot-<pid>-<start>-<pid namespace>.<n>/kernel-<name>`, below
the bot's own cgroup, so that the bot's limits bound its kernels, too. The names tell `sweep` which
cgroups belong to dead bots.
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
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Final, Literal

from interpreter_bot import errors, settings
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

MAIN_GROUP_NAME: Final = "interpreter-bot.main"
"""Child cgroup that the bot moves to: in version 2, a cgroup has processes or bounded children."""
_REMOVE_SECONDS: Final = 2.0
_MAX_FILE_BYTES: Final = 64 * 1024
_INSTANCE_NAME_PATTERN: Final = re.compile(r"interpreter-bot-(\d+)-(\d+)-(\d+)\.\d+")
_numbers: Final = itertools.count(1)
_MEMORY_FILES: Final = (
    ("memory.current", "inactive_file"),
    ("memory.usage_in_bytes", "total_inactive_file"),
)
_ESCAPE_PATTERN: Final = re.compile(rb"\\([0-7]{3})")
_REQUIRED_CONTROLLERS: Final = ("memory", "pids", "cpu")
_PERIOD_MICROSECONDS: Final = 100_000
_MIN_QUOTA_MICROSECONDS: Final = 1_000
_EXTRA_PROCESSES: Final = 2
"""Room for the namespace's init, and for one process for clean-up."""
_GROUP_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

_WEIGHTS: Final = {
    1: (
        ("cpu", "cpu.shares", 1024),
        ("blkio", "blkio.weight", 500),
        ("blkio", "blkio.bfq.weight", 100),
    ),
    2: (("cpu", "cpu.weight", 100), ("io", "io.weight", 100), ("io", "io.bfq.weight", 100)),
}
"""Per version: controllers, their files, and the value of weight 1."""
_MIN_WEIGHT: Final = 10
_PROTECTED_BOT_BYTES: Final = 768 * settings.MIB
_READINGS: Final = {
    1: {
        "usage": ("memory", "memory.usage_in_bytes"),
        "cache": ("memory", "memory.stat", "total_inactive_file"),
        "ooms": ("memory", "memory.oom_control", "oom_kill"),
        "cpu": ("cpuacct", "cpuacct.usage"),
    },
    2: {
        "usage": ("memory", "memory.current"),
        "cache": ("memory", "memory.stat", "inactive_file"),
        "ooms": ("memory", "memory.events", "oom_kill"),
        "cpu": ("cpu", "cpu.stat", "usage_usec"),
    },
}
"""Per version: controller, file, and the key of the line if the file has several."""
_UNIFIED_KEY: Final = "unified"
"""Key of the version 2 hierarchy that freezes: there, frozen processes can be killed."""


class Group:
    """The cgroup of one session, in one directory (v2) or one per hierarchy (v1).

    Attributes:
        directories_by_controller: directory of each controller, in the order of joining.
        directories: all directories, each once.
        joined_directories: directories that processes join at their start; a freezer beside version
            1 is joined later.
        can_freeze: whether processes can be frozen.
    """

    def __init__(self, version: Literal[1, 2], directories_by_controller: dict[str, str]) -> None:
        self._version: Literal[1, 2] = version
        self.directories_by_controller = directories_by_controller
        self.directories = tuple(dict.fromkeys(directories_by_controller.values()))
        self._freezer = (
            directories_by_controller.get(_UNIFIED_KEY) if version == 1 else self.directories[0]
        )
        self.joined_directories = tuple(
            directory
            for directory in self.directories
            if version == 2 or directory != self._freezer
        )
        self.can_freeze = self._freezer is not None

    def add(self, pid: int) -> None:
        """Move a process, with all its threads but without its children, into the cgroup.

        The first write waits for an RCU grace period (5 to 30 ms on a busy machine), later ones
        take 0.1 ms. A process that joins by itself does not wait; see `entry_files`.

        Raises:
            errors.KernelStartError: the process has ended, or may not be moved.
        """
        try:
            for directory in self.joined_directories:
                write(directory, "cgroup.procs", pid)
        except OSError as error:
            raise errors.KernelStartError from error

    def entry_files(self) -> list[int]:
        """Open the files into which a single-threaded process writes `0` to join the cgroup itself.

        Joining that way takes 0.1 ms in version 1. The caller closes the descriptors; the process
        must close them before it runs user code.

        Raises:
            errors.KernelStartError: the cgroup was removed.
        """
        name = "tasks" if self._version == 1 else "cgroup.procs"
        with contextlib.ExitStack() as stack:
            descriptors = []
            try:
                for directory in self.joined_directories:
                    descriptors.append(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CLOEXEC))
                    stack.callback(os.close, descriptors[-1])
            except OSError as error:
                raise errors.KernelStartError from error
            stack.pop_all()
        return descriptors

    def set_frozen(self, is_frozen: bool) -> None:
        """Freeze or thaw all processes. Freezing may take some 20 ms."""
        if self._freezer is None:
            return
        with contextlib.suppress(OSError):  # The cgroup may have been removed.
            write(self._freezer, "cgroup.freeze", int(is_frozen))
        if is_frozen and self._freezer not in self.joined_directories:
            # Processes join the freezer only now, as joining takes long. Inside they are frozen, so
            # they fork no more.
            moved_pids: set[int] = set()
            while new_pids := processes(self.directories_by_controller["pids"]) - moved_pids:
                for pid in new_pids:
                    with contextlib.suppress(OSError):
                        write(self._freezer, "cgroup.procs", pid)
                moved_pids |= new_pids

    def memory_bytes(self) -> int:
        """Return the memory in use, without reclaimable file cache. 0 once removed."""
        return max(0, self._read("usage") - self._read("cache"))

    def oom_kills(self) -> int:
        """Return the number of processes killed by the OOM killer. Read it before `remove`."""
        return self._read("ooms")

    def cpu_seconds(self) -> float:
        """Return the cpu time of all processes, also ended ones; 0 if Linux does not count it."""
        return self._read("cpu") / (1e9 if self._version == 1 else 1e6)

    def set_weight(self, weight: float) -> None:
        """Set the session's part, in (0, 1], of its person's share of processor and disk."""
        for controller, file, full_weight in _WEIGHTS[self._version]:
            # The cgroup was removed, or Linux or its disk scheduler lacks the file.
            with contextlib.suppress(OSError, KeyError):
                value = max(_MIN_WEIGHT, round(full_weight * weight))
                write(self.directories_by_controller[controller], file, value)

    def kill(self) -> None:
        """Kill all processes without waiting, and prevent new ones."""
        for directory in self.directories:
            kill(directory, pids_directory=self.directories_by_controller["pids"])

    def remove(self) -> bool:
        """Kill all processes and remove the cgroup; blocks for up to 2 seconds.

        Returns:
            Whether it was removed; if not, the log says so, and a later `sweep` tries again.
        """
        self.kill()
        return all([remove(directory) for directory in self.directories])

    def _read(self, name: str) -> int:
        controller, file, *key = _READINGS[self._version][name]
        try:
            text = read(self.directories_by_controller[controller], file)
        except (OSError, KeyError):  # The cgroup is removed, or Linux lacks the file.
            return 0
        match = re.search(rf"^{key[0]} (\d+)" if key else r"(\d+)", text, re.MULTILINE)
        return int(match[1]) if match else 0


class Cgroups:
    """Cgroups usable on this machine, and those that this process created.

    Attributes:
        version: 2, 1, or 0 if none are usable.
        reason: one line for the log and the doctor: their directory, or why there are none.
        bases: directories of this process's cgroups, by controller.
        instance: name of the directory in each base that has the cgroups created here.
    """

    def __init__(
        self, version: Literal[0, 1, 2], reason: str, *, bases: dict[str, str] | None = None
    ) -> None:
        """Use `probe`."""
        self.version: Literal[0, 1, 2] = version
        self.reason = reason
        self.bases = bases or {}
        self.instance = instance_name() if self.bases else ""

    @classmethod
    def probe(
        cls, mode: Literal["auto", "off"], *, proc: pathlib.Path = pathlib.Path("/proc/self")
    ) -> Cgroups:
        """Find usable cgroups by trying; blocks for some 10 ms. Mode `off` uses none.

        In version 2 the bot may have to move itself into a child beside its kernels.
        """
        if mode == "off":
            return cls(0, "control groups are switched off")
        try:
            unified, hierarchies = own_cgroups(proc)
        except (OSError, ValueError) as error:
            return cls(0, f"no control groups: {error}")
        reasons = []
        candidates: list[tuple[Literal[1, 2], dict[str, str]]] = []
        if unified is not None:
            candidates.append((2, dict.fromkeys(_REQUIRED_CONTROLLERS, unified)))
        if all(name in hierarchies for name in _REQUIRED_CONTROLLERS):
            bases = {name: hierarchies[name] for name in _REQUIRED_CONTROLLERS}
            for name in ("cpuacct", "blkio"):
                if os.access(hierarchies.get(name, ""), os.W_OK):
                    bases[name] = hierarchies[name]
            if unified is not None and os.access(f"{unified}/cgroup.procs", os.W_OK):
                candidates.append((1, bases | {_UNIFIED_KEY: unified}))
            candidates.append((1, bases))
        for version, bases in candidates:
            try:
                return cls._try_version(version, bases)
            except (OSError, errors.BotError) as error:
                reasons.append(f"version {version}: {error.__cause__ or error}")
        return cls(0, "no control groups: " + ("; ".join(reasons) or "none are mounted"))

    @classmethod
    def _try_version(cls, version: Literal[1, 2], bases: dict[str, str]) -> Cgroups:
        if version == 2:
            base = claim(bases["memory"], _REQUIRED_CONTROLLERS)
            bases = dict.fromkeys(_REQUIRED_CONTROLLERS, base)
            with contextlib.suppress(OSError):  # Weights of disks are used if they are present.
                enable(base, ["io"])
                bases["io"] = base
        candidate = cls(version, f"version {version} beneath {bases['memory']}", bases=bases)
        try:
            for base in dict.fromkeys(bases.values()):
                os.mkdir(f"{base}/{candidate.instance}")
                if version == 2:
                    enable(f"{base}/{candidate.instance}", bases)
            candidate._favor_bot()
            group = candidate.create("probe", settings.Limits())
            try:
                _join_for_trial(group)
            finally:
                group.remove()
        except BaseException:
            candidate.close()
            raise
        return candidate

    def _favor_bot(self) -> None:
        """Give the bot and its fork server twice the weight of all kernels together."""
        directories = {name: f"{base}/{self.instance}" for name, base in self.bases.items()}
        Group(self.version or 1, directories).set_weight(0.5)
        # If the bot is in a child of its own, its memory is the last to be reclaimed.
        with contextlib.suppress(OSError):
            main_group = f"{self.bases['memory']}/{MAIN_GROUP_NAME}"
            write(main_group, "memory.low", _PROTECTED_BOT_BYTES)

    def create(
        self, name: str, limits: settings.Limits, *, headroom_bytes: int = 64 * settings.MIB
    ) -> Group:
        """Create a cgroup and set its limits, which takes some 0.5 ms.

        `headroom_bytes` are added for the memory of a kernel that has run no code yet.

        Raises:
            ValueError: the name is not 1 to 64 of letters, digits, `_`, `.` and `-`.
            errors.SandboxError: no cgroups are usable here.
            errors.KernelStartError: the cgroup could not be created.
        """
        if not _GROUP_NAME_PATTERN.fullmatch(name):
            raise ValueError(f"not a name for a control group: {name!r}")
        if self.version == 0:
            raise errors.SandboxError(host_words.this_machine_has(self.reason))
        # The prefix keeps a name from colliding with the kernel's own files, such as `tasks`.
        directories = {c: f"{b}/{self.instance}/kernel-{name}" for c, b in self.bases.items()}
        created_directories: list[str] = []
        try:
            for directory in dict.fromkeys(directories.values()):
                os.mkdir(directory)
                created_directories.append(directory)
            _set_limits(
                self.version, directories, limits, memory_bytes=limits.memory_bytes + headroom_bytes
            )
        except OSError as error:
            for directory in created_directories:
                remove(directory)
            raise errors.KernelStartError from error
        return Group(self.version, directories)

    def sweep(self) -> int:
        """Kill and remove the cgroups of dead bots, and return the number of bots. Blocks.

        Bots of other pid namespaces are left alone, as it is unknown whether they live.
        """
        dead_bots = set()
        for base in dict.fromkeys(self.bases.values()):
            for name in children(base):
                if is_of_dead_bot(name) and remove_tree(f"{base}/{name}"):
                    dead_bots.add(name)
        return len(dead_bots)

    def close(self) -> None:
        """Kill and remove every remaining cgroup of this process. Blocks."""
        for base in dict.fromkeys(self.bases.values()):
            remove_tree(f"{base}/{self.instance}")


def _set_limits(
    version: int, directories: dict[str, str], limits: settings.Limits, *, memory_bytes: int
) -> None:
    quota_microseconds = max(_MIN_QUOTA_MICROSECONDS, int(limits.cpu_cores * _PERIOD_MICROSECONDS))
    memory_directory, pids_directory, cpu_directory = (
        directories[name] for name in _REQUIRED_CONTROLLERS
    )
    write(pids_directory, "pids.max", limits.processes + _EXTRA_PROCESSES)
    if version == 1:
        write(memory_directory, "memory.limit_in_bytes", memory_bytes)
        swap_file, swap_limit_bytes = (
            "memory.memsw.limit_in_bytes",
            memory_bytes,
        )  # Memory and swap together.
    else:
        write(memory_directory, "memory.max", memory_bytes)
        swap_file, swap_limit_bytes = "memory.swap.max", 0
    with contextlib.suppress(FileNotFoundError):  # This Linux does not count swap.
        write(memory_directory, swap_file, swap_limit_bytes)
    if version == 2:
        write(cpu_directory, "cpu.max", f"{quota_microseconds} {_PERIOD_MICROSECONDS}")
        return
    write(cpu_directory, "cpu.cfs_period_us", _PERIOD_MICROSECONDS)
    try:
        write(cpu_directory, "cpu.cfs_quota_us", quota_microseconds)
    except OSError as error:
        # Version 1 refuses a quota larger than the bot's own, which then bounds the session, too.
        if error.errno != errno.EINVAL:
            raise


def _join_for_trial(group: Group) -> None:
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
    ) as process:
        group.add(process.pid)


# Functions on the file system of cgroups; all block.


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


def kill(directory: str, *, pids_directory: str) -> None:
    """Send SIGKILL to every process of a cgroup, without waiting. Never raises OSError.

    If the kernel has no `cgroup.kill`, `pids.max` in `pids_directory` is set to 0 first, so that
    no new process escapes.
    """
    try:
        write(directory, "cgroup.kill", 1)
    except OSError:  # Version 1, or a kernel before 5.14.
        with contextlib.suppress(OSError):
            write(pids_directory, "pids.max", 0)
        signalled_pids: set[int] = set()
        while new_pids := processes(directory) - signalled_pids:
            _kill_processes(new_pids, directory)
            signalled_pids |= new_pids


def _kill_processes(pids: set[int], directory: str) -> None:
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
        for pidfd in pidfds.values():
            os.close(pidfd)


def remove(directory: str) -> bool:
    """Remove a cgroup once its killed processes have left it; return whether it is removed."""
    deadline = time.monotonic() + _REMOVE_SECONDS
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
        kill(group, pids_directory=group)
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
        mount, _, file_system = entry.partition(b" - ")
        if not file_system.startswith((b"cgroup ", b"cgroup2 ")):
            continue
        root, mount_point = (_unescape(field) for field in mount.split()[3:5])
        if file_system.startswith(b"cgroup2 "):
            unified = unified or _mounted_path(paths.get("", "/.."), root, mount_point)
            continue
        for name in file_system.split()[-1].decode("ascii").split(","):
            if name in paths:
                hierarchies.setdefault(
                    name, _mounted_path(paths[name], root, mount_point) or mount_point
                )
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
            for name, cache in _MEMORY_FILES:
                if (usage := self.directory / name).exists():
                    words = (self.directory / "memory.stat").read_text("ascii").split()
                    cached_bytes = int(words[words.index(cache) + 1])
                    return self.limit_bytes - int(usage.read_text("ascii")) + cached_bytes
        return self.limit_bytes


def memory_groups(proc: pathlib.Path = pathlib.Path("/proc/self")) -> list[MemoryGroup]:
    """List the readable cgroups above this process whose memory has a limit."""
    try:
        unified, hierarchies = own_cgroups(proc)
    except (OSError, ValueError):
        return []
    groups = []
    for directory in [pathlib.Path(unified), *pathlib.Path(unified).parents] if unified else []:
        with contextlib.suppress(OSError, ValueError):  # There may be no limit.
            groups.append(
                MemoryGroup(directory, int((directory / "memory.max").read_text("ascii")))
            )
    if "memory" in hierarchies:
        # In version 1 this is the smallest limit of all cgroups above.
        directory = pathlib.Path(hierarchies["memory"])
        with contextlib.suppress(OSError):
            words = (directory / "memory.stat").read_text("ascii").split()
            limit_bytes = int(words[words.index("hierarchical_memory_limit") + 1])
            groups.append(MemoryGroup(directory, limit_bytes))
    return groups


def _unescape(field: bytes) -> str:
    return os.fsdecode(_ESCAPE_PATTERN.sub(lambda match: bytes([int(match[1], 8)]), field))


def _mounted_path(path: str, root: str, mount_point: str) -> str | None:
    """Return a cgroup's path below a mount of `root`; None if it is not mounted there."""
    relative_path = os.path.relpath(path, root)
    if relative_path.split("/")[0] == ".." or path.startswith("/.."):
        return None
    mounted_path = os.path.normpath(f"{mount_point}/{relative_path}")
    return mounted_path if os.path.isdir(mounted_path) else None


def claim(directory: str, controllers: Iterable[str]) -> str:
    """Enable controllers for children of this process's cgroup, of version 2.

    If needed, its processes move into the child `MAIN_GROUP_NAME` first.

    Returns:
        The directory to create cgroups in.

    Raises:
        OSError: the cgroup is not delegated, lacks controllers, or Linux refuses.
    """
    base = (
        os.path.dirname(directory) if os.path.basename(directory) == MAIN_GROUP_NAME else directory
    )
    needed_controllers = set(controllers)
    if missing_controllers := needed_controllers - _read_words(base, "cgroup.controllers"):
        raise OSError(f"{base} has no {', '.join(sorted(missing_controllers))} controller")
    # The root cgroup may have processes and bounded children, and has no type.
    is_root = not os.path.exists(f"{base}/cgroup.type")
    if not is_root and not _is_delegated(base):
        raise OSError(f"{base} is not delegated to the bot (systemd: Delegate=yes)")
    if needed_controllers <= _read_words(base, "cgroup.subtree_control"):
        return base
    moved_pids = set() if is_root else processes(base)
    try:
        if moved_pids:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{base}/{MAIN_GROUP_NAME}")
            _move(moved_pids, f"{base}/{MAIN_GROUP_NAME}")
        enable(base, needed_controllers)
    except OSError:
        _move(moved_pids, base)
        with contextlib.suppress(OSError):
            os.rmdir(f"{base}/{MAIN_GROUP_NAME}")
        raise
    return base


def enable(directory: str, controllers: Iterable[str]) -> None:
    """Enable controllers for the children of a version 2 cgroup. Raises OSError."""
    write(directory, "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))


def _read_words(directory: str, file: str) -> set[str]:
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
    # For root, write access proves nothing. A cgroup that is shared, with a shell for example, must
    # not be changed.
    return os.geteuid() != 0 and processes(base) <= {os.getpid()}


def instance_name() -> str:
    """Return a new name for a directory of cgroups, which identifies this process."""
    pid = os.getpid()
    number = next(_numbers)
    return f"interpreter-bot-{pid}-{session_metering.start_ticks(pid)}-{_namespace()}.{number}"


def is_of_dead_bot(name: str) -> bool:
    """Return whether `name` belongs to a dead bot of this pid namespace."""
    match = _INSTANCE_NAME_PATTERN.fullmatch(name)
    if match is None:
        return False
    pid, start, namespace = (int(part) for part in match.groups())
    return namespace == _namespace() and session_metering.start_ticks(pid) != start


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
