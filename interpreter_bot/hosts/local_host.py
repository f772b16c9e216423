"""The host in this process; its kernels end with the process."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import logging
import pathlib
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final

from interpreter_bot import code_activity, errors, schedules, session_variables, values
from interpreter_bot.hosts import (
    executions,
    kernel_doors,
    messages,
    placement_offers,
    ports,
)
from interpreter_bot.kernels import (
    live_kernels,
    machine_exhaustion,
    machines,
    pools,
    session_forks,
    snapshot_retention,
)
from interpreter_bot.kernels.files import workspaces

_log = logging.getLogger(__name__)

_REAP_INTERVAL_SECONDS: Final = 30.0
_EXPIRY_INTERVAL_SECONDS: Final = 3600.0
_MAX_UNREPORTED_LOSSES: Final = 1000
# People see the measured size, so measuring must not stop early.
_MAX_MEASURED_BYTES: Final = 1 << 60


class LocalKernel:
    """A kernel of the pool; implements `ports.Kernel`."""

    def __init__(self, kernel: live_kernels.Kernel, host_executions: executions.Executions) -> None:
        self._kernel = kernel
        self.id, self.loss_notice = kernel.id, kernel.loss_notice
        self.restored_variables, self.restore_notice = (
            kernel.restored_variables,
            kernel.restore_notice,
        )
        self._executions = host_executions

    @property
    def run_count(self) -> int:
        return self._kernel.run_count

    async def execute(
        self,
        code: str,
        *,
        execution_id: str,
        show: ports.OnEvent,
        ask: ports.Ask | None = None,
        seconds: float | None = None,
        is_bot_code: bool = False,
    ) -> ports.ExecutionEnd:
        self._executions.begin(
            execution_id,
            self._kernel,
            code,
            can_ask=ask is not None,
            seconds=seconds,
            is_bot_code=is_bot_code,
        )
        return await _follow(self._executions, execution_id, after=0, show=show, ask=ask)


class LocalLease:
    """A lease of the pool; implements `ports.Lease`."""

    def __init__(
        self,
        lease: pools.Lease,
        host_executions: executions.Executions,
        open_doors: Callable[[live_kernels.Kernel], Awaitable[None]],
    ) -> None:
        self._lease = lease
        self._executions = host_executions
        self._open_doors = open_doors

    async def kernel(self, *, on_wait: ports.OnWait | None = None) -> LocalKernel:
        kernel = await self._lease.kernel(on_wait=on_wait)
        await self._open_doors(kernel)
        return LocalKernel(kernel, self._executions)


class LocalHost:
    """A pool of kernels as a host; implements `ports.Hosts`. Use `open_on`."""

    outlives_bot = False
    ends_with_bot = True

    def keep_for_next_bot(self) -> None:
        """Do nothing: kernels in this process cannot outlive it."""

    def __init__(
        self, pool: pools.Pool, *, doorkeeper: kernel_doors.Doorkeeper | None = None
    ) -> None:
        self.pool = pool
        self._doorkeeper = doorkeeper
        self._executions = executions.Executions()
        forks = session_forks.SessionForks(pool)
        self.fork = forks.fork
        self.create_checkpoint = forks.create_checkpoint
        self.restore_checkpoint = forks.restore_checkpoint
        self.stop, self.acknowledge = self._executions.stop, self._executions.acknowledge
        self.release, self.forget, self.workspace = pool.release, pool.forget, pool.workspace
        self._on_loss: ports.OnLoss | None = None
        self._unreported_losses: collections.deque[ports.KernelLoss] = collections.deque(
            maxlen=_MAX_UNREPORTED_LOSSES
        )
        pool.on_loss = self._report_loss

    @classmethod
    @contextlib.asynccontextmanager
    async def open_on(
        cls, machine: machines.Machine, *, doorkeeper: kernel_doors.Doorkeeper | None = None
    ) -> AsyncIterator[LocalHost]:
        """Open the pool of kernels on a machine, and start its periodic jobs.

        Without a doorkeeper, all doors stay shut.

        Raises:
            BotError: the pool cannot be opened; the sentence says why.
        """
        async with pools.Pool.open_on(machine) as pool:
            host = cls(pool, doorkeeper=doorkeeper)
            reap_job = schedules.PeriodicJob("reap kernels", _REAP_INTERVAL_SECONDS, pool.reap)
            expiry_job = schedules.PeriodicJob(
                "delete old variables", _EXPIRY_INTERVAL_SECONDS, host.expire_variables
            )
            try:
                async with schedules.run_periodically(reap_job, expiry_job):
                    yield host
            finally:
                await host._executions.close()

    async def expire_variables(self) -> int:
        """Delete old or too large saved variables; return the number of affected sessions."""
        stored_workspaces = await self.pool.stored_workspaces()
        return await snapshot_retention.expire(
            self.pool.snapshots,
            stored_workspaces,
            self.pool.locks,
            max_days=self.pool.settings.retention.days,
        )

    async def end_idle_kernels(self, idle_seconds: float) -> None:
        """End kernels that were idle for so long, and all spares."""
        await self.pool.end_spares()
        await self.pool.reap(idle_seconds)

    @property
    def data(self) -> pathlib.Path:
        """The data directory of this host."""
        return self.pool.settings.paths.data

    async def ensure_placed(self, key: str) -> bool:
        """Return false: sessions of a single host do not move."""
        return False

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        return self.pool.sandbox_level

    @property
    def has_doors(self) -> bool:
        return self.pool.has_doors

    @property
    def packages(self) -> Mapping[str, str]:
        return self.pool.packages

    @property
    def keeps_variables(self) -> bool:
        return self.pool.snapshots.is_used

    async def variables(self, key: str) -> session_variables.SessionVariables:
        saved = await self.pool.saved_variables(key)
        kernel = self.pool.kernels.get(key)
        if kernel is None or not kernel.is_alive:
            return session_variables.SessionVariables(saved=saved)
        namespace = kernel.namespace
        return session_variables.SessionVariables(namespace.names, namespace.unlisted_count, saved)

    async def doors(self, kernel_id: str) -> kernel_doors.LocalDoors | None:
        """Open a kernel's doors; return None if it has none, or has ended."""
        kernel = self._find_kernel(kernel_id)
        doors = None if kernel is None else kernel.provisioner.doors()
        if doors is None:
            return None
        ask = functools.partial(self.ask_person, kernel_id)
        if self.sandbox_level is values.SandboxLevel.CONTAINER:
            return kernel_doors.SupervisedDoors(*doors, ask=ask)
        return kernel_doors.ListeningDoors(*doors, ask=ask)

    async def ask_person(self, kernel_id: str, question: values.InputRequested) -> str:
        if (kernel := self._find_kernel(kernel_id)) is None:
            raise errors.KernelError
        return await kernel.ask(question)

    async def set_up_doors(self, kernel_id: str, code: str) -> None:
        """Run the bot's code that sets up a kernel's doors.

        Raises:
            KernelError: the code failed or was stopped.
        """
        if (kernel := self._find_kernel(kernel_id)) is not None:
            finished, _ = await kernel.run_bot_code(code)
            if finished.ending is not values.Ending.OK:
                raise errors.KernelError

    def _find_kernel(self, kernel_id: str) -> live_kernels.Kernel | None:
        for kernel in self.pool.kernels.values():
            if kernel.id == kernel_id and kernel.is_alive:
                return kernel
        return None

    def reach(self, key: str) -> code_activity.Reach:
        return code_activity.NO_REACH if self._doorkeeper is None else self._doorkeeper.reach(key)

    async def subscribe_losses(self, on_loss: ports.OnLoss | None) -> None:
        self._on_loss = on_loss
        while on_loss is not None and self._unreported_losses:
            await on_loss(self._unreported_losses.popleft())

    async def _report_loss(self, key: str, kernel: live_kernels.Kernel, reason: str) -> None:
        loss = ports.KernelLoss(key, kernel.id, reason)
        if self._on_loss is not None:
            await self._on_loss(loss)
        else:
            self._unreported_losses.append(loss)

    @contextlib.asynccontextmanager
    async def lease(self, key: str, *, person: str = "") -> AsyncIterator[LocalLease]:
        async with self.pool.lease(key, person=person) as lease:
            yield LocalLease(lease, self._executions, functools.partial(self._open_doors, key))

    async def _open_doors(self, key: str, kernel: live_kernels.Kernel) -> None:
        """Let the doorkeeper open a kernel's doors, and set them up in the kernel."""
        if self._doorkeeper is None:
            return
        doors = functools.partial(self.doors, kernel.id)
        if setup := await self._doorkeeper.open(key, kernel.id, doors):
            try:
                await self.set_up_doors(kernel.id, setup.code)
            except errors.KernelError:
                _log.warning("the doors of kernel %s could not be set up", kernel.id)
            else:
                self._doorkeeper.note_setup_done(kernel.id)

    async def follow(
        self, execution_id: str, *, after: int = 0, show: ports.OnEvent, ask: ports.Ask | None
    ) -> ports.ExecutionEnd:
        return await _follow(self._executions, execution_id, after=after, show=show, ask=ask)

    async def statuses(
        self, keys: Collection[str] | None = None
    ) -> Mapping[str, ports.KernelStatus]:
        now = time.monotonic()
        by_key = {}
        for key, kernel in self.pool.kernels.items():
            if keys is None or key in keys:
                by_key[key] = ports.KernelStatus(
                    kernel_id=kernel.id,
                    is_busy=kernel.is_busy,
                    idle_seconds=0.0 if kernel.is_busy else now - kernel.last_used,
                    memory_bytes=kernel.provisioner.meter().counted_bytes(),
                    loss_reason="" if kernel.is_alive else kernel.loss_reason,
                    is_frozen=kernel.is_frozen,
                )
        return by_key

    async def save(self, key: str) -> bool:
        if (kernel := self.pool.kernels.get(key)) is not None:
            await self.pool.save_variables(key)
        saved = await self.pool.saved_variables(key)
        if kernel is None or not kernel.is_alive:
            return saved is not None
        state = kernel.id, kernel.run_count
        return saved is not None and (saved.kernel_id, saved.run_count) == state

    async def end_session(self, key: str, reason: str) -> None:
        await self.save(key)
        kernel = self.pool.kernels.get(key)
        await self.pool.run_without_kernel(key, _keep_files)
        if kernel is not None:
            await self._report_loss(key, kernel, reason)

    async def offer(self, key: str) -> placement_offers.Offer:
        session_workspaces = workspaces.Workspaces(
            self.data / "workspaces", self.pool.settings.limits
        )
        has_files = await asyncio.to_thread(session_workspaces.get(key).directory.exists)
        return placement_offers.Offer(has_files, machine_exhaustion.free_bytes())

    async def snapshot_sizes(self, keys: Collection[str]) -> session_variables.SnapshotSizes:
        return await snapshot_retention.measure(await self.pool.stored_workspaces(), keys)

    async def stored_bytes(self, keys: Collection[str]) -> ports.StoredBytes:
        sizes = {}
        for workspace in await self.pool.stored_workspaces():
            try:
                file_usage = await workspace.usage()
                variable_usage = await workspace.variables_usage(max_bytes=_MAX_MEASURED_BYTES)
                checkpoint_bytes = await workspace.checkpoint_bytes()
                sizes[workspace.name] = file_usage.bytes + variable_usage.bytes + checkpoint_bytes
            except errors.WorkspaceError:
                # The workspace may have been deleted meanwhile.
                _log.warning("workspace %s is not counted", workspace.name, exc_info=True)
        names = {key: workspaces.Workspaces.name_of(key) for key in keys}
        by_key = {key: sizes.pop(name) for key, name in names.items() if name in sizes}
        disk = await asyncio.to_thread(shutil.disk_usage, self.data)
        return ports.StoredBytes(by_key, sum(sizes.values()), disk.total)


async def _follow(
    host_executions: executions.Executions,
    execution_id: str,
    *,
    after: int,
    show: ports.OnEvent,
    ask: ports.Ask | None,
) -> ports.ExecutionEnd:
    end: ports.ExecutionEnd | None = None

    async def send(number: int, record: bytes) -> None:
        nonlocal end
        event = messages.unpack(record)
        if isinstance(event, ports.ExecutionEnd):
            end = event
        else:
            show(event, number)

    questions = host_executions.questions(execution_id)
    questioner = None
    if ask is not None and questions is not None:
        questioner = executions.CallbackQuestioner(questions, ask)
    await host_executions.follow(execution_id, after=after, send=send, questioner=questioner)
    if end is None:
        raise errors.ExecutionMissingError
    return end


async def _keep_files(_: workspaces.Workspace) -> None:
    """Do nothing: the session's files stay after the end of its kernel."""
