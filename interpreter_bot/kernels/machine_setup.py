"""Setup that all kernels of a pool share: the machine, and what sessions install."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.kernels import (
    installation_requests,
    launchers,
    live_kernels,
    machines,
    package_installations,
)
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.kernels.provisioning import (
    forkserver_clients,
    provisioners,
    start_parameters,
)
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

# Paths of layers in a kernel, as set by `guest/rootfs` and `guest/container_walls`.
_LAYERS_PATHS: Final = {
    forkserver_clients.Walls.NAMESPACES: "/opt/packages",
    forkserver_clients.Walls.CONTAINER: "/proc/self/fd/904",
    forkserver_clients.Walls.NOTHING: "",
}


class MachineSetup:
    """Setup that all kernels share on this machine. Use `open`."""

    def __init__(
        self,
        host_context: provisioners.ProvisionerContext,
        installations: package_installations.Installations | None,
    ) -> None:
        self.host_context = host_context
        self.installations = installations
        self._server_lock = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, machine: machines.Machine) -> AsyncIterator[MachineSetup]:
        """Open the store of packages that people install.

        Raises:
            SettingsError: a directory cannot be used.
        """
        async with _installations(machine.config, machine.server) as installations:
            yield cls(_host_context(machine), installations)

    async def forget(self, workspace: workspaces.Workspace) -> None:
        """Forget the packages of a session, so that its next kernel has only the common ones."""
        if self.installations is not None:
            await asyncio.to_thread(self.installations.forget, workspace)

    async def ensure_fork_server(self) -> None:
        """Start another fork server if it died or does not answer; its kernels may live on.

        Raises:
            KernelStartError: the new one does not start.
        """
        async with self._server_lock:
            server = self.host_context.server
            if not server.is_alive:
                if not server.was_stopped:
                    _log.error("the fork server died or did not answer; starting another")
                await server.start()

    async def stop_fork_server(self, is_needed: Callable[[], bool]) -> None:
        """End the fork server, with all that it imported, until the next kernel starts."""
        async with self._server_lock:
            if not is_needed():
                await self.host_context.server.stop_if_unused()

    async def attach(
        self, kernel: live_kernels.Kernel, workspace: workspaces.Workspace, key: str
    ) -> None:
        """Give a kernel the workspace and the installed packages of session `key`.

        Raises:
            KernelStartError: the workspace cannot be mounted, or the kernel is dead.
        """
        # The fork server may have died since it forked the kernel.
        await self.ensure_fork_server()
        try:
            await launchers.attach_workspace(kernel, workspace)
        except OSError as error:
            raise errors.KernelStartError(host_words.NO_FILES) from error
        if self.installations is not None:
            await self.installations.provide(kernel, key)
            kernel.install = installation_requests.Installer(self.installations, kernel)


def _host_context(machine: machines.Machine) -> provisioners.ProvisionerContext:
    config, server = machine.config, machine.server
    has_doors = config.has_doors and not server.doors_refusal
    return provisioners.ProvisionerContext(
        server=server,
        groups=machine.groups,
        limits=config.limits,
        runtime=machine.runtime,
        uids=start_parameters.Uids(
            count=config.sandbox.uid_count,
            first_uid=config.sandbox.first_uid,
            are_separate=server.has_own_ids,
        ),
        doors=start_parameters.DOOR_PORTS if has_doors else (),
    )


@contextlib.asynccontextmanager
async def _installations(
    config: settings.Settings, server: forkserver_clients.ForkServer
) -> AsyncIterator[package_installations.Installations | None]:
    """Open the store of packages that people install; None if they may not install any."""
    if not config.package_index.url or server.environment is None or not server.python_version:
        yield None
        return
    parent = package_installations.packages_directory(config) / "staging"
    async with (
        machines.process_directory(parent) as staging,
        package_installations.Installations.open(
            config,
            server.environment,
            staging,
            python_version=server.python_version,
            path_in_kernels=_LAYERS_PATHS[server.walls],
        ) as installations,
    ):
        yield installations
