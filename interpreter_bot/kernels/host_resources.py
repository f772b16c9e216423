"""Host resources shared by all kernels of this process: fork server, cgroups, directories, uids.

Opening them first cleans up after a bot that was killed: its processes ended with its sockets, but
its cgroups and runtime directories did not. A session's files pass from the user id of its last
kernel to that of the next here, for both are the host's.
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
from collections.abc import AsyncIterator, Container

from interpreter_bot import errors, settings
from interpreter_bot.kernels import launchers
from interpreter_bot.kernels.files import safe_open, transfers, workspaces
from interpreter_bot.kernels.metering import session_processes
from interpreter_bot.kernels.provisioning import (
    cgroup_files,
    cgroups,
    forkservers,
    kernel_parameters,
    provisioners,
)

_log = logging.getLogger(__name__)

# A Unix socket's path may have 107 bytes, and the name of the socket itself takes some.
_PATH_BYTES = 107 - len("/01234567/k-0")


def change_owner(root: pathlib.Path, uid: int, kernel_uids: Container[int]) -> None:
    """Make a session's files belong to the user id of its kernel. Blocks.

    Only as root does each kernel have an id of its own. No kernel runs in the workspace now, but
    one did: ownership changes for links themselves, never for what they point to, and nothing
    outside the workspace or its file system is touched. The root changes last, so that an
    interrupted change is repeated.

    Args:
        root: the workspace's directory.
        uid: the new owner.
        kernel_uids: all ids that kernels may have.

    Raises:
        OSError: the workspace cannot be opened.
    """
    if os.geteuid() != 0:
        return
    descriptor = transfers.open_root(root)
    try:
        if os.fstat(descriptor).st_uid == uid:
            return
        # The fork server, which owns neither directory, has to walk as far as the root.
        for directory in (root.parent, root.parent.parent):
            directory.chmod(0o711)
        left = _change_owner_below(descriptor, uid, kernel_uids)
        os.fchown(descriptor, uid, uid)
    finally:
        os.close(descriptor)
    if left:
        _log.warning("%d files of a session could not change hands", left)


def _change_owner_below(root: int, uid: int, kernel_uids: Container[int]) -> int:
    """Change the owner of all below a directory; returns how many entries stayed as they were."""
    left = 0
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        try:
            directory = safe_open.open_directory(root, path)
        except OSError:
            # Nested deeper than any path can name, or another file system.
            left += 1
            continue
        try:
            for name in map(os.fsencode, os.listdir(directory)):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if _is_strange(status, kernel_uids):
                    left += 1
                    continue
                try:
                    os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
                except PermissionError:
                    # It is immutable.
                    left += 1
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path + b"/" + name if path else name)
        finally:
            os.close(directory)
    return left


def _is_strange(status: os.stat_result, kernel_uids: Container[int]) -> bool:
    """Return whether a file has other names and no kernel's owner: those may lie elsewhere.

    A kernel can create hard links only to its own files; the bot creates none.
    """
    has_names = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
    return has_names and status.st_uid not in kernel_uids


class HostResources:
    """Shared host resources; see the module. Use `open`."""

    def __init__(
        self, host_context: provisioners.ProvisionerContext, sandbox: settings.Sandbox
    ) -> None:
        self.host_context = host_context
        self._kernel_uids = range(sandbox.first_uid, sandbox.first_uid + sandbox.uid_count)
        self._reviving = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, config: settings.Settings, files: workspaces.Workspaces, directory: pathlib.Path
    ) -> AsyncIterator[HostResources]:
        """Open everything, bottom-up.

        Args:
            config: the settings in effect.
            files: all workspaces.
            directory: where they are.

        Raises:
            SandboxError: this machine cannot build the sandbox.
            KernelStartError: the kernels' Python cannot be used.
            SettingsError: a directory or the provisioner cannot be used.
        """
        raise_open_files()
        await asyncio.to_thread(launchers.check, config.kernels.provisioner)
        runtime = await asyncio.to_thread(own_directory, config.paths.runtime)
        if len(os.fsencode(runtime)) > _PATH_BYTES:
            raise errors.SettingsError(f"{config.paths.runtime} is too long a path for sockets.")
        groups = await asyncio.to_thread(
            cgroups.Cgroups.probe, config.sandbox.cgroups if config.sandbox.enabled else "off"
        )
        _log.info("control groups: %s", groups.reason)
        swept = await groups.sweep()
        if swept:
            _log.warning("removed the control groups of %d bots that had died", swept)
        await asyncio.to_thread(_make_workspaces, directory)
        await files.sweep()
        server = forkservers.ForkServer(
            kernels=config.kernels,
            limits=config.limits,
            sandbox=config.sandbox,
            workspaces=directory,
            private=config.private_paths,
        )
        uids = kernel_parameters.Uids(
            count=config.sandbox.uid_count, first_uid=config.sandbox.first_uid
        )
        host_context = provisioners.ProvisionerContext(
            server=server, groups=groups, limits=config.limits, runtime=runtime, uids=uids
        )
        try:
            await server.start()
            yield cls(host_context, config.sandbox)
        finally:
            await server.close()
            await groups.close()
            await asyncio.to_thread(remove, runtime)

    async def revive(self) -> None:
        """Restart the fork server if it died; all its kernels died with it.

        Raises:
            KernelStartError: it does not start again.
        """
        async with self._reviving:
            server = self.host_context.server
            if not server.is_alive:
                _log.error("the fork server died; starting another")
                await server.close()
                await server.start()

    async def attach(
        self, launched: launchers.LaunchedKernel, workspace: workspaces.Workspace
    ) -> None:
        """Mount a session's workspace in its kernel.

        Raises:
            KernelStartError: it cannot be mounted, or the kernel is gone.
        """
        uid = launched.provisioner.host_uid
        try:
            await asyncio.to_thread(change_owner, workspace.directory, uid, self._kernel_uids)
            await launched.provisioner.attach(workspace.directory)
        except OSError as error:
            raise errors.KernelStartError("The session's files cannot be used.") from error
        launched.workspace = workspace


@functools.cache
def memory_bytes(proc: pathlib.Path = pathlib.Path("/proc/self")) -> int:
    """Return the machine's memory, or the cgroup's share of it that this process may use.

    Args:
        proc: where `cgroup` and `mountinfo` are read; tests point it elsewhere.
    """
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *cgroup_files.memory_bounds(proc)])


def raise_open_files() -> None:
    """Raise the limit of open files to the hard limit: a shell's usual 1024 are soon used up.

    Descriptors that sessions keep in flight count for the bot too, where they run as its user.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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


def own_directory(directory: pathlib.Path) -> pathlib.Path:
    """Create a directory of this process alone, and remove those of dead processes.

    Raises:
        SettingsError: the parent directory cannot be written to.
    """
    pid = os.getpid()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.geteuid():
            raise errors.SettingsError(f"{directory} belongs to another user.")
        for name in os.listdir(directory):
            if not _is_alive(name):
                remove(directory / name)
        own = directory / f"{pid}-{session_processes.start_ticks(pid)}"
        own.mkdir(mode=0o700)
    except OSError as error:
        raise errors.SettingsError(f"The directory {directory} cannot be used.") from error
    return own


def remove(directory: pathlib.Path) -> None:
    """Remove a directory that user code may have written to, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            safe_open.remove_tree(parent, directory.name)
        finally:
            os.close(parent)


def _is_alive(name: str) -> bool:
    pid, _, ticks = name.partition("-")
    if not (pid.isdigit() and ticks.isdigit()):
        # Not made by a bot: it may belong to another program.
        return True
    return session_processes.start_ticks(int(pid)) == int(ticks)
