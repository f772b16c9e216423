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
    live_kernels,
    package_installations,
    pools,
)
from interpreter_bot.kernels.provisioning import (
    forkserver_clients,
    provisioners,
    start_parameters,
    subordinate_ids,
)
from interpreter_bot.skills import accepted_skills

_MAX_CHECK_SECONDS: Final = 15.0
_MAX_SECRETS: Final = 50
_NAMESPACE_KINDS: Final = ("user", "pid", "mnt", "net", "ipc", "uts")
_SHARED_MEMORY: Final = pathlib.Path("/dev/shm")  # noqa: S108
# Files of checks by kind of walls. The first file defines helpers that the others use.
_CHECK_FILES: Final = {
    forkserver_clients.Walls.NAMESPACES: ("walls", "namespaces"),
    forkserver_clients.Walls.CONTAINER: ("walls", "container_walls"),
}
_RUN_CHECKS: Final = """
def _doctor(facts):
    import json
    results = {}
    for check in CHECKS:
        try:
            results[check.__name__] = check(facts)
        except Exception as error:
            results[check.__name__] = ([f"the probe failed: {error!r}"], "")
    print(facts["mark"] + json.dumps(results))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class HostView:
    """A session as the host sees it.

    Attributes:
        uids: host user ids of its init, which runs no user code, and of its kernel.
        uid: the kernel's host user id.
        namespaces: kind to the identity of the kernel's namespace; empty if unreadable.
    """

    uids: frozenset[int]
    uid: int
    namespaces: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeResults:
    """Results of all probes.

    Attributes:
        walls: the kind of walls between kernels.
        refusal: why namespaces were refused; empty if they were not.
        shared_id_reason: why sessions without namespaces have the bot's user id; empty if they
            have their own.
        check_results: breaches and detail of each check in the files `in_kernel_*`, by its name.
        host_views: of two sessions.
        can_freeze: whether idle sessions can be frozen.
        groups_version: version of cgroups; 0 if there are none.
        groups_reason: where the cgroups are, or why there are none.
    """

    walls: forkserver_clients.Walls
    refusal: str
    shared_id_reason: str
    check_results: Mapping[str, tuple[list[str], str]]
    host_views: tuple[HostView, HostView]
    can_freeze: bool
    groups_version: int
    groups_reason: str


async def probe(config: settings.Settings) -> ProbeResults:
    """Start two small kernels, run all checks, and remove all files.

    Raises:
        BotError, OSError: a kernel could not be started.
    """
    with tempfile.TemporaryDirectory(prefix="ib-", ignore_cleanup_errors=True) as name:
        trial = trial_settings(config, pathlib.Path(name))
        with create_canaries(pathlib.Path(name), trial, config) as facts:
            async with pools.Pool.open(trial) as pool:
                await asyncio.gather(pool.take("one"), pool.take("two"))
                return await _probe_kernels(pool.kernels["one"], pool.kernels["two"], facts)


def trial_settings(config: settings.Settings, directory: pathlib.Path) -> settings.Settings:
    """Return the settings of the trial kernels, which keep all files below a directory."""
    limits: dict[str, object] = {"execution_seconds": _MAX_CHECK_SECONDS, "disk_reserve_bytes": 0}
    changes = {
        "limits": config.limits.model_copy(update=limits),
        "kernels": config.kernels.model_copy(
            update={"preload": (), "spares": 0, "concurrent": 2, "doors": True}
        ),
        "sandbox": config.sandbox.with_walls(enabled=True),
        "paths": settings.Paths(data=directory / "d", runtime=directory / "r"),
        "snapshots": config.snapshots.model_copy(update={"bytes": 0}),
        # Each kernel would wait for the download of a channel's packages.
        "packages": (),
    }
    return config.model_copy(update=changes)


def _list_secret_files(config: settings.Settings) -> list[str]:
    """List files of the bot's data directory, and private files that the settings name."""
    paths = [*config.private_paths]
    with contextlib.suppress(OSError):
        paths += sorted(config.paths.data.iterdir())[:_MAX_SECRETS]
    return [str(path.absolute()) for path in paths if path.is_file()]


@contextlib.contextmanager
def create_canaries(
    directory: pathlib.Path, trial: settings.Settings, config: settings.Settings
) -> Iterator[dict[str, Any]]:
    """Create files, a variable, a descriptor and three listeners, which kernels must not find."""
    # Accessible to all users, so that checks fail because of a wall, not because of file modes.
    directory.chmod(0o711)
    open_directory = directory / "open"
    open_directory.mkdir()
    file = open_directory / "canary"
    file.write_text("canary")
    open_directory.chmod(0o777)
    file.chmod(0o644)
    variable = f"DOCTOR_{os.urandom(8).hex()}"
    with contextlib.ExitStack() as stack:
        open_file = stack.enter_context(file.open())
        os.set_inheritable(open_file.fileno(), True)
        status = os.fstat(open_file.fileno())
        tcp = stack.enter_context(socket.socket())
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        socket_file = str(open_directory / "socket")
        for address in (f"\0{variable}", socket_file):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
        pathlib.Path(socket_file).chmod(0o777)
        shared_memory = stack.enter_context(_create_shared_memory(variable))
        os.environ[variable] = "canary"
        try:
            yield {
                "mark": variable,
                "variable": variable,
                "files": [str(file), *_list_secret_files(config), "/etc/shadow", "/etc/fstab"],
                "foreign_files": [str(file)],
                "foreign_directories": [
                    str(open_directory),
                    str(trial.paths.data),
                    str(trial.paths.runtime),
                ],
                "socket_file": socket_file,
                "shared_places": [
                    str(trial.paths.data / accepted_skills.DIRECTORY),
                    str(package_installations.packages_directory(trial)),
                ],
                "shared_memory": shared_memory,
                "host_name": os.uname().nodename,
                "landlock_abi": _read_landlock_abi(),
                "inode": [status.st_dev, status.st_ino],
                "port": tcp.getsockname()[1],
                "abstract": variable,
                "cmdline": pathlib.Path("/proc/self/cmdline").read_bytes().hex(),
                "preload": list(config.kernels.preload),
            }
        finally:
            del os.environ[variable]


@contextlib.contextmanager
def _create_shared_memory(name: str) -> Iterator[str]:
    """Yield the path of a new private file in shared memory, or "" if none can be created."""
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


async def _probe_kernels(
    probed_kernel: live_kernels.Kernel,
    other_kernel: live_kernels.Kernel,
    facts: dict[str, Any],
) -> ProbeResults:
    host_views = (
        _inspect_from_host(probed_kernel.provisioner),
        _inspect_from_host(other_kernel.provisioner),
    )
    context = probed_kernel.provisioner.host_context
    groups, walls = context.groups, context.server.walls
    facts = facts | {
        "has_namespaces": walls is forkserver_clients.Walls.NAMESPACES,
        "has_own_ids": context.uids.are_separate,
        "doors_refusal": context.server.doors_refusal,
        "own_places": (*_list_kernel_directories(probed_kernel, walls), *facts["shared_places"]),
    }
    facts |= await _describe_foreign_targets(other_kernel, facts)
    if walls is forkserver_clients.Walls.NAMESPACES:
        # Without namespaces, this file may be readable, if an image has it beside code's libraries.
        facts["files"].append(settings.__file__)
    initial_states = _read_file_states(facts["foreign_files"])
    check_results: dict[str, tuple[list[str], str]] = {}
    with _listen_at_doors(probed_kernel.provisioner) as ports:
        for name in _CHECK_FILES[walls]:
            check_results |= await run_checks(
                probed_kernel, f"in_kernel_{name}.py", facts | {"doors": ports}
            )
    if changed_paths := [
        path
        for path, state in _read_file_states(facts["foreign_files"]).items()
        if state != initial_states[path]
    ]:
        check_results["changes"] = ([f"{path} was changed" for path in changed_paths], "")
    return ProbeResults(
        walls=walls,
        refusal=context.server.refusal,
        shared_id_reason=context.server.shared_id_reason,
        check_results=check_results,
        host_views=host_views,
        can_freeze=probed_kernel.provisioner.can_freeze,
        groups_version=groups.version,
        groups_reason=groups.reason,
    )


def _list_kernel_directories(
    kernel: live_kernels.Kernel, walls: forkserver_clients.Walls
) -> tuple[str, ...]:
    """List directories in which a kernel may have open files, by the paths that it sees."""
    if walls is forkserver_clients.Walls.NAMESPACES or kernel.workspace is None:
        return ("/tmp/", "/mnt/data")  # noqa: S108
    tools = kernel.provisioner.host_context.runtime / "tools-"
    return str(kernel.workspace.directory.parent), str(tools)


async def _describe_foreign_targets(
    kernel: live_kernels.Kernel, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe files and processes of the bot and of another kernel that checks try to reach."""
    await _execute(kernel, "open('neighbour', 'w').write('neighbour')")
    assert kernel.workspace is not None, "it was taken for a session"  # noqa: S101
    directory = str(kernel.workspace.directory)
    first_pid, *_, kernel_pid = kernel.provisioner.meter().clocks()
    return {
        "files": [*facts["files"], f"{directory}/neighbour"],
        "foreign_files": [*facts["foreign_files"], f"{directory}/neighbour"],
        "foreign_directories": [*facts["foreign_directories"], directory],
        "processes_of_others": {
            "the bot": os.getpid(),
            "another session's first process": first_pid,
            "another session's kernel": kernel_pid,
        },
    }


def _read_file_states(paths: Iterable[str]) -> dict[str, object]:
    """Describe files, to detect changes."""
    return {path: _read_file_state(path) for path in paths}


def _read_file_state(path: str) -> object:
    try:
        status, attributes = os.stat(path), os.listxattr(path)
    except OSError as error:
        return error.errno
    return status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns, attributes


@contextlib.contextmanager
def _listen_at_doors(provisioner: provisioners.ForkProvisioner) -> Iterator[list[int]]:
    """Listen at a kernel's doors and yield their ports."""
    doors = provisioner.doors()
    if doors is None:
        yield []
        return
    *sockets, process = doors
    for door in sockets:
        if door.family == socket.AF_UNIX:
            # Any message requests a connection from the keeper.
            door.send(b"{}")
        else:
            door.listen()
    try:
        yield [*start_parameters.DOOR_PORTS]
    finally:
        for door in sockets:
            door.close()
        os.close(process)


async def run_checks(
    kernel: live_kernels.Kernel, file: str, facts: dict[str, Any]
) -> dict[str, tuple[list[str], str]]:
    """Run one file of checks in a kernel; return the results of those that answered."""
    source = pathlib.Path(__file__).with_name(file).read_text("utf-8")
    _, output = await _execute(kernel, f"{source}\n{_RUN_CHECKS}\n_doctor({facts!r})")
    for line in output.splitlines():
        if line.startswith(facts["mark"]):
            results = json.loads(line.removeprefix(facts["mark"]))
            return {name: (breaches, detail) for name, (breaches, detail) in results.items()}
    return {}


async def _execute(kernel: live_kernels.Kernel, code: str) -> tuple[values.Finished, str]:
    texts: list[str] = []

    def show(output: values.Output) -> None:
        if isinstance(output, values.Text) and output.stream == "stdout":
            texts.append(output.text)

    finished = await kernel.execute(code, show=show)
    return finished, "".join(texts)


def _inspect_from_host(provisioner: provisioners.ForkProvisioner) -> HostView:
    """Inspect the init and the kernel of a session that has run no code yet.

    Raises:
        KernelStartError: the session has fewer than two processes.
    """
    pids = list(provisioner.meter().clocks())
    if len(pids) < 2:
        raise errors.KernelStartError
    # The init's namespaces are unreadable, but the kernel is in the same ones, or in nested ones.
    namespaces = {kind: _read_namespace(pids[-1], kind) for kind in _NAMESPACE_KINDS}
    uids = _read_uids(pids[-1])
    return HostView(_read_uids(pids[0]) | uids, max(uids), namespaces)


def _read_uids(pid: int) -> frozenset[int]:
    """Return the real, effective, saved and file system user ids, numbered as on the host."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("Uid:"))
    return frozenset(subordinate_ids.id_on_host(int(uid)) for uid in line.split()[1:])


def _read_namespace(pid: int | str, kind: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return ""


def _read_landlock_abi() -> int:
    create_ruleset, version = 444, 1
    abi: int = ctypes.CDLL(None).syscall(create_ruleset, None, ctypes.c_size_t(0), version)
    return max(0, abi)


def read_bot_namespaces() -> dict[str, str]:
    """Return the identities of the bot's namespaces by kind."""
    return {kind: _read_namespace("self", kind) for kind in _NAMESPACE_KINDS}
