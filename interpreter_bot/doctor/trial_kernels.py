"""Probes of real kernels' walls, from inside and outside; `diagnosis` judges the results.

Small limits make it quick, and what is true of them is true of larger ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import json
import math
import os
import pathlib
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from interpreter_bot import errors, settings, values
from interpreter_bot.kernels import (
    launchers,
    live_kernels,
    package_installations,
    pools,
    provisioner_port,
    session_monitors,
)
from interpreter_bot.kernels.provisioning import (
    forkserver_clients,
    provisioners,
    subordinate_ids,
)
from interpreter_bot.skills import accepted_skills

_MEMORY_BYTES: Final = 256 * settings.MIB
_CHUNK_BYTES: Final = 8 * settings.MIB
_EXECUTION_SECONDS: Final = 15.0
_MOST_SECRETS: Final = 50
_KINDS: Final = ("user", "pid", "mnt", "net", "ipc", "uts")
_HOLD: Final = "import os, time\nheld = bytes({chunk})\n"
# In memfds, which no limit of a process bounds, or in several processes where there are none; then
# the code waits for a watchdog that only checks at times.
_OVER_MEMORY: Final = (
    _HOLD
    + "try:\n"
    + "    for _ in range({memory} // {chunk} + 16):\n"
    + "        os.write(os.memfd_create('doctor'), held)\n"
    + "except OSError:\n"
    + "    for _ in range(4):\n"
    + "        if not os.fork():\n"
    + "            held = bytearray(b'x') * ({memory} // 2)\n"
    + "            time.sleep(5)\n"
    + "            os._exit(0)\n"
    + "time.sleep(5)\n"
)
_OVER_WORKSPACE: Final = (
    _HOLD
    + "for number in range(2 * {workspace} // {chunk}):\n"
    + "    open(f'/mnt/data/doctor-{{number}}', 'wb').write(held)\n"
    + "time.sleep(5)\n"
)
_OVER_TEMPORARY: Final = (
    "import tempfile\n"
    + _HOLD
    + "for number in range(2 * {temporary} // {chunk}):\n"
    + "    open(f'{{tempfile.gettempdir()}}/doctor-{{number}}', 'wb').write(held)\n"
    + "time.sleep(5)\n"
)
_CROWD: Final = (
    "import os, signal, time\n"
    "for _ in range(2 * {processes}):\n"
    "    if not os.fork():\n"
    "        signal.pause()\n"
    "time.sleep(5)\n"
)
_SPIN: Final = """
import contextlib, os, threading
goes_on = True
def _spin():
    # All on the same one; where it may not be chosen, it is fixed to the first ones already.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while goes_on:
        pass
threading.Thread(target=_spin, daemon=True).start()
"""
_SHARED_MEMORY: Final = pathlib.Path("/dev/shm")  # noqa: S108
# By what keeps kernels apart. The first file is the beginning of the others.
_CHECKS: Final = {
    forkserver_clients.Walls.NAMESPACES: ("walls", "namespaces", "limits"),
    forkserver_clients.Walls.CONTAINER: ("walls", "container_walls", "limits"),
}
_FROZEN_SECONDS: Final = 0.3
_SMALL_WEIGHT: Final = 0.1
_WEIGHED_SECONDS: Final = 0.4
_SAVING_SECONDS: Final = 3.0
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
        small_share: what a session of a tenth of the weight of another got of a processor that
            both wanted.
        frozen_cores: cores that a busy thread used in a session that was frozen; None if none can.
        memory: how the session ended that used too much.
        oom_kills: how many of its processes the OOM killer killed in its cgroup.
        workspace: how the session ended that wrote too much.
        temporary: how it ended that wrote too many temporary files; None if these have a file
            system of their own.
        crowd: how one ended that had too many processes; None if the system refuses them.
        variables: what became of one that was saved when its kernel was lost; empty if it was back.
        groups_version: of cgroups; 0 without.
        groups_reason: where they are, or why there are none.
    """

    walls: forkserver_clients.Walls
    refusal: str
    shared_id_reason: str
    inside: Mapping[str, tuple[list[str], str]]
    outside: tuple[Outside, Outside]
    small_share: float
    frozen_cores: float | None
    memory: values.Finished
    oom_kills: int
    workspace: values.Finished
    temporary: values.Finished | None
    crowd: values.Finished | None
    variables: str
    groups_version: int
    groups_reason: str


async def probe(config: settings.Settings) -> ProbeResults:
    """Start two small kernels and run all checks; leaves nothing behind.

    Raises:
        BotError, OSError: no kernel could be started.
    """
    with tempfile.TemporaryDirectory(prefix="ib-", ignore_cleanup_errors=True) as name:
        small = _small(config, pathlib.Path(name))
        with _canaries(pathlib.Path(name), small, config) as told:
            async with pools.Pool.open(small) as pool:
                await asyncio.gather(pool.take("one"), pool.take("two"))
                seen = await _try(pool.live["one"], pool.live["two"], told, small.limits)
                variables, crowd = await _restore(pool, small.limits)
                temporary = await _fill_temporary(pool, small.limits)
                return dataclasses.replace(
                    seen, variables=variables, crowd=crowd, temporary=temporary
                )


def _small(config: settings.Settings, directory: pathlib.Path) -> settings.Settings:
    limits = settings.Limits(
        execution_seconds=_EXECUTION_SECONDS,
        memory_bytes=_MEMORY_BYTES,
        processes=32,
        cpu_cores=min(1.0, config.limits.cpu_cores),
        workspace_bytes=2 * _CHUNK_BYTES,
        disk_reserve_bytes=0,
        file_bytes=_CHUNK_BYTES,
        temporary_bytes=2 * _CHUNK_BYTES,
        open_files=128,
    )
    changes = {
        "limits": limits,
        "kernels": config.kernels.model_copy(
            update={"preload": (), "spares": 0, "concurrent": 2, "doors": True}
        ),
        "sandbox": config.sandbox.model_copy(update={"enabled": True}),
        "paths": settings.Paths(data=directory / "d", runtime=directory / "r"),
        "snapshots": config.snapshots.model_copy(
            update={"seconds": _SAVING_SECONDS, "end_seconds": _SAVING_SECONDS}
        ),
    }
    return config.model_copy(update=changes)


def _secrets(config: settings.Settings) -> list[str]:
    """List files that exist: the bot's own, and those that the settings in effect name."""
    found = [pathlib.Path(settings.__file__), *config.private_paths]
    with contextlib.suppress(OSError):
        found += sorted(config.paths.data.iterdir())[:_MOST_SECRETS]
    return [str(path.absolute()) for path in found if path.is_file()]


@contextlib.contextmanager
def _canaries(
    directory: pathlib.Path, small: settings.Settings, config: settings.Settings
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
                    str(small.paths.data),
                    str(small.paths.runtime),
                ],
                "socket_file": socket_file,
                "shared_places": [
                    str(small.paths.data / accepted_skills.DIRECTORY),
                    str(package_installations.directory(small)),
                ],
                "shared_memory": shared_memory,
                "host_name": os.uname().nodename,
                "landlock_abi": _landlock_abi(),
                "inode": [status.st_dev, status.st_ino],
                "port": tcp.getsockname()[1],
                "abstract": variable,
                "cmdline": pathlib.Path("/proc/self/cmdline").read_bytes().hex(),
                "preload": list(config.kernels.preload),
                "processors": os.cpu_count() or 1,
                "spinners": min(os.cpu_count() or 1, 2 * math.ceil(small.limits.cpu_cores)),
                **small.limits.model_dump(),
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
    limits: settings.Limits,
) -> ProbeResults:
    outside = (_outside(one.provisioner), _outside(two.provisioner))
    context = one.provisioner.host_context
    groups, walls = context.groups, context.server.walls
    told = told | {
        "has_namespaces": walls is forkserver_clients.Walls.NAMESPACES,
        "has_own_ids": context.uids.are_own,
        "is_by_affinity": not groups.version,
        "is_counted_by_bot": _counts_processes(context),
        "own_places": (*_own_places(one, walls), *told["shared_places"]),
    }
    told |= await _neighbours(two, told)
    before = _states(told["foreign_files"])
    inside: dict[str, tuple[list[str], str]] = {}
    with _listening(one.provisioner) as ports:
        for name in _CHECKS[walls]:
            inside |= await _look(one.kernel, f"in_kernel_{name}.py", told | {"doors": ports})
    if changed := [
        path for path, state in _states(told["foreign_files"]).items() if state != before[path]
    ]:
        inside["changes"] = ([f"{path} was changed" for path in changed], "")
    for launched in (one, two):
        await _run(launched.kernel, _SPIN)
    small_share = await _compete(one, two)
    frozen_cores = await _use_while_frozen(two) if two.provisioner.can_freeze else None
    for launched in (one, two):
        await _run(launched.kernel, "goes_on = False")
    sizes = {"chunk": _CHUNK_BYTES, "workspace": limits.workspace_bytes}
    workspace, memory = await asyncio.gather(
        _run(one.kernel, _OVER_WORKSPACE.format(**sizes)),
        _run(two.kernel, _OVER_MEMORY.format(chunk=_CHUNK_BYTES, memory=limits.memory_bytes)),
    )
    return ProbeResults(
        walls=walls,
        refusal=context.server.refusal,
        shared_id_reason=context.server.shared_id_reason,
        inside=inside,
        outside=outside,
        small_share=small_share,
        frozen_cores=frozen_cores,
        memory=memory[0],
        oom_kills=two.provisioner.usage().oom_kills(),
        workspace=workspace[0],
        temporary=None,
        crowd=None,
        variables="",
        groups_version=groups.version,
        groups_reason=groups.reason,
    )


def _counts_processes(context: provisioners.ProvisionerContext) -> bool:
    """Return whether the bot bounds the processes of a session, as the system does not."""
    is_counted = context.uids.are_own or context.groups.version > 0
    return context.server.walls is forkserver_clients.Walls.CONTAINER and not is_counted


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
    await _run(launched.kernel, "open('/mnt/data/neighbour', 'w').write('neighbour')")
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


async def _fill_temporary(pool: pools.Pool, limits: settings.Limits) -> values.Finished | None:
    """Let a session write too much; see `ProbeResults.temporary`."""
    kernel = await pool.take("three")
    if kernel.provisioner.host_context.server.walls is forkserver_clients.Walls.NAMESPACES:
        return None
    code = _OVER_TEMPORARY.format(chunk=_CHUNK_BYTES, temporary=limits.temporary_bytes)
    return (await _run(kernel, code))[0]


@contextlib.contextmanager
def _listening(provisioner: provisioner_port.Provisioner) -> Iterator[list[int]]:
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


async def _compete(one: launchers.LaunchedKernel, two: launchers.LaunchedKernel) -> float:
    """Weigh the second of two busy sessions less; returns its part of what both used then."""
    # Until the bot's own weights are set: they change with what is busy.
    await asyncio.sleep(2 * session_monitors.TICK_SECONDS)
    one.provisioner.set_weight(1.0)
    two.provisioner.set_weight(_SMALL_WEIGHT)
    usages = [launched.provisioner.usage() for launched in (one, two)]
    before = [usage.cpu_seconds() for usage in usages]
    await asyncio.sleep(_WEIGHED_SECONDS)
    used = [usage.cpu_seconds() - seconds for usage, seconds in zip(usages, before, strict=True)]
    return used[1] / sum(used) if sum(used) else 1.0


async def _use_while_frozen(launched: launchers.LaunchedKernel) -> float:
    """Freeze a session with a busy thread; returns how many cores it used meanwhile."""
    usage = launched.provisioner.usage()
    await launched.kernel.freeze()
    await asyncio.sleep(_FROZEN_SECONDS)
    before, began = usage.cpu_seconds(), time.monotonic()
    await asyncio.sleep(_FROZEN_SECONDS)
    return (usage.cpu_seconds() - before) / (time.monotonic() - began)


async def _restore(pool: pools.Pool, limits: settings.Limits) -> tuple[str, values.Finished | None]:
    """Let a session save a variable, and lose its kernel.

    Returns:
        `ProbeResults.variables` and `crowd`.
    """
    kernel, crowd = await pool.take("three"), None
    if pool.snapshots.is_used:
        await _run(kernel, "kept = [1]")
        await pool.save_variables("three")
    if _counts_processes(kernel.provisioner.host_context):
        crowd, _ = await _run(kernel, _CROWD.format(processes=limits.processes))
    if not pool.snapshots.is_used:
        return "snapshots.enabled is false", crowd
    kernel.kill_with_reason(values.Ending.STOPPED, "It was tried what comes back.")
    await kernel.provisioner.ended.wait()
    other = await pool.take("three")
    _, printed = await _run(other, "print(kept)")
    return "" if printed == "[1]\n" else other.restore_notice or "it was not saved", crowd


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


def _outside(provisioner: provisioner_port.Provisioner) -> Outside:
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
