"""This machine, ready for the kernels of this process: directories, cgroups, uids, fork server.

Opening it cleans up after a bot that was killed: its processes ended with its sockets, but its
cgroups and runtime directories did not. Light to import, so that the fork server starts early.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import functools
import itertools
import logging
import os
import pathlib
import re
import resource
import secrets
import stat
import sys
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels import file_locks
from interpreter_bot.kernels.files import safe_open, workspaces
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.kernels.provisioning import (
    cgroups,
    forkserver_clients,
    subordinate_ids,
)
from interpreter_bot.skills import accepted_skills
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

# A Unix socket's path may have 107 bytes, including the name of the socket itself.
_MAX_PATH_BYTES = 107 - len("/01234567/k-0")
# Longest time that a thread which reads a large message may hold the interpreter while the event
# loop waits. With Python's default, the loop would wait five milliseconds after each system call.
_THREAD_SWITCH_SECONDS = 0.0005
_PROCESS_DIRECTORY_PATTERN: Final = re.compile(r"([0-9]+)-([0-9]+)(?:\.[0-9]+)?")
_numbers: Final = itertools.count()
# Directories of a session without mounts; `guest/container_walls` opens these descriptors.
_LINKS: Final = {"/mnt/data": "/proc/self/fd/900", "/skills": "/proc/self/fd/902"}


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What all kernels share on this machine.

    Attributes:
        config: the settings in effect.
        all_workspaces: the workspaces of all sessions.
        server: forks the kernels.
        groups: the kernels' cgroups.
        runtime: directory of this process alone.
        is_ephemeral: whether all files of sessions are deleted when this process ends.
    """

    config: settings.Settings
    all_workspaces: workspaces.Workspaces
    server: forkserver_clients.ForkServer
    groups: cgroups.Cgroups
    runtime: pathlib.Path
    is_ephemeral: bool


@contextlib.asynccontextmanager
async def open_machine(
    config: settings.Settings, *, is_ephemeral: bool = False
) -> AsyncIterator[Machine]:
    """Open everything that kernels need; with `is_ephemeral`, files are deleted at the end.

    Raises:
        SandboxError: this machine cannot build the sandbox.
        KernelStartError: the kernels' Python cannot be used.
        SettingsError: a directory cannot be used.
    """
    raise_open_files()
    sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
    directory = config.paths.data / ("ephemeral" if is_ephemeral else "workspaces")
    async with contextlib.AsyncExitStack() as stack:
        if is_ephemeral:
            # Sessions with user ids of their own must be able to walk through the directory.
            directory = await stack.enter_async_context(process_directory(directory, mode=0o711))
        files = workspaces.Workspaces(directory, config.limits)
        sandbox = await asyncio.to_thread(subordinate_ids.choose_ids_in_namespace, config.sandbox)
        effective_config = config.model_copy(update={"sandbox": sandbox})
        runtime = await stack.enter_async_context(process_directory(config.paths.runtime))
        if len(os.fsencode(runtime)) > _MAX_PATH_BYTES:
            raise errors.SettingsError(host_words.too_long_for_sockets(config.paths.runtime))
        groups = await _open_cgroups(sandbox)
        stack.push_async_callback(asyncio.to_thread, groups.close)
        await asyncio.to_thread(_make_workspaces, directory)
        skills = await asyncio.to_thread(accepted_skills.prepare, config.paths.data)
        await files.sweep()
        has_own_ids = await asyncio.to_thread(_has_own_ids, sandbox, groups, directory)
        layers_directory = (
            await asyncio.to_thread(_make_layers_directory, config)
            if config.package_index.url
            else None
        )
        python = stack.enter_context(kernel_environment.lock_environment(config))
        server = forkserver_clients.ForkServer(
            python=python,
            kernels=effective_config.kernels,
            limits=effective_config.limits,
            sandbox=sandbox,
            workspaces=directory,
            skills=skills,
            has_own_ids=has_own_ids,
            expects_many_kernels=not is_ephemeral,
            scratch=runtime,
            layers=layers_directory,
            private=config.private_paths,
        )
        stack.push_async_callback(server.close)
        await server.start()
        _check_level(sandbox.level, server.walls, groups)
        if server.walls is forkserver_clients.Walls.CONTAINER:
            await asyncio.to_thread(_link_directories)
            if server.has_own_ids:
                await asyncio.to_thread(_warn_about_closed_parents, directory)
        yield Machine(effective_config, files, server, groups, runtime, is_ephemeral)


def _make_layers_directory(config: settings.Settings) -> pathlib.Path:
    # Imported only if people may install packages, as it imports a parser of requirements.
    from interpreter_bot.kernels import package_installations
    from interpreter_bot.kernels.packages import layers

    packages_directory = package_installations.packages_directory(config)
    layers.make_layers_directory(packages_directory)
    return layers.layers_directory(packages_directory)


def _check_level(level: str, walls: forkserver_clients.Walls, groups: cgroups.Cgroups) -> None:
    """Check that this machine offers the configured level.

    Raises:
        SandboxError: the message says what is missing.
    """
    if level == "full" and walls is forkserver_clients.Walls.NAMESPACES and not groups.version:
        raise errors.SandboxError(
            f"sandbox.level is 'full', and there are no control groups: {groups.reason}"
        )


def _warn_about_closed_parents(directory: pathlib.Path) -> None:
    """Warn about parent directories that sessions with other user ids cannot walk through."""
    for parent in directory.absolute().parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            _log.warning(
                "%s is closed to other users, so programs that resolve the paths of their files, "
                "such as SQLite, fail in sessions: chmod o+x %s, or set paths.data",
                parent,
                parent,
            )


def _link_directories() -> None:
    """Link the usual paths to a session's directories, as there are no mounts."""
    for path, target in _LINKS.items():
        if os.path.lexists(path):
            continue
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
        except OSError:
            _log.warning(
                "code will not find %s by its name; as root: ln -s %s %s", path, target, path
            )


@functools.cache
def memory_bytes(proc: pathlib.Path = pathlib.Path("/proc/self")) -> int:
    """Return the machine's memory, or the limit of this process's cgroup if that is less.

    `cgroup` and `mountinfo` are read in the directory `proc`.
    """
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *(group.limit_bytes for group in cgroups.memory_groups(proc))])


def raise_open_files() -> None:
    """Raise the limit of open files to the hard limit, as a shell's usual 1024 are soon used up.

    If sessions run as the bot's user, descriptors that they send over sockets count for the bot,
    too.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


async def _open_cgroups(sandbox: settings.Sandbox) -> cgroups.Cgroups:
    """Open the control groups, and remove those of bots that died."""
    groups = await asyncio.to_thread(
        cgroups.Cgroups.probe, "auto" if sandbox.uses_cgroups else "off"
    )
    _log.info("control groups: %s", groups.reason)
    dead_bot_count = await asyncio.to_thread(groups.sweep)
    if dead_bot_count:
        _log.info("removed control groups of bots that died: %d", dead_bot_count)
    return groups


def _has_own_ids(
    sandbox: settings.Sandbox, groups: cgroups.Cgroups, directory: pathlib.Path
) -> bool:
    """Return whether each session can have a user id of its own."""
    if groups.version == 1 and os.geteuid():
        return False  # Cgroups of this version can only be joined by the user that opened them.
    return subordinate_ids.are_usable(directory, sandbox.first_uid)


def _make_workspaces(directory: pathlib.Path) -> None:
    """Create the directory of all workspaces.

    Raises:
        SettingsError: it cannot be created or written to.
    """
    try:
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.SettingsError(host_words.data_unusable(directory)) from error
    if not os.access(directory, os.W_OK):
        raise errors.SettingsError(host_words.data_not_writable(directory))


@contextlib.asynccontextmanager
async def process_directory(
    parent: pathlib.Path, *, mode: int = 0o700
) -> AsyncIterator[pathlib.Path]:
    """Create a directory of this process, and remove it at the end.

    Those of dead processes are removed first. The parent is created if missing, and gets at least
    the mode of the new directory.

    Raises:
        SettingsError: the parent directory cannot be written to.
    """
    directory, lock_descriptor = await asyncio.to_thread(_make_process_directory, parent, mode)
    try:
        yield directory
    finally:
        try:
            await asyncio.to_thread(safe_open.remove, directory)
        finally:
            os.close(lock_descriptor)


def _make_process_directory(parent: pathlib.Path, mode: int) -> tuple[pathlib.Path, int]:
    """Return a new directory of this process, and the descriptor that keeps it locked."""
    pid = os.getpid()
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if parent.stat().st_uid != os.geteuid():
            raise errors.SettingsError(host_words.owned_by_other_user(parent))
        parent.chmod(stat.S_IMODE(parent.stat().st_mode) | mode)
        for name in os.listdir(parent):
            if not _is_used(parent / name):
                safe_open.remove(parent / name)
        # A process may open several machines.
        number = next(_numbers)
        suffix = f".{number}" if number else ""
        directory = parent / f"{pid}-{session_metering.start_ticks(pid)}{suffix}"
        # Under another name until it is locked, so that no other process takes it for unused.
        new_directory = parent / f"new-{secrets.token_hex(8)}"
        new_directory.mkdir(mode=0o700)
        new_directory.chmod(mode)
        lock_descriptor = os.open(new_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock_descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        new_directory.rename(directory)
    except OSError as error:
        raise errors.SettingsError(host_words.unusable_directory(parent, error.strerror)) from error
    return directory, lock_descriptor


def _is_used(directory: pathlib.Path) -> bool:
    match = _PROCESS_DIRECTORY_PATTERN.fullmatch(directory.name)
    if match is None:
        # Not made by a bot: it may belong to another program.
        return True
    if session_metering.start_ticks(int(match[1])) == int(match[2]):
        return True
    # The process may be in another container with the same volume, where its id is another one.
    return file_locks.is_locked(directory)
