"""Start of kernels through jupyter_client, so that another provisioner can replace ours; their end.

What a provisioner must offer beyond jupyter_client's own interface stands in `ports`. Kernels are
closed in tasks that survive cancellation of the caller.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import logging
import uuid
from importlib import metadata
from typing import Any

import jupyter_client
from jupyter_client import kernelspec, provisioning

from interpreter_bot import errors, settings
from interpreter_bot.kernels import executions, ports
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.kernels.provisioning import provisioners
from interpreter_bot.kernels.wire import clients, sockets

_GROUP = "jupyter_client.kernel_provisioners"
_log = logging.getLogger(__name__)

_DEATH_SECONDS = 5.0


def check(name: str) -> None:
    """Check that a provisioner can be used, before any kernel is wanted.

    Args:
        name: of its entry point, as in `kernels.provisioner`.

    Raises:
        SettingsError: there is none of that name, or it lacks something; the sentence says what.
    """
    found = list(metadata.entry_points(group=_GROUP, name=name))
    if not found:
        raise errors.SettingsError(f"No kernel provisioner called {name} is installed.")
    try:
        kind = found[0].load()
    except (ImportError, AttributeError) as error:
        told = f"The kernel provisioner {name} cannot be loaded: {error}."
        raise errors.SettingsError(told) from error
    if not (isinstance(kind, type) and issubclass(kind, provisioning.KernelProvisionerBase)):
        raise errors.SettingsError(f"{name} is no kernel provisioner of jupyter_client's kind.")
    if missing := [needed for needed in ports.MEMBERS if not _offers(kind, needed)]:
        raise errors.SettingsError(
            f"The kernel provisioner {name} cannot be used: it lacks {', '.join(missing)}. "
            "It must do what ForkProvisioner does."
        )


def _offers(kind: type, name: str) -> bool:
    """Return whether a class has an attribute, or declares that its objects will."""
    declared = (inspect.get_annotations(one) for one in inspect.getmro(kind))
    return hasattr(kind, name) or any(name in names for names in declared)


class _Manager(jupyter_client.AsyncKernelManager):
    """Kernel manager without a control channel: kernels end by being killed, not asked."""

    def _connect_control_socket(self) -> None:
        """Connect nothing: a confined kernel listens on no such channel."""

    async def begin(self) -> None:
        """Start the kernel as `start_kernel` does, without its sleep of 10 ms."""
        command, options = await self.pre_start_kernel()
        await self._launch_kernel(command, **options)
        await self.post_start_kernel(**options)

    async def _async_wait(self, pollinterval: float = 0.1) -> None:
        """Wait for the end itself, instead of polling as jupyter_client does."""
        if self.provisioner is not None:
            await self.provisioner.wait()


@dataclasses.dataclass(slots=True)
class LaunchedKernel:
    """A started kernel with its provisioner and manager.

    Attributes:
        kernel: ready to execute.
        provisioner: attaches workspaces, and measures what the session uses.
        manager: jupyter_client's, which ends it.
        workspace: the attached one, if any.
    """

    kernel: executions.Kernel
    provisioner: ports.Provisioner
    manager: jupyter_client.AsyncKernelManager
    workspace: workspaces.Workspace | None = None

    async def close(self) -> None:
        """Kill the kernel and clean up after it."""
        await self.kernel.close()
        await self.manager.shutdown_kernel(now=True)


class Launcher:
    """Starter of kernels on one host."""

    def __init__(
        self, kernels: settings.Kernels, host_context: provisioners.ProvisionerContext
    ) -> None:
        self._kernels = kernels
        self._host_context = host_context
        self._spec = kernelspec.KernelSpec(
            argv=["forked"],
            display_name="Python (sandboxed)",
            language="python",
            metadata={
                "kernel_provisioner": {
                    "provisioner_name": kernels.provisioner,
                    "config": {"host_context": host_context},
                }
            },
        )

    async def launch(self) -> LaunchedKernel:
        """Start a kernel that waits for its workspace.

        Raises:
            KernelStartError: it did not start in time; nothing is left of it.
        """
        kernel_id = uuid.uuid4().hex
        manager: Any = _Manager(kernel_id=kernel_id)
        manager.connection_file = str(self._host_context.runtime / kernel_id[:8] / "kernel.json")
        manager._kernel_spec = self._spec
        connection = None
        try:
            async with asyncio.timeout(self._kernels.start_seconds):
                await manager.begin()
                connection = clients.Client(manager.get_connection_info())
                await self._open(connection, manager.provisioner)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if manager.has_kernel:
                await manager.shutdown_kernel(now=True)
            if isinstance(error, TimeoutError):
                raise errors.KernelStartError from error
            raise
        kernel = executions.Kernel(
            manager.provisioner,
            connection,
            id=kernel_id,
            limits=self._host_context.limits,
            interrupt_grace_seconds=self._kernels.interrupt_grace_seconds,
        )
        return LaunchedKernel(kernel, manager.provisioner, manager)

    async def _open(self, connection: clients.Client, provisioner: ports.Provisioner) -> None:
        opening = asyncio.create_task(connection.open(), name="connecting")
        ended = asyncio.create_task(provisioner.ended.wait(), name="death before welcome")
        try:
            await asyncio.wait({opening, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise errors.KernelStartError
            opening.result()
        except sockets.LostSocket as error:
            # Its sockets close before its end is noticed, which belongs into the log.
            await asyncio.wait({ended}, timeout=_DEATH_SECONDS)
            raise errors.KernelStartError from error
        finally:
            opening.cancel()
            ended.cancel()


class Shutdowns:
    """All kernels that are being closed."""

    def __init__(self) -> None:
        self._all: set[asyncio.Task[None]] = set()
        self._by_key: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    async def close(self, launched: LaunchedKernel, key: str = "") -> None:
        """Close a kernel.

        Args:
            launched: the kernel.
            key: the session it belonged to; see `wait_for`.
        """
        ending = asyncio.create_task(launched.close(), name="end kernel")
        self._all.add(ending)
        ending.add_done_callback(self._all.discard)
        if key:
            self._by_key[key] = ending
            ending.add_done_callback(functools.partial(self._ended, key))
        await asyncio.shield(ending)

    async def wait_for(self, key: str) -> None:
        """Wait until nothing of a session's closed kernel runs any more."""
        if (ending := self._by_key.get(key)) is not None:
            await asyncio.wait({ending})

    async def wait_for_any(self) -> None:
        """Wait until one of them is closed; there must be one."""
        await asyncio.wait(self._all, return_when=asyncio.FIRST_COMPLETED)

    async def wait_for_all(self) -> list[BaseException | None]:
        """Wait until all are closed; returns the exception of each, or None."""
        return await asyncio.gather(*self._all, return_exceptions=True)

    def _ended(self, key: str, ending: asyncio.Task[None]) -> None:
        if self._by_key.get(key) is ending:
            del self._by_key[key]
