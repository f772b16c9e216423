"""The machine, set up for the kernels of this process: fork server, cgroups, directories, uids.

Opening them first cleans up after a bot that was killed: its processes ended with its sockets, but
its cgroups and runtime directories did not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import pathlib
import resource
import stat
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels import installation_requests, launchers, package_installations
from interpreter_bot.kernels.files import safe_open, workspaces
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.kernels.packages import layers
from interpreter_bot.kernels.provisioning import (
    cgroup_files,
    cgroups,
    forkserver_clients,
    provisioners,
    start_parameters,
    subordinate_ids,
)
from interpreter_bot.skills import accepted_skills

_log = logging.getLogger(__name__)

# A Unix socket's path may have 107 bytes, and the name of the socket itself takes some.
_PATH_BYTES = 107 - len("/01234567/k-0")
# How long a thread that reads a large message goes on computing while the event loop wants to:
# Python's own five milliseconds come again after each of the loop's system calls.
_SWITCH_SECONDS = 0.0005
# Where a session without mounts finds its directories; `guest/container_walls` opens these numbers.
_LINKS: Final = {"/mnt/data": "/proc/self/fd/900", "/skills": "/proc/self/fd/902"}
# As `guest/rootfs` and `guest/container_walls` have it.
_LAYERS_SHOWN_AT: Final = {
    forkserver_clients.Walls.NAMESPACES: "/opt/packages",
    forkserver_clients.Walls.CONTAINER: "/proc/self/fd/904",
    forkserver_clients.Walls.NOTHING: "",
}


class MachineSetup:
    """What all kernels share on this machine; see the module. Use `open`."""

    def __init__(
        self,
        host_context: provisioners.ProvisionerContext,
        packages: package_installations.Installations | None,
    ) -> None:
        self.host_context = host_context
        self.packages = packages
        self._reviving = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, config: settings.Settings, files: workspaces.Workspaces, *, is_lasting: bool
    ) -> AsyncIterator[MachineSetup]:
        """Open everything, bottom-up.

        Args:
            config: the settings in effect.
            files: all workspaces.
            is_lasting: many kernels will be forked; see `ForkServer`.

        Raises:
            SandboxError: this machine cannot build the sandbox.
            KernelStartError: the kernels' Python cannot be used.
            SettingsError: a directory or the provisioner cannot be used.
        """
        raise_open_files()
        sys.setswitchinterval(_SWITCH_SECONDS)
        sandbox = await asyncio.to_thread(subordinate_ids.within_namespace, config.sandbox)
        config = config.model_copy(update={"sandbox": sandbox})
        await asyncio.to_thread(launchers.check, config.kernels.provisioner)
        runtime = await asyncio.to_thread(_own_runtime_directory, config.paths.runtime)
        groups = await _swept_groups(config.sandbox)
        await asyncio.to_thread(_make_workspaces, files.directory)
        skills = await asyncio.to_thread(accepted_skills.prepare, config.paths.data)
        await files.sweep()
        own = config.sandbox, groups, files.directory
        has_own_ids = await asyncio.to_thread(_has_own_ids, *own)
        kept = package_installations.directory(config) if config.package_index.url else None
        if kept is not None:
            await asyncio.to_thread(layers.make_directory, kept)
        server = forkserver_clients.ForkServer(
            python=kernel_environment.python(config),
            kernels=config.kernels,
            limits=config.limits,
            sandbox=config.sandbox,
            workspaces=files.directory,
            skills=skills,
            has_own_ids=has_own_ids,
            is_lasting=is_lasting,
            scratch=runtime,
            layers=layers.directory(kept) if kept is not None else None,
            private=config.private_paths,
        )
        try:
            await server.start()
            _demand(config.sandbox.level, server.walls, groups)
            if server.walls is forkserver_clients.Walls.CONTAINER:
                await asyncio.to_thread(_link_directories)
                if server.has_own_ids:
                    await asyncio.to_thread(_warn_of_closed, files.directory)
            async with _installations(config, server) as packages:
                yield cls(_host_context(config, server, groups, runtime), packages)
        finally:
            await server.close()
            await groups.close()
            await asyncio.to_thread(safe_open.remove, runtime)

    async def forget(self, workspace: workspaces.Workspace) -> None:
        """Let a session's next kernel have what all kernels have."""
        if self.packages is not None:
            await asyncio.to_thread(self.packages.forget, workspace)

    async def revive(self) -> None:
        """Start another fork server if it died or does not answer; its kernels may live on.

        Raises:
            KernelStartError: it does not start again.
        """
        async with self._reviving:
            server = self.host_context.server
            if not server.is_alive:
                if not server.is_resting:
                    _log.error("the fork server died or was given up; starting another")
                await server.start()

    async def rest(self, is_wanted: Callable[[], bool]) -> None:
        """Let go of the fork server, and of all that it imported, until a kernel is wanted."""
        async with self._reviving:
            if not is_wanted():
                await self.host_context.server.rest()

    async def attach(
        self, launched: launchers.LaunchedKernel, workspace: workspaces.Workspace, key: str
    ) -> None:
        """Give a session's kernel its workspace, and what is installed for the session.

        Args:
            launched: the kernel.
            workspace: of the session.
            key: of the session.

        Raises:
            KernelStartError: it cannot be mounted, or the kernel is gone.
        """
        # The server that forked it may have been given up since.
        await self.revive()
        try:
            await launched.attach(workspace)
        except OSError as error:
            raise errors.KernelStartError("The session's files cannot be used.") from error
        if self.packages is not None:
            await self.packages.serve(launched, key)
            launched.kernel.install = installation_requests.Installer(self.packages, launched)


def _host_context(
    config: settings.Settings,
    server: forkserver_clients.ForkServer,
    groups: cgroups.Cgroups,
    runtime: pathlib.Path,
) -> provisioners.ProvisionerContext:
    has_doors = config.has_doors and server.walls is forkserver_clients.Walls.NAMESPACES
    return provisioners.ProvisionerContext(
        server=server,
        groups=groups,
        limits=config.limits,
        runtime=runtime,
        uids=start_parameters.Uids(
            count=config.sandbox.uid_count,
            first_uid=config.sandbox.first_uid,
            are_own=server.has_own_ids,
        ),
        doors=start_parameters.DOOR_PORTS if has_doors else (),
    )


def _demand(level: str, walls: forkserver_clients.Walls, groups: cgroups.Cgroups) -> None:
    """Refuse a machine that cannot have the level which the settings demand.

    Raises:
        SandboxError: the sentence says what is missing.
    """
    if level == "full" and walls is forkserver_clients.Walls.NAMESPACES and not groups.version:
        raise errors.SandboxError(
            f"sandbox.level is 'full', and there are no control groups: {groups.reason}"
        )


def _warn_of_closed(directory: pathlib.Path) -> None:
    """Warn of a directory above that sessions of other users cannot walk through."""
    for parent in directory.absolute().parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            _log.warning(
                "%s is closed to other users, so programs that resolve the paths of their files, "
                "such as SQLite, fail in sessions: chmod o+x %s, or set paths.data",
                parent,
                parent,
            )


def _link_directories() -> None:
    """Give a session's directories their usual names, where there are no mounts to do that."""
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


@contextlib.asynccontextmanager
async def _installations(
    config: settings.Settings, server: forkserver_clients.ForkServer
) -> AsyncIterator[package_installations.Installations | None]:
    """Open what people install, where they may."""
    if not config.package_index.url or server.environment is None or not server.python:
        yield None
        return
    parent = package_installations.directory(config) / "staging"
    staging = await asyncio.to_thread(own_directory, parent)
    try:
        async with package_installations.Installations.open(
            config,
            server.environment,
            staging,
            python=server.python,
            shown_at=_LAYERS_SHOWN_AT[server.walls],
        ) as opened:
            yield opened
    finally:
        await asyncio.to_thread(safe_open.remove, staging)


@functools.cache
def memory_bytes(proc: pathlib.Path = pathlib.Path("/proc/self")) -> int:
    """Return the machine's memory, or the cgroup's share of it that this process may use.

    Args:
        proc: where `cgroup` and `mountinfo` are read; tests point it elsewhere.
    """
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *(one.limit_bytes for one in cgroup_files.memory_groups(proc))])


def raise_open_files() -> None:
    """Raise the limit of open files to the hard limit: a shell's usual 1024 are soon used up.

    Descriptors that sessions keep in flight count for the bot too, where they run as its user.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _swept_groups(sandbox: settings.Sandbox) -> cgroups.Cgroups:
    """Find the control groups that there are, without those of bots that died."""
    groups = await asyncio.to_thread(
        cgroups.Cgroups.probe, sandbox.cgroups if sandbox.enabled else "off"
    )
    _log.info("control groups: %s", groups.reason)
    swept = await groups.sweep()
    if swept:
        _log.warning("removed the control groups of %d bots that had died", swept)
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
        raise errors.SettingsError(f"The data directory {directory} cannot be used.") from error
    if not os.access(directory, os.W_OK):
        raise errors.SettingsError(f"The data directory {directory} cannot be written to.")


def _own_runtime_directory(directory: pathlib.Path) -> pathlib.Path:
    own = own_directory(directory)
    if len(os.fsencode(own)) > _PATH_BYTES:
        raise errors.SettingsError(f"{directory} is too long a path for sockets.")
    return own


def own_directory(directory: pathlib.Path, *, mode: int = 0o700) -> pathlib.Path:
    """Create a directory of this process alone, and remove those of dead processes.

    Args:
        directory: its parent, which is created if missing.
        mode: of the directory, and at least that of its parent.

    Raises:
        SettingsError: the parent directory cannot be written to.
    """
    pid = os.getpid()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.geteuid():
            raise errors.SettingsError(f"{directory} belongs to another user.")
        directory.chmod(stat.S_IMODE(directory.stat().st_mode) | mode)
        for name in os.listdir(directory):
            if not _is_alive(name):
                safe_open.remove(directory / name)
        own = directory / f"{pid}-{session_metering.start_ticks(pid)}"
        own.mkdir(mode=0o700)
        own.chmod(mode)
    except OSError as error:
        raise errors.SettingsError(f"The directory {directory} cannot be used.") from error
    return own


def _is_alive(name: str) -> bool:
    pid, _, ticks = name.partition("-")
    if not (pid.isdigit() and ticks.isdigit()):
        # Not made by a bot: it may belong to another program.
        return True
    return session_metering.start_ticks(int(pid)) == int(ticks)
