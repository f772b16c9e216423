"""Start and end of kernels.

jupyter_client's kernel manager is not used: it trusts the kernel, and it writes a connection file
that code in the kernel could read.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid

from interpreter_bot import errors
from interpreter_bot.kernels import live_kernels
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.kernels.provisioning import provisioners
from interpreter_bot.kernels.wire import clients, sockets

_log = logging.getLogger(__name__)

_START_SECONDS = 30.0
_DEATH_SECONDS = 5.0
_MAX_PARALLEL_ENDS = 8


async def attach_workspace(kernel: live_kernels.Kernel, workspace: workspaces.Workspace) -> None:
    """Give a kernel a session's files.

    Raises:
        KernelStartError: the files cannot be attached, or the kernel is dead.
        OSError: the files cannot be opened.
    """
    await kernel.provisioner.attach(workspace.directory, workspace.variables, workspace.temporary)
    if kernel.provisioner.starts_when_attached:
        await _connect(kernel.connection, kernel.provisioner)
    kernel.provisioner.is_used = True
    kernel.workspace = workspace


async def launch(
    host_context: provisioners.ProvisionerContext, *, grace_seconds: float
) -> live_kernels.Kernel:
    """Start a kernel that waits for its workspace.

    Code has `grace_seconds` to react to an interrupt before its kernel is killed.

    Raises:
        KernelStartError: it did not start in time; its process has ended.
    """
    kernel_id = uuid.uuid4().hex
    provisioner = provisioners.ForkProvisioner(kernel_id, host_context)
    connection = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            key = await provisioner.launch()
            connection = clients.Client(key.encode(), provisioner.connect)
            if not provisioner.starts_when_attached:
                await _connect(connection, provisioner)
    except BaseException as error:
        if provisioner.has_process:
            await _kill_and_clean_up(provisioner, connection)
        if isinstance(error, OSError):  # TimeoutError is one.
            raise errors.KernelStartError from error
        raise
    return live_kernels.Kernel(
        provisioner,
        connection,
        id=kernel_id,
        limits=host_context.limits,
        interrupt_grace_seconds=grace_seconds,
    )


async def _connect(connection: clients.Client, provisioner: provisioners.ForkProvisioner) -> None:
    connect_task = asyncio.create_task(connection.open(), name="connecting")
    death_task = asyncio.create_task(provisioner.ended.wait(), name="death before welcome")
    try:
        tasks: set[asyncio.Task[object]] = {connect_task, death_task}
        await asyncio.wait(tasks, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not connect_task.done():
            raise errors.KernelStartError
        connect_task.result()
    except sockets.LostSocket as error:
        # Sockets close before the process is reaped; wait, so that the reason gets into the log.
        await asyncio.wait({death_task}, timeout=_DEATH_SECONDS)
        raise errors.KernelStartError from error
    finally:
        connect_task.cancel()
        death_task.cancel()


async def _kill_and_clean_up(
    provisioner: provisioners.ForkProvisioner, connection: clients.Client | None
) -> None:
    """Kill a kernel, wait until its processes have ended, and clean up after it."""
    await provisioner.kill()
    if connection is not None:
        connection.close()
    try:
        async with asyncio.timeout(_DEATH_SECONDS):
            await provisioner.wait()
    except TimeoutError:
        _log.warning("kernel %s was killed and has not ended", provisioner.kernel_id)
    await provisioner.cleanup()


class Shutdowns:
    """All kernels that are being ended. If the caller is cancelled, the end continues."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._tasks_by_session: dict[str, asyncio.Task[None]] = {}
        # Linux removes namespaces one after the other, so hundreds of parallel
        # ends would all be late.
        self._slots = asyncio.Semaphore(_MAX_PARALLEL_ENDS)

    def __len__(self) -> int:
        return len(self._tasks)

    async def end(self, kernel: live_kernels.Kernel, key: str = "") -> None:
        """End the kernel of session `key`, and return when none of its processes runs."""
        task = asyncio.create_task(self._end_in_slot(kernel), name="end kernel")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key:
            self._tasks_by_session[key] = task
            task.add_done_callback(functools.partial(self._on_ended, key))
        await asyncio.shield(task)

    async def wait_for(self, key: str) -> None:
        """Wait until all processes of a session's former kernel have ended."""
        if (task := self._tasks_by_session.get(key)) is not None:
            await asyncio.wait({task})

    async def wait_for_any(self) -> None:
        """Wait until any kernel has ended; at least one must be ending."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def wait_for_all(self) -> list[BaseException | None]:
        """Wait until all have ended, and return the exception of each, or None."""
        return await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_in_slot(self, kernel: live_kernels.Kernel) -> None:
        async with self._slots:
            await _kill_and_clean_up(kernel.provisioner, kernel.connection)

    def _on_ended(self, key: str, task: asyncio.Task[None]) -> None:
        if self._tasks_by_session.get(key) is task:
            del self._tasks_by_session[key]
