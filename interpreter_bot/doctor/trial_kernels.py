"""Probes of real kernels' walls, from inside and outside; `diagnosis` judges the results."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import (
    launchers,
    live_kernels,
    package_installations,
    pools,
)
from interpreter_bot.kernels.provisioning import (
    forkserver_clients,
    provisioners,
    subordinate_ids,
)
from interpreter_bot.skills import accepted_skills

_MAX_CHECK_SECONDS: Final = 15.0
_MAX_SECRETS: Final = 50
_KINDS: Final = ("user", "pid", "mnt", "net", "ipc", "uts")
_SHARED_MEMORY: Final = pathlib.Path("/dev/shm")  # noqa: S108
# By what keeps kernels apart. The first file is the beginning of the others.
_CHECKS: Final = {
    forkserver_clients.Walls.NAMESPACES: ("walls", "namespaces"),
    forkserver_clients.Walls.CONTAINER: ("walls", "container_walls"),
}
_LOOK: Final = """
def _doctor(told):
    import json
    found = {}
    for check in CHECKS:
        try:
            found[check.__name__] = check(told)
        except Exception as error:
            found[check.__name__] = ([f"the probe failed: {error!r}"], "")
    print(told["mark"] + json.dumps(found))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Outside:
    """A session as the host sees it.

    Attributes:
        uids: host user ids of its init, which runs no user code, and its kernel.
        uid: that of its kernel.
        namespaces: kind to the identity of its kernel's namespace; empty if unreadable.
    """

    uids: frozenset[int]
    uid: int
    namespaces: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeResults:
    """Results of all probes.

    Attributes:
        walls: what the kernels are kept apart by.
        refusal: why namespaces were refused; empty where they were not.
        shared_id_reason: why sessions without namespaces have the bot's user id, where they do.
        inside: by check of the files `in_kernel_*`: (what went through, what was seen).
        outside: two sessions.
        can_freeze: whether idle sessions can be frozen.
        groups_version: of cgroups; 0 without.
        groups_reason: where they are, or why there are none.
    """

    walls: forkserver_clients.Walls
    refusal: str
    shared_id_reason: str
    inside: Mapping[str, tuple[list[str], str]]
    outside: tuple[Outside, Outside]
    can_freeze: bool
    groups_version: int
    groups_reason: str


async def probe(config: settings.Settings) -> ProbeResults:
    """Start two small kernels and run all checks; leaves nothing behind.

    Raises:
        BotError, OSError: no kernel could be started.
    """
    with tempfile.TemporaryDirectory(prefix="ib-", ignore_cleanup_errors=True) as name:
        trial = _trial_settings(config, pathlib.Path(name))
        with _canaries(pathlib.Path(name), trial, config) as told:
            async with pools.Pool.open(trial) as pool:
                await asyncio.gather(pool.take("one"), pool.take("two"))
                return await _try(pool.live["one"], pool.live["two"], told)


def _trial_settings(config: settings.Settings, directory: pathlib.Path) -> settings.Settings:
    limits: dict[str, object] = {"execution_seconds": _MAX_CHECK_SECONDS, "disk_reserve_bytes": 0}
    changes = {
        "limits": config.limits.model_copy(update=limits),
        "kernels": config.kernels.model_copy(
            update={"preload": (), "spares": 0, "concurrent": 2, "doors": True}
        ),
        "sandbox": config.sandbox.model_copy(update={"enabled": True}),
        "paths": settings.Paths(data=directory / "d", runtime=directory / "r"),
        "snapshots": config.snapshots.model_copy(update={"enabled": False}),
    }
    return config.model_copy(update=changes)


def _secrets(config: settings.Settings) -> list[str]:
    """List files that exist: the bot's own, and those that the settings in effect name."""
    found = [*config.private_paths]
    with contextlib.suppress(OSError):
        found += sorted(config.paths.data.iterdir())[:_MAX_SECRETS]
    return [str(path.absolute()) for path in found if path.is_file()]


@contextlib.contextmanager
def _canaries(
    directory: pathlib.Path, trial: settings.Settings, config: settings.Settings
) -> Iterator[dict[str, Any]]:
    """Create what kernels must not find: files, a variable, a descriptor, three listeners."""
    # Open to all users, so that no file mode stands before the wall that is tried.
    directory.chmod(0o711)
    place = directory / "open"
    place.mkdir()
    file = place / "canary"
    file.write_text("canary")
    place.chmod(0o777)
    file.chmod(0o644)
    variable = f"DOCTOR_{os.urandom(8).hex()}"
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(file.open())
        os.set_inheritable(held.fileno(), True)
        status = os.fstat(held.fileno())
        tcp = stack.enter_context(socket.socket())
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        socket_file = str(place / "socket")
        for address in (f"\0{variable}", socket_file):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        pathlib.Path(socket_file).chmod(0o777)
        shared_memory = stack.enter_context(_shared_memory(variable))
        os.environ[variable] = "canary"
        try:
            yield {
                "mark": variable,
                "variable": variable,
                "files": [str(file), *_secrets(config), "/etc/shadow", "/etc/fstab"],
                "foreign_files": [str(file)],
                "foreign_directories": [
                    str(place),
                    str(trial.paths.data),
                    str(trial.paths.runtime),
                ],
                "socket_file": socket_file,
                "shared_places": [
                    str(trial.paths.data / accepted_skills.DIRECTORY),
                    str(package_installations.directory(trial)),
                ],
                "shared_memory": shared_memory,
                "host_name": os.uname().nodename,
                "landlock_abi": _landlock_abi(),
                "inode": [status.st_dev, status.st_ino],
                "port": tcp.getsockname()[1],
                "abstract": variable,
                "cmdline": pathlib.Path("/proc/self/cmdline").read_bytes().hex(),
                "preload": list(config.kernels.preload),
            }
        finally:
            del os.environ[variable]


@contextlib.contextmanager
def _shared_memory(name: str) -> Iterator[str]:
    """Create a file of shared memory that only its owner may read; yields its path, or nothing."""
    path = _SHARED_MEMORY / name
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        yield ""
        return
    try:
        yield str(path)
    finally:
        path.unlink()


async def _try(
    one: launchers.LaunchedKernel,
    two: launchers.LaunchedKernel,
    told: dict[str, Any],
) -> ProbeResults:
    outside = (_outside(one.provisioner), _outside(two.provisioner))
    context = one.provisioner.host_context
    groups, walls = context.groups, context.server.walls
    told = told | {
        "has_namespaces": walls is forkserver_clients.Walls.NAMESPACES,
        "has_own_ids": context.uids.are_own,
        "own_places": (*_own_places(one, walls), *told["shared_places"]),
    }
    told |= await _neighbours(two, told)
    if walls is forkserver_clients.Walls.NAMESPACES:
        # In an image, where it is installed beside what code imports, it can be read without them.
        told["files"].append(settings.__file__)
    before = _states(told["foreign_files"])
    inside: dict[str, tuple[list[str], str]] = {}
    with _listening(one.provisioner) as ports:
        for name in _CHECKS[walls]:
            inside |= await _look(one.kernel, f"in_kernel_{name}.py", told | {"doors": ports})
    if changed := [
        path for path, state in _states(told["foreign_files"]).items() if state != before[path]
    ]:
        inside["changes"] = ([f"{path} was changed" for path in changed], "")
    return ProbeResults(
        walls=walls,
        refusal=context.server.refusal,
        shared_id_reason=context.server.shared_id_reason,
        inside=inside,
        outside=outside,
        can_freeze=one.provisioner.can_freeze,
        groups_version=groups.version,
        groups_reason=groups.reason,
    )


def _own_places(
    launched: launchers.LaunchedKernel, walls: forkserver_clients.Walls
) -> tuple[str, ...]:
    """List directories of which a kernel has files open: as it knows them, or as the host does."""
    if walls is forkserver_clients.Walls.NAMESPACES or launched.workspace is None:
        return ("/tmp/", "/mnt/data")  # noqa: S108
    tools = launched.provisioner.host_context.runtime / "tools-"
    return str(launched.workspace.directory.parent), str(tools)


async def _neighbours(
    launched: launchers.LaunchedKernel, told: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe what the kernel that is tried must not reach of the bot and of another kernel."""
    await _run(launched.kernel, "open('neighbour', 'w').write('neighbour')")
    assert launched.workspace is not None, "it was taken for a session"  # noqa: S101
    directory = str(launched.workspace.directory)
    first, *_, kernel = launched.provisioner.usage().clocks()
    return {
        "files": [*told["files"], f"{directory}/neighbour"],
        "foreign_files": [*told["foreign_files"], f"{directory}/neighbour"],
        "foreign_directories": [*told["foreign_directories"], directory],
        "processes_of_others": {
            "the bot": os.getpid(),
            "another session's first process": first,
            "another session's kernel": kernel,
        },
    }


def _states(paths: Iterable[str]) -> dict[str, object]:
    """Describe files, for comparison."""
    return {path: _state(path) for path in paths}


def _state(path: str) -> object:
    try:
        status, attributes = os.stat(path), os.listxattr(path)
    except OSError as error:
        return error.errno
    return status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns, attributes


@contextlib.contextmanager
def _listening(provisioner: provisioners.ForkProvisioner) -> Iterator[list[int]]:
    """Listen at a kernel's doors; yields their ports."""
    found = provisioner.doors()
    if found is None:
        yield []
        return
    *sockets, process = found
    for door in sockets:
        door.listen()
    try:
        yield [door.getsockname()[1] for door in sockets]
    finally:
        for door in sockets:
            door.close()
        os.close(process)


async def _look(
    kernel: live_kernels.Kernel, file: str, told: dict[str, Any]
) -> dict[str, tuple[list[str], str]]:
    """Run one file of checks in a kernel; unanswered checks are missing in the result."""
    text = pathlib.Path(__file__).with_name(file).read_text("utf-8")
    _, printed = await _run(kernel, f"{text}\n{_LOOK}\n_doctor({told!r})")
    for line in printed.splitlines():
        if line.startswith(told["mark"]):
            found = json.loads(line.removeprefix(told["mark"]))
            return {name: (wrong, seen) for name, (wrong, seen) in found.items()}
    return {}


async def _run(kernel: live_kernels.Kernel, code: str) -> tuple[values.Finished, str]:
    printed: list[str] = []

    def show(output: values.Output) -> None:
        if isinstance(output, values.Text) and output.stream == "stdout":
            printed.append(output.text)

    finished = await kernel.execute(code, show=show)
    return finished, "".join(printed)


def _outside(provisioner: provisioners.ForkProvisioner) -> Outside:
    """Inspect a session that runs nothing yet: its init, then its kernel.

    Raises:
        KernelStartError: it has less than two processes.
    """
    pids = list(provisioner.usage().clocks())
    if len(pids) < 2:
        raise errors.KernelStartError
    # Init's namespaces are unreadable; the kernel is in the same, or deeper ones.
    namespaces = {kind: _namespace(pids[-1], kind) for kind in _KINDS}
    uids = _uids(pids[-1])
    return Outside(_uids(pids[0]) | uids, max(uids), namespaces)


def _uids(pid: int) -> frozenset[int]:
    """Return the real, effective, saved and file system user ids as the host counts them."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("Uid:"))
    return frozenset(subordinate_ids.on_host(int(uid)) for uid in line.split()[1:])


def _namespace(pid: int | str, kind: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return ""


def _landlock_abi() -> int:
    create_ruleset, version = 444, 1
    abi: int = ctypes.CDLL(None).syscall(create_ruleset, None, ctypes.c_size_t(0), version)
    return max(0, abi)


def own_namespaces() -> dict[str, str]:
    """Return the bot's own namespaces, for comparison."""
    return {kind: _namespace("self", kind) for kind in _KINDS}
