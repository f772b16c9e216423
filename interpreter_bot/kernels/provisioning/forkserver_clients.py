"""The host's side of a fork server: start it without the bot's secrets, request kernels.

A server that does not answer costs the starts that wait for it. After several silences, or its
death, another one takes its place. Its kernels live on: their init server, which began as the same
process, is not let go of before them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import math
import os
import pathlib
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType

from interpreter_bot import errors, settings
from interpreter_bot.kernels.provisioning import control_channels, python_environments
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_PRELOAD_SECONDS = 120.0
_STOP_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
# In a row. A late answer may only mean a busy machine, and a second server is memory.
_MAX_SILENCES = 3


_WEAKER = (
    "Code runs at the sandbox level 'container', without namespaces (%s). Sessions share this "
    "container's process list, a flaw of the kernel endangers all that runs in it, and memory is "
    "watched and not bounded. `interpreter-bot doctor` says how to get a stronger level."
)
_SHARED_ID = (
    "All sessions have the bot's user id (%s): Landlock and the system call filter alone keep them "
    "apart. As the container's root, the bot gives each an id of its own."
)


class Walls(enum.StrEnum):
    """What keeps the kernels of a fork server apart; `guest/confinement` has the same words."""

    NAMESPACES = "namespaces"
    CONTAINER = "container"
    NOTHING = "nothing"


class _RefusedWallsError(Exception):
    """The machine refuses these walls; the text says what."""


@dataclasses.dataclass(frozen=True, slots=True)
class _FormerServer:
    process: subprocess.Popen[bytes]
    # Not closed before its kernels are gone: it would end, and they with it.
    channel: control_channels.ControlChannel
    kernels: set[str]


class ForkServer:
    """Fork server, one per kernel Python. Use as an async context manager.

    The first process imports only what every kernel needs, so that a kernel can be had soon. Where
    many will be wanted, another one preloads the rest behind it, and takes its place.
    """

    def __init__(
        self,
        *,
        python: pathlib.Path,
        kernels: settings.Kernels,
        limits: settings.Limits,
        sandbox: settings.Sandbox,
        workspaces: pathlib.Path,
        skills: pathlib.Path,
        has_own_ids: bool,
        is_lasting: bool,
        scratch: pathlib.Path,
        layers: pathlib.Path | None = None,
        private: Sequence[pathlib.Path] = (),
    ) -> None:
        """Start nothing yet.

        Args:
            python: of the kernels.
            kernels: what is preloaded.
            limits: of each kernel.
            sandbox: whether kernels are confined, and their user ids.
            workspaces: the directory of all workspaces.
            skills: what all kernels see at /skills, now and later.
            has_own_ids: kernels get the ids that `sandbox` names, rather than the bot's, if ids can
                be given to them.
            is_lasting: many kernels will be wanted, so modules are preloaded.
            scratch: directory of this process alone, for what has no place in namespaces.
            layers: the directory of what sessions install; None where nothing can be installed.
            private: paths that kernels must not see.
        """
        self._private = private
        self._python = python
        self._preload = list(kernels.preload) if is_lasting else []
        self._limits = limits
        self._sandbox = sandbox
        self._workspaces = workspaces
        self._layers = layers
        self._skills = skills
        self._scratch = scratch
        self.has_own_ids = has_own_ids
        """Whether kernels get ids that `sandbox` names; known once it was started."""
        self.walls: Walls = _strongest(sandbox)
        """What keeps its kernels apart; known once it was started."""
        self.refusal = ""
        """Why namespaces were refused, where they were tried."""
        self.shared_id_reason = ""
        """Why sessions without namespaces have the bot's user id, where they do."""
        self.doors_refusal = ""
        """Why sessions without namespaces cannot have doors, where they cannot."""
        self._turn = asyncio.Lock()
        self._unanswered: set[object] = set()
        self._silences = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: control_channels.ControlChannel | None = None
        self._kernels: set[str] = set()
        self._former: list[_FormerServer] = []
        self._is_resting = False
        self._launching: set[str] = set()
        self._has_settled = asyncio.Event()
        self._preloading: asyncio.Task[None] | None = None
        self.is_complete = asyncio.Event()
        """Set once everything is preloaded that will be."""
        self.python = ""
        self.packages: Mapping[str, str] = {}
        self.environment: python_environments.Environment | None = None

    @property
    def is_alive(self) -> bool:
        """Whether there is a fork server, and it can be asked for kernels.

        Its init server may be there without it, for the kernels of both.
        """
        is_there = self._process is not None and self._process.poll() is None
        return is_there and self._channel is not None and not self._channel.has_ended

    @property
    def is_resting(self) -> bool:
        """Whether there is none because nobody wanted a kernel."""
        return self._process is None and self._is_resting

    async def __aenter__(self) -> ForkServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start a process, in the place of a former one, and wait until it can be asked.

        Raises:
            SandboxError: this machine cannot build the sandbox; the sentence says why.
            KernelStartError: the kernel's Python cannot be used.
            SettingsError: kernels would see private paths.
        """
        await self._end_preloading()
        await self._retire()
        self._is_resting = False
        self.is_complete.clear()
        environment = await asyncio.to_thread(python_environments.interrogate, self._python)
        if self._sandbox.enabled:
            await asyncio.to_thread(python_environments.refuse_exposed, environment, self._private)
        self.packages, self.environment = environment.packages, environment
        try:
            await self._begin(environment)
        except _RefusedWallsError as refusal:
            if self.walls is not Walls.NAMESPACES or self._sandbox.level != "auto":
                raise errors.SandboxError(host_words.no_sandbox(refusal)) from refusal
            self.walls, self.refusal = Walls.CONTAINER, str(refusal)
            try:
                await self._begin(environment)
            except _RefusedWallsError as second:
                reason = f"{refusal}; and without namespaces: {second}"
                raise errors.SandboxError(host_words.no_sandbox(reason)) from second
            _log.warning(_WEAKER, refusal)
        if self._preload:
            self._preloading = asyncio.create_task(
                self._preload_behind(environment), name="preload modules"
            )
        else:
            self.is_complete.set()

    async def _begin(self, environment: python_environments.Environment) -> None:
        """Have a process that has preloaded nothing, with the walls of now.

        Raises:
            _RefusedWallsError: the machine refuses these.
        """
        self._process, self._channel = await self._spawn(environment, [])
        self._unanswered, self._silences = set(), 0

    async def _preload_behind(self, environment: python_environments.Environment) -> None:
        """Put a process in the place of the first one that has everything preloaded."""
        try:
            process, channel = await self._spawn(environment, self._preload)
        except (errors.BotError, _RefusedWallsError, OSError):
            _log.exception("nothing could be preloaded: the first code takes longer")
        else:
            try:
                await self._replace_with(process, channel)
            except asyncio.CancelledError:
                process.kill()
                channel.close()
                raise
        finally:
            # Spares wait for this, whatever became of preloading.
            self.is_complete.set()

    async def _replace_with(
        self, process: subprocess.Popen[bytes], channel: control_channels.ControlChannel
    ) -> None:
        # A kernel that is being started still needs the process that began with it.
        async with self._turn:
            while self._launching:
                self._has_settled.clear()
                await self._has_settled.wait()
            await self._retire()
            self._process, self._channel = process, channel
            self._unanswered, self._silences = set(), 0

    async def _spawn(
        self, environment: python_environments.Environment, preload: Sequence[str]
    ) -> tuple[subprocess.Popen[bytes], control_channels.ControlChannel]:
        """Start a process and wait until it has preloaded modules.

        Raises:
            _RefusedWallsError: the machine refuses the walls of now.
            BotError: it cannot be used.
        """
        channel, theirs = control_channels.ControlChannel.pair()
        with theirs:
            home = python_environments.WALLED_HOME
            if self.walls is not Walls.NAMESPACES:
                home = str(self._scratch / "home")
                os.makedirs(home, mode=0o700, exist_ok=True)
            process = python_environments.spawn(
                environment, theirs.fileno(), cores=self._cores, home=home
            )
        try:
            await channel.send(self._introduction(environment, preload))
            async with asyncio.timeout(_PRELOAD_SECONDS):
                await self._await_readiness(process.pid, channel)
        except BaseException as error:
            # A half-started server must not be asked for kernels.
            process.kill()
            channel.close()
            await asyncio.to_thread(process.wait)
            if isinstance(error, TimeoutError):
                raise errors.KernelStartError(host_words.FORK_SERVER_SLOW) from error
            raise
        return process, channel

    @property
    def _cores(self) -> int:
        return max(1, math.ceil(self._limits.cpu_cores))

    def _introduction(
        self, environment: python_environments.Environment, preload: Sequence[str]
    ) -> dict[str, object]:
        return {
            "walls": self.walls,
            "is_mapped_outside": self.has_own_ids,
            "first_uid": self._sandbox.first_uid if self.has_own_ids else 0,
            "tools": str(self._scratch / f"tools-{uuid.uuid4().hex}"),
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "readable": environment.readable,
            "hidden": environment.hidden,
            "packages": list(environment.packages),
            "absent": dict(environment.absent),
            "workspaces": str(self._workspaces),
            "layers": str(self._layers or ""),
            "skills": str(self._skills),
            "cores": self._cores,
            "preload": list(preload),
            "temporary_bytes": self._limits.temporary_bytes,
            "output_bytes": self._limits.output_bytes,
            "workspace_bytes": self._limits.workspace_bytes,
            "cpu_cores": self._limits.cpu_cores,
            "displays": self._limits.displays,
        }

    async def _await_readiness(self, pid: int, channel: control_channels.ControlChannel) -> None:
        packet = await _received(channel)
        if packet.text("event") == "unshared":
            self._map_ids(pid)
            await channel.send({"op": "mapped"})
            packet = await _received(channel)
        if packet.text("event") == "refused walls":
            raise _RefusedWallsError(packet.text("reason"))
        if packet.text("event") != "ready":
            raise errors.KernelStartError(host_words.FORK_SERVER_CONFUSED)
        if reason := packet.text("shared_id_reason"):
            if self.has_own_ids or not self.shared_id_reason:
                _log.warning(_SHARED_ID, reason)
            self.has_own_ids, self.shared_id_reason = False, reason
        self.doors_refusal = packet.text("doors_refusal")
        self.python = packet.text("python")
        missing = packet.content.get("missing")
        if isinstance(missing, dict) and missing:
            listed = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
            _log.warning("not preloaded: %s", listed)

    def _map_ids(self, pid: int) -> None:
        """Map a range of unused user ids into the server's namespace."""
        first, count = self._sandbox.first_uid, self._sandbox.uid_count
        try:
            for name in ("uid_map", "gid_map"):
                pathlib.Path(f"/proc/{pid}/{name}").write_text(f"0 {first} {count}")
        except OSError as error:
            raise errors.SandboxError(host_words.no_user_ids(first)) from error

    def _channel_or_raise(self) -> control_channels.ControlChannel:
        if self._channel is None:
            raise errors.KernelStartError(host_words.FORK_SERVER_DOWN)
        return self._channel

    async def _ask(
        self, request: dict[str, object], descriptors: Sequence[int] = ()
    ) -> control_channels.Packet:
        """Send a request and collect its answer, even if the caller is cancelled."""
        # Copies, because a cancelled caller closes its own.
        owned = [os.dup(descriptor) for descriptor in descriptors]
        exchange = asyncio.create_task(self._exchange(request, owned), name="ask fork server")
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            exchange.add_done_callback(_discard)
            raise

    async def _exchange(
        self, request: dict[str, object], owned: Sequence[int]
    ) -> control_channels.Packet:
        """Send one request and wait for its answer, one at a time."""
        try:
            async with self._turn, asyncio.timeout(_ANSWER_SECONDS):
                if request["op"] == "fork":
                    self._kernels.add(str(request["id"]))
                    self._launching.add(str(request["id"]))
                await self._channel_or_raise().send(request, owned)
                answer = await self._answer_to(request["id"])
        except TimeoutError as error:
            _log.error("the fork server was silent for %g s", _ANSWER_SECONDS)
            self._unanswered.add(request["id"])
            self._silences += 1
            if self._silences == _MAX_SILENCES:
                await self._give_up("it does not answer any more")
            raise errors.KernelStartError from error
        finally:
            for descriptor in owned:
                os.close(descriptor)
        if answer.text("event") == "refused":
            _log.error("fork server refused %s: %s", request["op"], answer.text("reason"))
            raise errors.KernelStartError
        return answer

    async def _answer_to(self, wanted: object) -> control_channels.Packet:
        """Wait for one answer; late ones to earlier requests are dropped."""
        while True:
            answer = await _received(self._channel_or_raise())
            self._silences = 0
            if (about := answer.content.get("id")) == wanted:
                return answer
            answer.close()
            if about not in self._unanswered:
                # The request of this answer is unknown, and a workspace may have been in it.
                await self._give_up("it answered something else")
                raise errors.KernelStartError
            self._unanswered.discard(about)

    async def _give_up(self, reason: str) -> None:
        """Ask a server for nothing any more; the next start replaces it."""
        _log.critical("the fork server is replaced: %s", reason)
        await self._retire()

    async def rest(self) -> None:
        """End the process, unless a kernel is its own; `start` has another one."""
        if self.is_alive and not self._kernels:
            await self._end_preloading()
            _log.info("nobody wanted a kernel for long: what is preloaded is let go")
            await self._retire()
            self._is_resting = True

    async def _end_preloading(self) -> None:
        if self._preloading is not None:
            self._preloading.cancel()
            await asyncio.wait({self._preloading})
            self._preloading = None

    async def _retire(self) -> None:
        if self._process is not None and self._channel is not None:
            if not self._channel.has_ended:
                # The init server ends one that still hangs: no kernel could end before that.
                self._channel.send_no_more()
            self._former.append(_FormerServer(self._process, self._channel, self._kernels))
        self._process, self._channel, self._kernels = None, None, set()
        await self._end_former()

    async def _end_former(self, *, are_all_over: bool = False) -> None:
        """End the former servers that have no kernels any more."""
        over = [one for one in self._former if are_all_over or not one.kernels]
        self._former = [one for one in self._former if one not in over]
        for one in over:
            one.channel.close()
            one.process.kill()
            await asyncio.to_thread(one.process.wait)

    def settle(self, kernel_id: str) -> None:
        """Note that a kernel was started, and needs nothing more of the process that forked it."""
        self._launching.discard(kernel_id)
        self._has_settled.set()

    async def forget(self, kernel_id: str) -> None:
        """Note that nothing is left of a kernel, or of the attempt to start it."""
        self.settle(kernel_id)
        for kernels in (self._kernels, *(one.kernels for one in self._former)):
            kernels.discard(kernel_id)
        await self._end_former()

    async def fork(self, spec: dict[str, object], link: int) -> None:
        """Fork the init process of a kernel.

        Args:
            spec: for `guest/init_processes`; its `id` is to be told to `forget`. Should this server
                fork it too late, it ends at once: the other end of its channel is closed by then.
            link: descriptor of that process's end of its control channel.

        Raises:
            KernelStartError: it could not be forked.
        """
        await self._ask({"op": "fork", **spec}, [link])

    async def trees(self, *paths: str) -> tuple[int, ...]:
        """Clone mounts of a session's directories; returns descriptors, the caller's to close.

        Args:
            paths: below the directory of workspaces.

        Raises:
            KernelStartError: there is no such directory.
        """
        answer = await self._ask({"op": "trees", "id": uuid.uuid4().hex, "paths": paths})
        return answer.descriptors

    async def close(self) -> None:
        """End all servers; kernels they forked end by their own control channels."""
        await self._end_preloading()
        await self._end_former(are_all_over=True)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)


async def _received(channel: control_channels.ControlChannel) -> control_channels.Packet:
    packet = await channel.receive()
    if packet is None:
        raise errors.KernelStartError(host_words.FORK_SERVER_ENDED)
    return packet


def _strongest(sandbox: settings.Sandbox) -> Walls:
    """Return the walls that are tried first."""
    if not sandbox.enabled:
        return Walls.NOTHING
    return Walls.CONTAINER if sandbox.level == "container" else Walls.NAMESPACES


def _discard(exchange: asyncio.Task[control_channels.Packet]) -> None:
    """Close the descriptors of an answer whose caller was cancelled."""
    if not exchange.cancelled() and exchange.exception() is None:
        exchange.result().close()
