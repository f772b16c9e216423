"""Protocols of a host: kernels and files of sessions, owned by it, used by sessions.

A host may outlive the bot, and the bot may outlive a host's kernels. So nothing here is an object
of the other side: a session, a kernel, an execution and a mark are known by their names, and what
is known of them comes as values of one moment. Sizes are bytes, times seconds.

An execution runs in the host to its end, whoever listens. What it shows has numbers, from 1; the
host keeps all of it, bounded, until `Hosts.acknowledge`, and `Hosts.follow` gives what one has not
heard. Of what is delivered twice because an answer was lost, the host does everything once.

What goes wrong is a `BotError` with a sentence for people. Of a host that is gone for good, kernels
cannot be started, and executions end as `CRASHED`, with `kernel_lost`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from interpreter_bot import code_activity, session_variables, values

Event: TypeAlias = values.Output | code_activity.InstalledLayer
Show: TypeAlias = Callable[[Event, int], None]
"""Takes an event and its number, in order; is called from the event loop, and must not raise."""

Ask: TypeAlias = Callable[[values.InputRequested], Awaitable[str]]
"""Returns an answer for code that called `input()`; cancelled when it is not wanted any more. Of
a `BotError` the execution is stopped, with its sentence as the reason."""

OnWait: TypeAlias = Callable[[str], None]
"""Receives a sentence on what a slow start waits for; empty once it no longer waits."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutionEnd:
    """The end of an execution.

    Attributes:
        finished: how it ended.
        cpu_seconds: processor time that it took; 0 where its kernel is gone.
        names: what is defined in the kernel now, the latest first; as of before, if it is gone.
        more_names: how many there are besides.
        loss_reason: a sentence why the kernel is gone; empty as long as it lives.
        runs: how many pieces of code had been begun in the kernel, this one included.
        installed: what it installed; told before, too, unless that was left out.
    """

    finished: values.Finished
    cpu_seconds: float = 0.0
    names: tuple[str, ...] = ()
    more_names: int = 0
    loss_reason: str = ""
    runs: int = 0
    installed: tuple[code_activity.InstalledLayer, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class KernelStatus:
    """A session's kernel at one moment.

    Attributes:
        kernel_id: unique among all kernels ever, of all hosts.
        is_busy: code is running in it.
        idle_seconds: since it was last used; 0 while it is busy.
        memory_bytes: as counted against its limit; None where that is not known.
        loss_reason: why it ended by itself, until another is asked for; empty while it lives.
        is_frozen: it stands still until it is used again.
    """

    kernel_id: str
    is_busy: bool
    idle_seconds: float
    memory_bytes: int | None
    loss_reason: str = ""
    is_frozen: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class KernelLoss:
    """The end of a kernel that no person asked for.

    Attributes:
        key: of its session.
        kernel_id: of the kernel.
        reason: a sentence.
    """

    key: str
    kernel_id: str
    reason: str


OnLoss: TypeAlias = Callable[[KernelLoss], Awaitable[None]]
"""Is told of a lost kernel; must not raise."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredBytes:
    """What workspaces hold on disk.

    Attributes:
        by_key: those that were asked for; one is missing that does not exist or cannot be counted.
        others: all others together.
        disk_bytes: size of the disks that they are on.
    """

    by_key: Mapping[str, int]
    others: int
    disk_bytes: int


class Content(Protocol):
    """Bytes of an open file, as many as when it was opened; fewer if it shrinks."""

    @property
    def info(self) -> values.FileInfo:
        """Name, size and time as of opening."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks of at most 1 MiB, once; a WorkspaceError if reading failed."""


class Workspace(Protocol):
    """One session's files, which its code sees as /mnt/data. They outlive its kernels.

    Names are relative, harmless to print, and never the same for two files. Each method raises
    WorkspaceError where the operating system or the host refuses.
    """

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> values.FileInfo:
        """Store a file that a person sent, under its `file_names.safe_name`.

        It appears whole or not at all. A name that is taken gets a number ("data (2).csv"):
        nothing is ever replaced. What `chunks` raises is passed on.

        Returns:
            The file under the name it got.

        Raises:
            FileTooLargeError: it is over `upload_bytes`.
            WorkspaceFullError: it does not fit.
        """

    async def list(self) -> tuple[values.FileInfo, ...]:
        """List the regular files by name, among at most `workspace_files` entries."""

    def read(
        self,
        name: str,
        *,
        start: int = 0,
        most_bytes: int | None = None,
        may_be_sparse: bool = True,
        checkpoint: str = "",
    ) -> AbstractAsyncContextManager[Content]:
        """Open a file: `async with workspace.read(name) as content`, then iterate for chunks.

        Args:
            name: as listed.
            start: the first byte that is given; beyond the end there are none.
            most_bytes: a larger file is refused; by default the largest one can make.
            may_be_sparse: whether a file of next to nothing but holes is given, in full.
            checkpoint: the file as it was then, if that is kept; empty for as it is now.

        Raises:
            FileMissingError: there is no such regular file.
            FileTooLargeError: it is larger than `most_bytes`, or sparse.
        """

    async def kept(self, name: str) -> Mapping[str, int]:
        """Return which checkpoints have a copy of a file as it was then, and its bytes."""

    async def rename(self, name: str, new_name: str) -> str:
        """Give a file the `file_names.safe_name` of another name, in its folder; return its name.

        Raises:
            FileMissingError: there is no such regular file.
            FileNameError: something has that name already.
        """

    async def delete(self, name: str) -> None:
        """Delete a file; a FileMissingError if there is none."""

    async def mark(self) -> str:
        """Remember the present files for `changes_since`; returns the name of that mark.

        The host keeps the latest marks, as long as it lives itself.
        """

    async def changes_since(self, mark: str) -> values.FileChanges:
        """Return what was created or written since a mark; WorkspaceError if none knows it."""


class Kernel(Protocol):
    """A session's kernel, as of when it was asked for; it may have ended since."""

    @property
    def id(self) -> str:
        """Unique among all kernels ever, of all hosts."""

    @property
    def announcement(self) -> str:
        """A sentence for people why the former kernel is gone; mostly empty."""

    @property
    def runs(self) -> int:
        """How many pieces of code were begun in it, as far as it is known here."""

    @property
    def restored(self) -> session_variables.SavedVariables | None:
        """The variables of an earlier kernel that it began with; None if with none."""

    @property
    def restore_notice(self) -> str:
        """A sentence for people, before the first output: what did not come back; mostly empty."""

    async def execute(
        self,
        code: str,
        *,
        execution_id: str,
        show: Show,
        ask: Ask | None = None,
        seconds: float | None = None,
        is_own: bool = False,
    ) -> ExecutionEnd:
        """Run code in it and follow that to its end; never raises for what the code does.

        Cancelling this ends the listening, not the code: that runs on to its own end, and can be
        followed or stopped by its id. `run` in this package ends both.

        Executions of one kernel run in the order in which they were asked for. A kernel that has
        ended meanwhile refuses (`REFUSED`, `kernel_lost`).

        Args:
            code: Python, with IPython's additions.
            execution_id: new, at most 64 letters and digits; one that the host has is followed.
            show: gets each output as it appears.
            ask: answers the code's questions; without it `input()` raises in the code.
            seconds: wall time, without that of answering; default is the limit of the settings.
            is_own: it is the bot's own and changes no variable: the session is as idle as before.
        """


class Lease(Protocol):
    """A hold on a session's kernel: while it is held, that is neither evicted nor reaped."""

    async def kernel(self, *, waiting: OnWait | None = None) -> Kernel:
        """Return the session's kernel, alive; may be called repeatedly.

        If the former one was lost, another is started, whose `announcement` says so.

        Raises:
            KernelStartError: none could be started; another call tries again.
        """


class Hosts(Protocol):
    """All hosts that this bot uses, as one. A session's key is any text, below 2000 characters."""

    @property
    def sandbox_level(self) -> values.SandboxLevel:
        """What keeps code apart; of several hosts, the weakest."""

    @property
    def outlives_bot(self) -> bool:
        """Whether kernels and executions go on when this process is killed."""

    @property
    def ends_with_bot(self) -> bool:
        """Whether they end, with their variables saved, when this process ends in order."""

    def outlive(self) -> None:
        """Keep what runs for the next bot, though this process ends in order."""

    async def take_move_notice(self, key: str) -> bool:
        """Find a session's machine, perhaps wait; say once whether all was lost with another."""

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that code may import, with their versions."""

    @property
    def keeps_variables(self) -> bool:
        """Whether variables of idle sessions are saved for their next kernels."""

    async def variables(self, key: str) -> session_variables.HeldVariables:
        """Return what a session's kernel has of variables, and what its next one begins with."""

    async def fork(
        self, key: str, new_key: str, *, checkpoint: str = ""
    ) -> session_variables.RestoredState:
        """Let a new session begin as another one is, or was at a checkpoint.

        It returns and raises what `go_back` does, or a SessionExistsError; then nothing is left."""

    async def note_checkpoint(self, key: str, name: str) -> None:
        """Remember what a session with a kernel is, before code runs; where it can be had at once.

        Args:
            key: of the session.
            name: for `go_back`, of at most 64 letters and digits.
        """

    async def go_back(
        self, key: str, name: str, *, is_whole: bool = False
    ) -> session_variables.RestoredState:
        """Let a session be again what it was at a checkpoint; its kernel ends.

        Args:
            key: of the session.
            name: of the checkpoint.
            is_whole: only where all variables and files of that time come back.

        Raises:
            KernelError: that is not kept, or code runs; nothing is changed then.
            WorkspaceError: the operating system refuses.
        """

    def reach(self, key: str) -> code_activity.Reach:
        """Return what code of a session may reach outside."""

    async def listen(self, told: OnLoss | None) -> None:
        """From now on tell this one, or nobody, of each kernel that ends though no person asked.

        Of those that ended while nobody listened, at most the latest 1000, it is told at once."""

    def lease(self, key: str, *, person: str = "") -> AbstractAsyncContextManager[Lease]:
        """Lease a session's kernel; if it has none, its start begins now, beside the caller.

        A lease ends with its context, or with the connection of a bot that is gone.

        Args:
            key: of the session.
            person: who asks, unique over all platforms; whose kernel it is from now on.
        """

    async def follow(
        self, execution_id: str, *, after: int = 0, show: Show, ask: Ask | None
    ) -> ExecutionEnd:
        """Follow an execution that was begun earlier, also by another bot, to its end.

        Needs no lease. Gives what was shown already at once, then the rest as it appears. If the
        code waits for an answer, `ask` is called, whoever was asked before. Several may follow; of
        their answers the first counts. Cancelling this ends the listening only.

        Args:
            execution_id: of the execution.
            after: number of the last output that is not wanted again.
            show: gets each later one. Where some are not kept, a `Notice` says so.
            ask: as in `Kernel.execute`; None leaves questions to others.

        Raises:
            ExecutionMissingError: it never began, was acknowledged, is too old, or its host left.
        """

    async def stop(self, execution_id: str, reason: str = "") -> None:
        """Interrupt an execution, or keep it from beginning; at once, its end comes to followers.

        Variables survive if the code lets them. Nothing happens if it has ended, or is unknown.

        Args:
            execution_id: of the execution.
            reason: a sentence for its end, if that says more than that somebody stopped it.
        """

    def acknowledge(self, execution_id: str) -> None:
        """Let the host forget what an execution showed, and its end, soon; it does not wait.

        A host that cannot be reached now does not hear of it, and forgets by itself a day later.
        """

    async def statuses(self, keys: Collection[str] | None = None) -> Mapping[str, KernelStatus]:
        """Return the kernels of these sessions, or of all; one that has none is missing."""

    async def release(self, key: str) -> None:
        """End a session's kernel, at a person's request; returns when it is gone."""

    async def forget(self, key: str) -> None:
        """End a session's kernel and delete its files; what uses either waits until it is done."""

    async def workspace(self, key: str) -> Workspace:
        """Return a session's files, created if missing. While they are deleted, it waits."""

    async def stored_bytes(self, keys: Collection[str]) -> StoredBytes:
        """Measure workspaces, also of sessions without a kernel; those of `keys` one by one."""
