"""The host's side of a fork server: start it without the bot's secrets, request kernels.

If a server does not answer, the waiting start fails. After several timeouts, or if the server dies,
another replaces it. The kernels of the retired server live on, because its channel stays open until
they have ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import logging
import math
import os
import pathlib
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from interpreter_bot import errors, settings
from interpreter_bot.guest import control_messages
from interpreter_bot.kernels.provisioning import control_channels, python_environments
from interpreter_bot.wording import host_words

_log = logging.getLogger(__name__)

_PRELOAD_SECONDS = 120.0
_STOP_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
# More than one, because the machine may only be busy, and a second server costs memory.
_MAX_TIMEOUTS_IN_A_ROW = 3


_CONTAINER_LEVEL_WARNING = (
    "Code runs at the sandbox level 'container', without namespaces (%s). Sessions share this "
    "container's process list, a flaw of the kernel endangers all that runs in it, and memory is "
    "watched and not bounded. `interpreter-bot doctor` says how to get a stronger level."
)
_SHARED_ID_WARNING = (
    "All sessions have the bot's user id (%s): Landlock and the system call filter alone keep them "
    "apart. As the container's root, the bot gives each an id of its own."
)


_Request: TypeAlias = control_messages.ForkInit | control_messages.CloneTrees
_Answer: TypeAlias = (
    control_messages.InitForked | control_messages.TreesCloned | control_messages.RequestRefused
)


class Walls(enum.StrEnum):
    """Walls between the kernels of a fork server; `guest/confinement` uses the same values."""

    NAMESPACES = "namespaces"
    CONTAINER = "container"
    NOTHING = "nothing"


class _RefusedWallsError(Exception):
    """The machine refuses these walls; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class _RetiredServer:
    process: subprocess.Popen[bytes]
    # Closing the channel ends the server and its kernels.
    channel: control_channels.ControlChannel
    kernels: set[str]


class ForkServer:
    """Fork server of one kernel Python; `close` it at the end.

    The first process imports only what every kernel needs, so that it is ready soon. If many
    kernels are expected, a second process preloads the other modules in the background and replaces
    it.
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
        expects_many_kernels: bool,
        scratch: pathlib.Path,
        layers: pathlib.Path | None = None,
        private: Sequence[pathlib.Path] = (),
    ) -> None:
        """Start nothing yet.

        Args:
            python: interpreter of the kernels.
            kernels, limits, sandbox: the settings of these groups.
            workspaces: the directory of all workspaces.
            skills: the directory that all kernels see at /skills.
            has_own_ids: whether kernels get the ids of `sandbox` instead of the bot's, if possible.
            expects_many_kernels: whether to preload modules, as many kernels are expected.
            scratch: directory of this process alone, used if there are no namespaces.
            layers: the directory of installed packages; None if nothing can be installed.
            private: paths that kernels must not see.
        """
        self._private = private
        self._python = python
        self._preload_modules = list(kernels.preload) if expects_many_kernels else []
        self._limits = limits
        self._sandbox = sandbox
        self._workspaces = workspaces
        self._layers = layers
        self._skills = skills
        self._scratch = scratch
        self.has_own_ids = has_own_ids
        """Whether kernels get the ids of `sandbox`; known after `start`."""
        self.walls: Walls = _strongest_walls(sandbox)
        """The walls between its kernels; known after `start`."""
        self.refusal = ""
        """Why namespaces were refused; empty if they were not."""
        self.shared_id_reason = ""
        """Why sessions without namespaces have the bot's user id; empty if they do not."""
        self.doors_refusal = ""
        """Why sessions without namespaces cannot have doors; empty if they can."""
        self._lock = asyncio.Lock()
        self._timed_out_requests: set[str] = set()
        self._timeout_count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: control_channels.ControlChannel | None = None
        self._kernel_ids: set[str] = set()
        self._retired_servers: list[_RetiredServer] = []
        self._was_stopped = False
        self._launching_ids: set[str] = set()
        self._launch_settled = asyncio.Event()
        self._preload_task: asyncio.Task[None] | None = None
        self.preloading_ended = asyncio.Event()
        """Set once preloading has ended."""
        self.python_version = ""
        """Version of the kernels' Python; known after `start`."""
        self.packages: Mapping[str, str] = {}
        self.environment: python_environments.Environment | None = None

    @property
    def is_alive(self) -> bool:
        """Whether a fork server runs and accepts requests.

        If it has ended, its init server may still run for the present kernels.
        """
        is_running = self._process is not None and self._process.poll() is None
        return is_running and self._channel is not None and not self._channel.has_ended

    @property
    def was_stopped(self) -> bool:
        """Whether the server was ended because no kernel was needed."""
        return self._process is None and self._was_stopped

    async def start(self) -> None:
        """Start a process, which replaces a former one, and wait until it is ready.

        Raises:
            SandboxError: this machine cannot build the sandbox; the message says why.
            KernelStartError: the kernel's Python cannot be used.
            SettingsError: kernels would see private paths.
        """
        await self._cancel_preloading()
        await self._retire()
        self._was_stopped = False
        self.preloading_ended.clear()
        environment = await asyncio.to_thread(python_environments.inspect_environment, self._python)
        if self._sandbox.enabled:
            await asyncio.to_thread(
                python_environments.check_private_paths, environment, self._private
            )
        self.packages, self.environment = environment.packages, environment
        try:
            await self._start_process(environment)
        except _RefusedWallsError as refusal:
            if self.walls is not Walls.NAMESPACES or self._sandbox.level != "auto":
                raise errors.SandboxError(host_words.no_sandbox(refusal)) from refusal
            self.walls, self.refusal = Walls.CONTAINER, str(refusal)
            try:
                await self._start_process(environment)
            except _RefusedWallsError as container_refusal:
                reason = f"{refusal}; and without namespaces: {container_refusal}"
                raise errors.SandboxError(host_words.no_sandbox(reason)) from container_refusal
            _log.warning(_CONTAINER_LEVEL_WARNING, refusal)
        if self._preload_modules:
            self._preload_task = asyncio.create_task(
                self._preload_in_background(environment), name="preload modules"
            )
        else:
            self.preloading_ended.set()

    async def _start_process(self, environment: python_environments.Environment) -> None:
        """Start a process with the current walls, without preloaded modules.

        Raises:
            _RefusedWallsError: the machine refuses these walls.
        """
        self._process, self._channel = await self._spawn(environment, [])
        self._timed_out_requests, self._timeout_count = set(), 0

    async def _preload_in_background(self, environment: python_environments.Environment) -> None:
        """Start a process with all modules preloaded, and replace the first one with it."""
        try:
            process, channel = await self._spawn(environment, self._preload_modules)
        except (errors.BotError, _RefusedWallsError):
            _log.exception("nothing could be preloaded: the first code takes longer")
        else:
            try:
                await self._replace_with(process, channel)
            except asyncio.CancelledError:
                process.kill()
                channel.close()
                raise
        finally:
            # Spares wait for this, even if preloading failed.
            self.preloading_ended.set()

    async def _replace_with(
        self, process: subprocess.Popen[bytes], channel: control_channels.ControlChannel
    ) -> None:
        # A starting kernel still needs the process that forked it.
        async with self._lock:
            while self._launching_ids:
                self._launch_settled.clear()
                await self._launch_settled.wait()
            await self._retire()
            self._process, self._channel = process, channel
            self._timed_out_requests, self._timeout_count = set(), 0

    async def _spawn(
        self, environment: python_environments.Environment, preload: Sequence[str]
    ) -> tuple[subprocess.Popen[bytes], control_channels.ControlChannel]:
        """Start a process and wait until it has preloaded modules.

        Raises:
            _RefusedWallsError: the machine refuses the current walls.
            BotError: the process cannot be used.
        """
        channel, guest_end = control_channels.ControlChannel.pair()
        try:
            with guest_end:
                home = python_environments.WALLED_HOME
                if self.walls is not Walls.NAMESPACES:
                    home = str(self._scratch / "home")
                    os.makedirs(home, mode=0o700, exist_ok=True)
                process = python_environments.spawn(
                    environment, guest_end.fileno(), cores=self._cores, home=home
                )
        except OSError as error:
            channel.close()
            raise errors.KernelStartError from error
        try:
            await channel.send(self._configuration(environment, preload))
            async with asyncio.timeout(_PRELOAD_SECONDS):
                await self._wait_until_ready(process.pid, channel)
        except BaseException as error:
            # A half-started server must not get requests.
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

    def _configuration(
        self, environment: python_environments.Environment, preload: Sequence[str]
    ) -> control_messages.Configuration:
        return control_messages.Configuration(
            walls=self.walls,
            is_mapped_outside=self.has_own_ids,
            first_uid=self._sandbox.first_uid if self.has_own_ids else 0,
            tools_directory=str(self._scratch / f"tools-{uuid.uuid4().hex}"),
            uid=os.geteuid(),
            gid=os.getegid(),
            readable_paths=environment.readable_paths,
            hidden_paths=environment.hidden_paths,
            packages=list(environment.packages),
            missing_groups=dict(environment.absent_modules),
            workspaces_directory=str(self._workspaces),
            layers_directory=str(self._layers or ""),
            skills_directory=str(self._skills),
            visible_cores=self._cores,
            preload=list(preload),
            output_bytes=self._limits.output_bytes,
            cpu_cores=self._limits.cpu_cores,
            max_displays=self._limits.displays,
        )

    async def _wait_until_ready(self, pid: int, channel: control_channels.ControlChannel) -> None:
        message = (await _receive_or_raise(channel)).message
        if isinstance(message, control_messages.IdsNeeded):
            self._map_ids(pid)
            await channel.send(control_messages.IdsMapped())
            message = (await _receive_or_raise(channel)).message
        if isinstance(message, control_messages.WallsRefused):
            raise _RefusedWallsError(message.reason)
        if not isinstance(message, control_messages.ServerReady):
            raise errors.KernelStartError(host_words.FORK_SERVER_CONFUSED)
        if reason := message.shared_id_reason:
            if self.has_own_ids or not self.shared_id_reason:
                _log.warning(_SHARED_ID_WARNING, reason)
            self.has_own_ids, self.shared_id_reason = False, reason
        self.doors_refusal = message.doors_refusal
        self.python_version = message.python_version
        if message.preload_errors:
            missing_modules = "; ".join(
                f"{name} ({reason})" for name, reason in message.preload_errors.items()
            )
            _log.warning("not preloaded: %s", missing_modules)

    def _map_ids(self, pid: int) -> None:
        """Map a range of unused user ids into the server's namespace."""
        first_uid, count = self._sandbox.first_uid, self._sandbox.uid_count
        try:
            for name in ("uid_map", "gid_map"):
                pathlib.Path(f"/proc/{pid}/{name}").write_text(f"0 {first_uid} {count}")
        except OSError as error:
            raise errors.SandboxError(host_words.no_user_ids(first_uid)) from error

    def _channel_or_raise(self) -> control_channels.ControlChannel:
        if self._channel is None:
            raise errors.KernelStartError(host_words.FORK_SERVER_DOWN)
        return self._channel

    async def _request(
        self, request: _Request, descriptors: Sequence[int] = ()
    ) -> control_channels.Packet:
        """Send a request and collect its answer, even if the caller is cancelled."""
        # Send copies: a cancelled caller closes its descriptors.
        copies = [os.dup(descriptor) for descriptor in descriptors]
        exchange = asyncio.create_task(self._exchange(request, copies), name="ask fork server")
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            exchange.add_done_callback(functools.partial(self._on_abandoned, request.id))
            raise

    def _on_abandoned(
        self, request_id: str, exchange: asyncio.Task[control_channels.Packet]
    ) -> None:
        """Close the answer to a request whose caller was cancelled, and forget its kernel."""
        if not exchange.cancelled() and exchange.exception() is None:
            exchange.result().close()
        # If the request waited for the lock, it noted the kernel only after `note_ended`.
        self._forget_kernel(request_id)

    async def _exchange(
        self, request: _Request, descriptors: Sequence[int]
    ) -> control_channels.Packet:
        """Send one request and wait for its answer, one request at a time; close `descriptors`."""
        try:
            async with self._lock, asyncio.timeout(_ANSWER_SECONDS):
                if isinstance(request, control_messages.ForkInit):
                    self._kernel_ids.add(request.id)
                    self._launching_ids.add(request.id)
                await self._channel_or_raise().send(request, descriptors)
                answer = await self._receive_answer(request.id)
        except TimeoutError as error:
            _log.error("the fork server was silent for %g s", _ANSWER_SECONDS)
            self._timed_out_requests.add(request.id)
            self._timeout_count += 1
            if self._timeout_count == _MAX_TIMEOUTS_IN_A_ROW:
                await self._retire_and_log("it does not answer any more")
            raise errors.KernelStartError from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if isinstance(answer.message, control_messages.RequestRefused):
            name = type(request).__name__
            _log.error("fork server refused %s: %s", name, answer.message.reason)
            raise errors.KernelStartError
        return answer

    async def _receive_answer(self, request_id: str) -> control_channels.Packet:
        """Wait for the answer to a request; drop late answers to earlier ones."""
        while True:
            answer = await _receive_or_raise(self._channel_or_raise())
            self._timeout_count = 0
            answered_id = answer.message.id if isinstance(answer.message, _Answer) else ""
            if answered_id == request_id:
                return answer
            answer.close()
            if answered_id not in self._timed_out_requests:
                # No request has this id, and the descriptors may belong to a workspace.
                await self._retire_and_log("it answered another request")
                raise errors.KernelStartError
            self._timed_out_requests.discard(answered_id)

    async def _retire_and_log(self, reason: str) -> None:
        """Retire the server; the next start of a kernel starts another server."""
        _log.critical("the fork server is replaced: %s", reason)
        await self._retire()

    async def stop_if_unused(self) -> None:
        """End the process, unless it has kernels; `start` starts another."""
        if self.is_alive and not self._kernel_ids:
            await self._cancel_preloading()
            _log.info("no kernel was needed for long: the fork server ends")
            await self._retire()
            self._was_stopped = True

    async def _cancel_preloading(self) -> None:
        if self._preload_task is not None:
            self._preload_task.cancel()
            await asyncio.wait({self._preload_task})
            self._preload_task = None

    async def _retire(self) -> None:
        if self._process is not None and self._channel is not None:
            if not self._channel.has_ended:
                # This ends a hanging fork server, so that its init server can end kernels.
                self._channel.end_sending()
            self._retired_servers.append(
                _RetiredServer(self._process, self._channel, self._kernel_ids)
            )
        self._process, self._channel, self._kernel_ids = None, None, set()
        await self._end_retired()

    async def _end_retired(self, *, includes_servers_with_kernels: bool = False) -> None:
        """End the retired servers whose kernels have ended, or all of them."""
        servers = [
            server
            for server in self._retired_servers
            if includes_servers_with_kernels or not server.kernels
        ]
        self._retired_servers = [
            server for server in self._retired_servers if server not in servers
        ]
        for server in servers:
            server.channel.close()
            server.process.kill()
            await asyncio.to_thread(server.process.wait)

    def note_started(self, kernel_id: str) -> None:
        """Note that a kernel has started, and no longer needs the process that forked it."""
        self._launching_ids.discard(kernel_id)
        self._launch_settled.set()

    async def note_ended(self, kernel_id: str) -> None:
        """Note that a kernel, or the attempt to start it, has ended."""
        self._forget_kernel(kernel_id)
        await self._end_retired()

    def _forget_kernel(self, kernel_id: str) -> None:
        self.note_started(kernel_id)
        for kernels in (self._kernel_ids, *(server.kernels for server in self._retired_servers)):
            kernels.discard(kernel_id)

    async def fork(
        self, kernel_id: str, kernel: control_messages.KernelParameters, channel_fd: int
    ) -> None:
        """Fork the init process of a kernel, whose id must be passed to `note_ended` at the end.

        If the request fails and the server still forks the process later, it ends at once, because
        the other end of its channel is closed by then.

        Raises:
            KernelStartError: it could not be forked.
        """
        await self._request(control_messages.ForkInit(kernel_id, kernel), [channel_fd])

    async def clone_trees(self, *paths: str) -> tuple[int, ...]:
        """Clone mounts of paths below the workspaces; the caller closes the returned descriptors.

        Raises:
            KernelStartError: there is no such directory.
        """
        request = control_messages.CloneTrees(uuid.uuid4().hex, list(paths))
        return (await self._request(request)).descriptors

    async def close(self) -> None:
        """End all servers; their kernels end by their own control channels."""
        await self._cancel_preloading()
        await self._end_retired(includes_servers_with_kernels=True)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)


async def _receive_or_raise(channel: control_channels.ControlChannel) -> control_channels.Packet:
    packet = await channel.receive()
    if packet is None:
        raise errors.KernelStartError(host_words.FORK_SERVER_ENDED)
    return packet


def _strongest_walls(sandbox: settings.Sandbox) -> Walls:
    """Return the strongest walls that the settings allow."""
    if not sandbox.enabled:
        return Walls.NOTHING
    return Walls.CONTAINER if sandbox.level == "container" else Walls.NAMESPACES
