"""Start of kernels by a provisioner of jupyter_client's kind, so that another can replace ours.

What it must offer beyond jupyter_client's own interface stands in `provisioner_port`. There is no
kernel manager between: it would spend some milliseconds a start on a file that nobody reads. And
the end of kernels: they are closed in tasks that survive cancellation of the caller.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import logging
import uuid
from importlib import metadata

from jupyter_client import kernelspec, provisioning

from interpreter_bot import errors, settings
from interpreter_bot.kernels import live_kernels, provisioner_port
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.kernels.packages import lock_files
from interpreter_bot.kernels.provisioning import provisioners
from interpreter_bot.kernels.wire import clients, sockets

_GROUP = "jupyter_client.kernel_provisioners"
_log = logging.getLogger(__name__)

_DEATH_SECONDS = 5.0
_ENDS_AT_ONCE = 8


def check(name: str) -> None:
    """Check that a provisioner can be used, before any kernel is wanted.

    Args:
        name: of its entry point, as in `kernels.provisioner`.

    Raises:
        SettingsError: there is none of that name, or it lacks something; the sentence says what.
    """
    found = _find(name)
    try:
        kind = found.load()
    except (ImportError, AttributeError) as error:
        told = f"The kernel provisioner {name} cannot be loaded: {error}."
        raise errors.SettingsError(told) from error
    if not (isinstance(kind, type) and issubclass(kind, provisioning.KernelProvisionerBase)):
        raise errors.SettingsError(f"{name} is no kernel provisioner of jupyter_client's kind.")
    if missing := [needed for needed in provisioner_port.MEMBERS if not _offers(kind, needed)]:
        raise errors.SettingsError(
            f"The kernel provisioner {name} cannot be used: it lacks {', '.join(missing)}. "
            "It must do what ForkProvisioner does."
        )


@functools.cache
def _find(name: str) -> metadata.EntryPoint:
    # Every installed package is asked for it, which takes 30 ms.
    found = list(metadata.entry_points(group=_GROUP, name=name))
    if not found:
        raise errors.SettingsError(f"No kernel provisioner called {name} is installed.")
    return found[0]


def _offers(kind: type, name: str) -> bool:
    """Return whether a class has an attribute, or declares that its objects will."""
    declared = (inspect.get_annotations(one) for one in inspect.getmro(kind))
    return hasattr(kind, name) or any(name in names for names in declared)


@dataclasses.dataclass(slots=True)
class LaunchedKernel:
    """A started kernel with its provisioner.

    Attributes:
        kernel: ready to execute.
        provisioner: attaches workspaces, measures what the session uses, and ends it.
        connection: to the kernel; open once that runs.
        workspace: the attached one, if any.
        person: who asked for it last; see `kernel_capacity`.
        weight: the part of that person's share of processor and disk that the session has.
        layers: what was added to its packages, by the names of the layers.
    """

    kernel: live_kernels.Kernel
    provisioner: provisioner_port.Provisioner
    connection: clients.Client
    workspace: workspaces.Workspace | None = None
    person: str = ""
    weight: float = 1.0
    layers: dict[str, lock_files.Lock] = dataclasses.field(default_factory=dict)

    async def attach(self, workspace: workspaces.Workspace) -> None:
        """Give the kernel a session's files.

        Raises:
            KernelStartError: it cannot have them, or is gone.
            OSError: they cannot be opened.
        """
        await self.provisioner.attach(workspace.directory, workspace.variables, workspace.temporary)
        if self.provisioner.starts_when_attached:
            await _open(self.connection, self.provisioner)
        self.workspace = workspace

    async def close(self) -> None:
        """Kill the kernel and clean up after it."""
        await self.kernel.close()
        await _end(self.provisioner)


class Launcher:
    """Starter of kernels on one host."""

    def __init__(
        self, kernels: settings.Kernels, host_context: provisioners.ProvisionerContext
    ) -> None:
        self._kernels = kernels
        self._host_context = host_context
        self._kind = _find(kernels.provisioner).load()
        self._spec = kernelspec.KernelSpec(
            argv=["forked"], display_name="Python (sandboxed)", language="python"
        )

    async def launch(self) -> LaunchedKernel:
        """Start a kernel that waits for its workspace.

        Raises:
            KernelStartError: it did not start in time; nothing is left of it.
        """
        kernel_id = uuid.uuid4().hex
        provisioner: provisioner_port.Provisioner = self._kind(
            kernel_id=kernel_id, kernel_spec=self._spec, host_context=self._host_context
        )
        connection = None
        try:
            async with asyncio.timeout(self._kernels.start_seconds):
                options = await provisioner.pre_launch()
                told = await provisioner.launch_kernel(options.pop("cmd"), **options)
                connection = clients.Client(told["key"], provisioner.connect)
                if not provisioner.starts_when_attached:
                    await _open(connection, provisioner)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if provisioner.has_process:
                await _end(provisioner)
            if isinstance(error, TimeoutError):
                raise errors.KernelStartError from error
            raise
        kernel = live_kernels.Kernel(
            provisioner,
            connection,
            id=kernel_id,
            limits=self._host_context.limits,
            interrupt_grace_seconds=self._kernels.interrupt_grace_seconds,
        )
        return LaunchedKernel(kernel, provisioner, connection)


async def _open(connection: clients.Client, provisioner: provisioner_port.Provisioner) -> None:
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


async def _end(provisioner: provisioner_port.Provisioner) -> None:
    """Kill a kernel, wait until nothing of it runs, and clean up after it."""
    await provisioner.kill()
    try:
        async with asyncio.timeout(_DEATH_SECONDS):
            await provisioner.wait()
    except TimeoutError:
        _log.warning("kernel %s was killed and has not ended", provisioner.kernel_id)
    await provisioner.cleanup()


class Shutdowns:
    """All kernels that are being closed."""

    def __init__(self) -> None:
        self._all: set[asyncio.Task[None]] = set()
        self._by_key: dict[str, asyncio.Task[None]] = {}
        # The kernel takes namespaces apart one after the other: hundreds at once would all be late.
        self._slots = asyncio.Semaphore(_ENDS_AT_ONCE)

    def __len__(self) -> int:
        return len(self._all)

    async def close(self, launched: LaunchedKernel, key: str = "") -> None:
        """Close a kernel.

        Args:
            launched: the kernel.
            key: the session it belonged to; see `wait_for`.
        """
        ending = asyncio.create_task(self._close(launched), name="end kernel")
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

    async def _close(self, launched: LaunchedKernel) -> None:
        async with self._slots:
            await launched.close()

    def _ended(self, key: str, ending: asyncio.Task[None]) -> None:
        if self._by_key.get(key) is ending:
            del self._by_key[key]
