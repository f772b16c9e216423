"""Server of a host process: a unix socket for bots of this machine, and TLS for others.

Each bot has one WebSocket for leases, executions and losses. Everything else is an HTTP request.
A connected bot controls all sessions, so peers are checked. On the socket, their user must be that
of this process, root, or the user in the settings; over TLS, they need a bot's certificate.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import hashlib
import logging
import os
import pathlib
import secrets
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from importlib import metadata
from typing import Final

from aiohttp import web

from interpreter_bot import errors, private_files
from interpreter_bot.hosts import (
    executions,
    host_addresses,
    host_sockets,
    local_host,
    messages,
    ports,
)
from interpreter_bot.kernel_host import (
    bot_connections,
    door_leases,
    request_answers,
    session_epochs,
)
from interpreter_bot.kernels import machine_exhaustion, machines, session_archives

_log = logging.getLogger(__name__)

_BOOT_ID: Final = pathlib.Path("/proc/sys/kernel/random/boot_id")
_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
# A request line holds a file name, of which each byte may be escaped as six characters.
_MAX_REQUEST_LINE_BYTES: Final = 64 * 1024
_ID_BYTES: Final = 16
_MAX_LOSSES: Final = 1000
_RETRY_SECONDS: Final = 0.1
_SHUTDOWN_SECONDS: Final = 2.0
_HEARTBEAT_SECONDS: Final = 20.0


class HostServer:
    """Server of a host. Use `open`.

    Attributes:
        connections: of the connected bots.
        last_disconnected_at: monotonic time of the last disconnection of a bot, or of the start.
        executions: of the host.
        is_draining: whether it starts no more kernels.
        is_ending: whether the process ends once no code runs.
        state_changed: set whenever any of these may have changed.
    """

    def __init__(
        self,
        host: local_host.LocalHost,
        host_executions: executions.Executions,
        *,
        allowed_uids: Collection[int],
        is_lingering: bool,
        fingerprint: str,
        private_paths: Collection[pathlib.Path],
        archives: session_archives.SessionArchives | None,
    ) -> None:
        self._host = host
        self._doors = door_leases.DoorLeases(host)
        self.executions = host_executions
        self._is_lingering = is_lingering
        self._settings_fingerprint = fingerprint
        self._private_paths = private_paths
        self._allowed_uids = frozenset(allowed_uids)
        self.id = uuid.uuid4().hex
        self._data_id = self._data_copy_id = ""
        self._epochs = session_epochs.SessionEpochs(host.data / "epochs", host.release)
        self._archives = archives
        if archives is not None:
            self._epochs.on_epoch = archives.note_epoch
        self.connections: list[bot_connections.BotConnection] = []
        self.last_disconnected_at = time.monotonic()
        self.is_draining = False
        self.is_ending = False
        self.state_changed = asyncio.Event()
        self._losses: collections.deque[ports.KernelLoss] = collections.deque(maxlen=_MAX_LOSSES)
        self._losses_changed = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        host: local_host.LocalHost,
        host_executions: executions.Executions,
        path: pathlib.Path,
        *,
        is_lingering: bool = False,
        bot_uid: int | None = None,
        fingerprint: str = "",
        private_paths: Collection[pathlib.Path] = (),
        tls: host_addresses.TlsAddress | None = None,
        archives: session_archives.SessionArchives | None = None,
    ) -> AsyncIterator[HostServer]:
        """Serve on a socket until the context is closed.

        Args:
            host: has the kernels and files.
            host_executions: those of the host.
            path: of the socket, in a directory of ours; a socket of a dead host is replaced.
            is_lingering: whether the host ends by itself if no bot connects.
            bot_uid: another user whose bots may connect.
            fingerprint: of the settings of its kernels.
            private_paths: paths that kernels may not see.
            tls: address for bots of other machines.
            archives: of its sessions, if machines share a store.

        Raises:
            OSError: a socket cannot be created.
        """
        allowed_uids = {0, os.geteuid()} | ({bot_uid} if bot_uid is not None else set())
        server = cls(
            host,
            host_executions,
            allowed_uids=allowed_uids,
            is_lingering=is_lingering,
            fingerprint=fingerprint,
            private_paths=private_paths,
            archives=archives,
        )
        server._data_id, server._data_copy_id = await asyncio.to_thread(_read_identity, host.data)
        runner = await server._make_runner()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _bind(listener, path, bot_uid)
            await host.subscribe_losses(server._on_loss)
            report_task = asyncio.create_task(server._report_losses(), name="losses of kernels")
            try:
                await _start(runner, listener, tls)
                yield server
            finally:
                report_task.cancel()
                await asyncio.wait({report_task})
        finally:
            await host.subscribe_losses(None)
            await runner.cleanup()
            listener.close()
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _make_runner(self) -> web.AppRunner:
        answers = request_answers.RequestAnswers(
            self._host, self.executions, self._epochs, self._archives, self._doors, self._drain
        )
        application = web.Application(
            middlewares=[self._check_peer, _answer_errors, self._check_epoch],
            client_max_size=_MAX_REQUEST_BYTES,
        )
        application.on_shutdown.append(self._close_connections)
        application.add_routes(
            [
                web.get("/v1/host", self._answer_status),
                web.get("/v1/events", self._serve_bot),
                *self._doors.routes(),
                *answers.routes(),
            ]
        )
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            max_line_size=_MAX_REQUEST_LINE_BYTES,
        )
        await runner.setup()
        return runner

    @web.middleware
    async def _check_peer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse peers of users who may not connect."""
        peer = request.get_extra_info("socket")
        if peer.family != socket.AF_UNIX:
            # TLS has checked the bot's certificate already.
            return await handler(request)
        uid = host_sockets.peer_uid(peer)
        if uid not in self._allowed_uids:
            _log.warning("user %d may not use this host", uid)
            raise web.HTTPForbidden
        return await handler(request)

    @web.middleware
    async def _check_epoch(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse requests in an old epoch of a session that was moved."""
        await self._epochs.accept_request_epoch(request)
        return await handler(request)

    async def _serve_bot(self, request: web.Request) -> web.WebSocketResponse:
        response = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_SECONDS, compress=False, max_msg_size=_MAX_REQUEST_BYTES
        )
        await response.prepare(request)
        connection = bot_connections.BotConnection(
            response,
            self._host,
            self.executions,
            may_start_kernels=lambda: not self.is_draining,
            on_listen=self._losses_changed.set,
            is_bot="bot" in request.query,
            epochs=self._epochs,
        )
        self.connections.append(connection)
        try:
            await connection.serve()
        finally:
            self.connections.remove(connection)
            self.last_disconnected_at = time.monotonic()
            self.state_changed.set()
        return response

    async def _close_connections(self, _: web.Application) -> None:
        # The server waits for open connections, which end only with their bots.
        for connection in tuple(self.connections):
            await connection.close()
        await self._doors.close()

    async def _on_loss(self, loss: ports.KernelLoss) -> None:
        """Queue the report of a lost kernel for the next bot that listens."""
        if any(connection.owns_session(loss.key) for connection in self.connections):
            return
        self._losses.append(loss)
        self._losses_changed.set()

    async def _report_losses(self) -> None:
        """Report each lost kernel to a bot, or to another bot if the first one disconnects."""
        while True:
            await self._losses_changed.wait()
            connection = next(
                (connection for connection in self.connections if connection.is_listening), None
            )
            if connection is None or not self._losses:
                self._losses_changed.clear()
                continue
            try:
                await connection.report_loss(self._losses[0])
                self._losses.popleft()
            except ConnectionError:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _answer_status(self, _: web.Request) -> web.Response:
        status = messages.HostStatus(
            id=self.id,
            data_id=self._data_id,
            data_copy_id=self._data_copy_id,
            protocol_version=messages.PROTOCOL_VERSION,
            release=metadata.version("interpreter-bot"),
            pid=os.getpid(),
            fingerprint=self._settings_fingerprint,
            private_paths=tuple(map(str, self._private_paths)),
            sandbox_level=self._host.sandbox_level,
            has_doors=self._host.has_doors,
            keeps_variables=self._host.keeps_variables,
            packages=dict(self._host.packages),
            is_draining=self.is_draining,
            is_lingering=self._is_lingering,
            has_store=self._archives is not None,
            free_bytes=await asyncio.to_thread(machine_exhaustion.free_bytes),
            memory_bytes=machines.memory_bytes(),
            **await self.counts(),
        )
        return request_answers.json_response(status)

    async def _drain(self, *, is_urgent: bool) -> None:
        self.drain(is_urgent=is_urgent)

    def drain(self, *, is_urgent: bool = True) -> None:
        """Start no more kernels; with `is_urgent`, end as soon as nothing runs."""
        self.is_ending = self.is_ending or is_urgent
        self.is_draining = self.executions.is_draining = True
        for connection in self.connections:
            connection.send_draining()
        self.state_changed.set()

    async def counts(self) -> dict[str, int]:
        return {
            # Commands do not count as bots, because a host does not wait for their end.
            "bots": sum(
                connection.is_bot or connection.is_listening for connection in self.connections
            ),
            "kernels": len(await self._host.statuses()),
            "executions": len(self.executions),
        }

    async def has_kernels(self) -> bool:
        return bool(await self._host.statuses())


def _read_identity(data: pathlib.Path) -> tuple[str, str]:
    """Return the id of a data directory, and a digest that differs for every copy and boot."""
    file = data / "host.id"
    new_id = functools.partial(secrets.token_hex, _ID_BYTES)
    data_id = private_files.read_or_create(file, new_id)
    status = file.stat()
    identity = f"{_BOOT_ID.read_text('ascii').strip()} {status.st_dev} {status.st_ino}"
    return data_id, hashlib.sha256(identity.encode("ascii")).hexdigest()


async def _start(
    runner: web.AppRunner, listener: socket.socket, tls: host_addresses.TlsAddress | None
) -> None:
    await web.SockSite(runner, listener).start()
    if tls is not None and tls.credentials is not None:
        context = tls.credentials.context()
        await web.TCPSite(runner, tls.name, tls.port, ssl_context=context).start()


@web.middleware
async def _answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn raised errors into answers with their class and sentence."""
    try:
        return await handler(request)
    except errors.BotError as error:
        return request_answers.json_response(messages.error_fields(error), status=422)
    except KeyError as error:  # A parameter of the URL is missing.
        raise web.HTTPBadRequest from error
    except ConnectionError:
        if request.transport is not None:
            raise
        # The bot cancelled the request, such as an upload or a download, and reads no answer.
        return web.Response()


def _bind(listener: socket.socket, path: pathlib.Path, bot_uid: int | None) -> None:
    """Bind a socket that other users cannot open, not even before its owner is changed."""
    path.unlink(missing_ok=True)
    former_umask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(former_umask)
    if bot_uid is not None and bot_uid != os.geteuid():
        os.chown(path, bot_uid, -1)
