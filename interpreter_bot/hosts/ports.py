"""Protocols of a host, which owns the kernels and files of sessions.

A host may outlive the bot, and the bot may outlive a host's kernels. So sessions, kernels,
executions and marks are addressed by name, and returned values describe one moment. Sizes are in
bytes, times in seconds.

An execution runs in the host to its end, even if nobody follows it. Its events are numbered from 1;
the host keeps them, bounded, until `Hosts.acknowledge`, and `Hosts.follow` sends those after a
number. A request that is repeated because its answer was lost has its effect once.

Errors are `BotError`s with a sentence for people. If a host is lost, starts of kernels on it fail,
and its executions end as `CRASHED` with `kernel_lost`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from interpreter_bot import code_activity, session_variables, values
from interpreter_bot.hosts import placement_offers, requests

Event: TypeAlias = values.Output | code_activity.InstalledLayer
OnEvent: TypeAlias = Callable[[Event, int], None]
"""Receives each event and its number, in order, in the event loop; must not raise."""

Ask: TypeAlias = Callable[[values.InputRequested], Awaitable[str]]
"""Returns an answer for code that called `input()`; cancelled when the question is withdrawn. A
`BotError` stops the execution, with its sentence as the reason."""

OnWait: TypeAlias = Callable[[str], None]
"""Receives a sentence that says what a slow start waits for; empty once the wait is over."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutionEnd:
    """The end of an execution.

    Attributes:
        finished: how it ended.
        cpu_seconds: processor time; 0 if the kernel has ended.
        names: the kernel's variables, the latest first; those last known if it has ended.
        unlisted_count: number of variables that `names` leaves out.
        loss_reason: a sentence why the kernel ended; empty while it lives.
        run_count: number of executions begun in the kernel, including this one.
        installed_layers: also sent as events, unless those were left out.
    """

    finished: values.Finished
    cpu_seconds: float = 0.0
    names: tuple[str, ...] = ()
    unlisted_count: int = 0
    loss_reason: str = ""
    run_count: int = 0
    installed_layers: tuple[code_activity.InstalledLayer, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class KernelStatus:
    """A session's kernel at one moment.

    Attributes:
        kernel_id: unique among all kernels ever, of all hosts.
        is_busy: whether code is running in it.
        idle_seconds: since it was last used; 0 while it is busy.
        memory_bytes: as counted against its limit; None if unknown.
        loss_reason: why the kernel was lost, until the next one starts; empty while it lives.
        is_frozen: whether its processes are frozen until it is used again.
    """

    kernel_id: str
    is_busy: bool
    idle_seconds: float
    memory_bytes: int | None
    loss_reason: str = ""
    is_frozen: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class KernelLoss:
    """The end of a session's kernel that no person requested; the reason is a sentence."""

    key: str
    kernel_id: str
    reason: str


OnLoss: TypeAlias = Callable[[KernelLoss], Awaitable[None]]
"""Called with a lost kernel; must not raise."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredBytes:
    """Disk usage of workspaces.

    Attributes:
        by_key: of the requested sessions, without those that do not exist or cannot be measured.
        other_bytes: sum of all other sessions.
        disk_bytes: size of the disks.
    """

    by_key: Mapping[str, int]
    other_bytes: int
    disk_bytes: int


class Content(Protocol):
    """Bytes of an open file, up to its size at opening; fewer if it shrinks."""

    @property
    def info(self) -> values.FileInfo:
        """Name, size and time as of opening."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks of at most 1 MiB, once.

        Raises:
            WorkspaceError: reading failed.
        """


class Workspace(Protocol):
    """One session's files, which its code sees as /mnt/data. They outlive its kernels.

    Names are relative, harmless to print, and unique. Each method raises WorkspaceError if the
    operating system or the host refuses.
    """

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        """Store a file that a person sent, under its `file_names.safe_name`.

        The file appears whole or not at all. If the name is taken, it gets a number ("data
        (2).csv"): no file is replaced. Errors of `chunks` pass unchanged.

        Returns:
            The file under the name it got.

        Raises:
            FileTooLargeError: it is over `upload_bytes`.
            WorkspaceFullError: it does not fit.
        """

    @requests.request_method()
    async def list(self) -> tuple[values.FileInfo, ...]:
        """List the regular files by name, among at most `workspace_files` entries."""

    def read(
        self,
        name: str,
        *,
        start: int = 0,
        max_bytes: int | None = None,
        may_be_sparse: bool = True,
    ) -> AbstractAsyncContextManager[Content]:
        """Open a file: `async with workspace.read(name) as content`, then iterate for chunks.

        Args:
            name: as listed.
            start: offset of the first byte; beyond the end there are none.
            max_bytes: a larger file is refused; by default the limit of a session's files.
            may_be_sparse: whether a file that is mostly holes is read, in full.

        Raises:
            FileMissingError: there is no such regular file.
            FileTooLargeError: it is larger than `max_bytes`, or sparse.
        """

    @requests.request_method()
    async def rename(self, name: str, new_name: str) -> str:
        """Give a file the `file_names.safe_name` of another name, in its folder; return its name.

        Raises:
            FileMissingError: there is no such regular file.
            FileNameError: something has that name already.
        """

    @requests.request_method()
    async def delete(self, name: str) -> None:
        """Delete a file; a FileMissingError if there is none."""

    @requests.request_method()
    async def mark_files(self) -> str:
        """Remember the present files for `changes_since`, and return the name of that mark.

        The host keeps the latest marks in memory.
        """

    @requests.request_method()
    async def changes_since(self, mark: str) -> values.FileChanges:
        """Return the files created or written since a mark; WorkspaceError if it is forgotten."""


class Kernel(Protocol):
    """A session's kernel as of its request; it may have ended since."""

    @property
    def id(self) -> str:
        """Unique among all kernels ever, of all hosts."""

    @property
    def loss_notice(self) -> str:
        """A sentence for people why the former kernel ended; usually empty."""

    @property
    def run_count(self) -> int:
        """Number of executions begun in it, as far as this process knows."""

    @property
    def restored_variables(self) -> session_variables.SavedVariables | None:
        """The variables restored from an earlier kernel; None if there were none."""

    @property
    def restore_notice(self) -> str:
        """A sentence for people on variables that were not restored; usually empty."""

    async def execute(
        self,
        code: str,
        *,
        execution_id: str,
        show: OnEvent,
        ask: Ask | None = None,
        seconds: float | None = None,
        is_bot_code: bool = False,
    ) -> ExecutionEnd:
        """Run code and follow it to its end; errors of the code are events, not exceptions.

        Cancellation ends the following, not the code, which can be followed or stopped by its id.
        `cancellable_executions.run` stops both.

        Executions of one kernel run in the order of their requests. A kernel that has ended
        meanwhile refuses (`REFUSED`, `kernel_lost`).

        Args:
            code: Python, with IPython's additions.
            execution_id: at most 64 letters and digits; an execution of this id is only followed.
            show: receives each event as it appears.
            ask: answers the code's questions; without it `input()` raises in the code.
            seconds: maximum wall time, not counting waits for answers; by default the setting.
            is_bot_code: the bot's own code, which changes no variable; the session stays idle.
        """


class Lease(Protocol):
    """A lease of a session's kernel, which is neither evicted nor reaped meanwhile."""

    async def kernel(self, *, on_wait: OnWait | None = None) -> Kernel:
        """Return the session's live kernel; may be called repeatedly.

        If the former one was lost, another is started, whose `loss_notice` says so.

        Raises:
            KernelStartError: no kernel could be started; another call tries again.
        """


class Hosts(Protocol):
    """All hosts that this bot uses, as one. A session's key is a text below 2000 characters."""

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        """The sandbox level; with several hosts, the weakest."""

    @property
    def has_doors(self) -> bool:
        """Whether the bot can listen where code connects; with several hosts, on each of them."""

    @property
    def outlives_bot(self) -> bool:
        """Whether kernels and executions survive a kill of this process."""

    @property
    def ends_with_bot(self) -> bool:
        """Whether kernels end, after saving variables, at an orderly end of this process."""

    def keep_for_next_bot(self) -> None:
        """Keep kernels and executions for the next bot, despite an orderly end of this one.

        By default they do not end with the bot.
        """

    async def ensure_placed(self, key: str) -> bool:
        """Place a session on a machine if needed, perhaps after waiting for its former one.

        Return true once if the session lost its state with its former machine. By default there is
        one machine.
        """
        return False

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code may import, with their versions."""

    @property
    def keeps_variables(self) -> bool:
        """Whether variables of idle sessions are saved for their next kernels."""

    @requests.request_method()
    async def variables(self, key: str) -> session_variables.SessionVariables:
        """Return the variables of a session's kernel, and those saved for the next one."""

    @requests.request_method(is_long=True, is_unrepeatable=True)
    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Let a new session begin as a copy of another, as of now or of a checkpoint.

        After an error, the new session does not exist.

        Raises:
            SessionExistsError: the new session exists already.
            BotError: as `restore_checkpoint` does.
        """

    @requests.request_method()
    async def create_checkpoint(self, key: str, name: str) -> None:
        """Make a checkpoint of a session with a kernel before code runs, if it can be made at once.

        Its name, for `restore_checkpoint`, has at most 64 letters and digits.
        """

    @requests.request_method(is_long=True, is_unrepeatable=True)
    async def restore_checkpoint(
        self, key: str, name: str, *, requires_everything: bool = False
    ) -> session_variables.RestoredState:
        """Restore a session's files and variables of a checkpoint; its kernel ends.

        With `requires_everything`, nothing changes unless all variables and files can be restored.

        Raises:
            KernelError: the checkpoint is not kept, or code runs; nothing changes then.
            WorkspaceError: the operating system refuses.
        """

    def reach(self, key: str) -> code_activity.Reach:
        """Return the hosts and services that code of a session may reach."""

    async def subscribe_losses(self, on_loss: OnLoss | None) -> None:
        """Call `on_loss` with each kernel that ends without a person's request; None stops that.

        The latest 1000 losses since the last subscription are reported at once.
        """

    def lease(self, key: str, *, person: str = "") -> AbstractAsyncContextManager[Lease]:
        """Lease a session's kernel; without one, a start begins in the background.

        A lease ends with its context, or with the bot's connection. `person` is the unique name of
        the person who asks, on any platform; from now on, the kernel counts as theirs.
        """

    async def follow(
        self, execution_id: str, *, after: int = 0, show: OnEvent, ask: Ask | None
    ) -> ExecutionEnd:
        """Follow an earlier execution, also one of another bot, to its end; needs no lease.

        Past events after the number `after` come at once, later ones as they appear; a `Notice`
        stands for events that are not kept. If the code waits for an answer, `ask` is called, even
        if somebody else was asked before; None leaves questions to other followers. The first
        answer counts. Cancellation ends only the following.

        Raises:
            ExecutionMissingError: it never began, was acknowledged, is too old, or its host left.
        """

    @requests.request_method()
    async def stop(self, execution_id: str, reason: str = "") -> None:
        """Interrupt an execution, or prevent its beginning; its end comes to followers.

        Variables survive unless the kernel has to be killed. Does nothing if the execution has
        ended or is unknown. `reason` is a sentence for its end; empty if a person stopped it.
        """

    def acknowledge(self, execution_id: str) -> None:
        """Let the host delete an execution's events; does not wait.

        A host that cannot be reached now deletes them by itself a day later.
        """

    @requests.request_method()
    async def statuses(self, keys: Collection[str] | None = None) -> Mapping[str, KernelStatus]:
        """Return the kernels of these sessions, or of all, without sessions that have none."""

    @requests.request_method()
    async def release(self, key: str) -> None:
        """End a session's kernel, at a person's request; return when it has ended."""

    @requests.request_method()
    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files; other requests for it wait meanwhile."""

    async def workspace(self, key: str) -> Workspace:
        """Return a session's files, created if missing; waits while they are being deleted."""

    @requests.request_method()
    async def stored_bytes(self, keys: Collection[str]) -> StoredBytes:
        """Measure workspaces, also of sessions without a kernel."""


class HostProcess(Hosts, Protocol):
    """Further requests that a host process answers: of commands, routers and doors."""

    @requests.request_method(is_long=True, is_unrepeatable=True)
    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = "", new_epoch: int = 0
    ) -> session_variables.RestoredState:
        """Let a new session, of an epoch of its own, begin as a copy; see `Hosts.fork`."""

    @requests.request_method(is_long=True)
    async def save(self, key: str) -> bool:
        """Save a session's variables now; return whether all are saved."""

    @requests.request_method(is_long=True)
    async def end_session(self, key: str, reason: str) -> None:
        """Save a session's variables if nobody uses them, and end its kernel."""

    @requests.request_method()
    async def snapshot_sizes(self, keys: Collection[str]) -> session_variables.SnapshotSizes:
        """Return sizes of sessions' saved variables."""

    @requests.request_method()
    async def offer(self, key: str) -> placement_offers.Offer:
        """Return what this host offers a session."""

    @requests.request_method(is_long=True)
    async def fetch_session(self, key: str, epoch: int) -> bool:
        """Fetch a session from the store; return whether the store had it."""

    @requests.request_method(is_long=True)
    async def archive(self, key: str) -> bool:
        """Archive a session now; return whether it is completely archived."""

    @requests.request_method()
    async def end_moved_session(self, key: str, epoch: int) -> None:
        """End a session's kernel, as the session is on another machine in this epoch."""

    @requests.request_method()
    async def drain(self, *, is_urgent: bool) -> None:
        """Start no more kernels; end after the last one, or if urgent, after the last execution."""

    @requests.request_method(is_long=True)
    async def set_up_doors(self, kernel_id: str, code: str, version: str) -> None:
        """Run the code of a setup in a kernel, unless the kernel has this version already."""

    @requests.request_method(is_long=True, is_cancelled_on_disconnect=True)
    async def ask_person(self, kernel_id: str, question: values.InputRequested) -> str:
        """Ask the person who runs a kernel's present code, whose time limit is paused meanwhile.

        Raises:
            BotError: nobody can be asked, or nobody answered.
        """

    @requests.request_method()
    async def unleased_doors(self) -> dict[str, str]:
        """Return the kernels whose doors no bot has leased, with the keys of their sessions."""
