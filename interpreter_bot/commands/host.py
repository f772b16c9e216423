"""`interpreter-bot host`: keep kernels in a process of their own, which outlives bots."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import pwd
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.app import execution_startup
from interpreter_bot.hosts import (
    executions,
    host_addresses,
    host_processes,
    host_sockets,
    local_host,
    local_startup,
    messages,
)
from interpreter_bot.kernel_host import host_metrics, host_server
from interpreter_bot.kernels import (
    archive_manifests,
    session_archives,
    shared_object_stores,
    snapshot_generations,
)
from interpreter_bot.wording import host_words, operator_words

_log = logging.getLogger(__name__)

# Longer than journals are kept.
_MAX_UNATTENDED_SECONDS: Final = 25 * 3600.0
_DEFAULT_SAVE_SECONDS: Final = 30.0
_CHECK_INTERVAL_SECONDS: Final = 0.2
# Some programs do not support years of five digits in certificates.
_MAX_VALID_DAYS: Final = 36_500


def run(config: settings.Settings, options: argparse.Namespace) -> int:
    """Serve until a signal, or run a command about the host that serves.

    Raises:
        BotError: the host could not be started, or there is none.
    """
    if options.verb == "status":
        report = {"hosts": asyncio.run(list_statuses(config))}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return 0
    if options.verb == "certificate":
        return _make_certificate(options)
    if options.verb == "drain":
        asyncio.run(host_processes.drain(host_sockets.newest_link(config.paths), is_urgent=False))
        sys.stdout.write(host_words.DRAIN_STARTED)
        return 0
    try:
        return asyncio.run(_serve(config, options.linger))
    except errors.BotError as error:
        if options.linger is not None:
            # The process that started it reads one line, and tells people.
            _print_message(messages.HostFailed(messages.error_fields(error)))
        raise


async def list_statuses(config: settings.Settings) -> list[dict[str, object]]:
    """Return the status of all hosts, the newest first.

    Raises:
        KernelError: there is no host.
    """
    statuses: list[dict[str, object]] = []
    addresses: list[host_addresses.Address] = [*host_sockets.list_newest_first(config.paths)]
    if config.host.fleet:
        addresses = await execution_startup.find_fleet_addresses(config)
    for address in addresses:
        try:
            status = await host_processes.read_status(address)
        except errors.HostUnusableError as error:
            statuses.append({"socket": str(address), "error": str(error)})
        except errors.KernelError:
            _log.info("the host at %s is gone", address)
            if config.host.fleet:
                statuses.append({"socket": str(address), "error": host_words.UNREACHABLE})
        else:
            fields = dataclasses.asdict(status) | {"packages": len(status.packages)}
            statuses.append({"socket": str(address), **fields})
    if not statuses:
        raise errors.KernelError(host_words.NO_HOST_RUNNING)
    return statuses


async def _serve(config: settings.Settings, linger_seconds: float | None) -> int:
    async with _open_server(config, linger_seconds) as (server, host):
        _print_message(messages.HostReady(os.getpid()))
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, server.drain)
        await _wait_for_end(server, host, config, linger_seconds)
    return 0


@contextlib.asynccontextmanager
async def _open_server(
    config: settings.Settings, linger_seconds: float | None
) -> AsyncIterator[tuple[host_server.HostServer, local_host.LocalHost]]:
    """Open everything, bottom-up; then let earlier hosts drain."""
    async with contextlib.AsyncExitStack() as stack:
        path = await asyncio.to_thread(
            host_sockets.make_socket_path, config.paths, is_shared=bool(config.host.bot_user)
        )
        shared_store = None
        if config.host.store:
            if not config.snapshots.bytes:
                raise errors.SettingsError(host_words.STORE_NEEDS_SNAPSHOTS)
            shared_store = shared_object_stores.SharedStore(config.host.store)
            await archive_manifests.share_key(shared_store, config)
        archive_stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(archive_stack)
        host = await stack.enter_async_context(
            local_startup.open_host(_without_input_limit(config))
        )
        archives = None
        if shared_store is not None:
            key = await asyncio.to_thread(snapshot_generations.load_key, config)
            archives_context = session_archives.SessionArchives.open(host.pool, shared_store, key)
            archives = await stack.enter_async_context(archives_context)
            # Closed after the pool, which saves remaining variables when it closes.
            archive_stack.push_async_callback(archives.close)
        executions_context = executions.Executions.open(
            config.paths.data / "journals", input_seconds=config.limits.input_seconds
        )
        host_executions = await stack.enter_async_context(executions_context)
        server_context = host_server.HostServer.open(
            host,
            host_executions,
            path,
            is_lingering=linger_seconds is not None,
            bot_uid=_find_user_id(config.host.bot_user),
            fingerprint=host_processes.fingerprint(config),
            private_paths=config.private_paths,
            tls=_tls_address(config),
            archives=archives,
        )
        try:
            server = await stack.enter_async_context(server_context)
        except OSError as error:
            sentence = host_words.cannot_listen(
                config.host.listen or path, error.strerror, "host.listen"
            )
            raise errors.SettingsError(sentence) from error
        if config.host.metrics:
            metrics = host_metrics.serving(server, config.host.metrics)
            await stack.enter_async_context(metrics)
        await stack.enter_async_context(host_sockets.linked_as_newest(path))
        await host_processes.drain_others(path)
        yield server, host


def _tls_address(config: settings.Settings) -> host_addresses.TlsAddress | None:
    """Return the address for bots on other machines, with TLS; None if there is none.

    Raises:
        SettingsError: it cannot be used.
    """
    if not config.host.listen:
        return None
    if config.host.tls is None:
        raise errors.SettingsError(host_words.LISTEN_NEEDS_TLS)
    credentials = host_addresses.Credentials(config.host.tls, is_host=True)
    return host_addresses.TlsAddress(
        *host_addresses.parse(config.host.listen), credentials=credentials
    )


def _make_certificate(options: argparse.Namespace) -> int:
    """Make a certificate, and its authority if there is none yet."""
    # Imported here, as a host that serves does not need it.
    from interpreter_bot.hosts import certificate_authorities

    names = [options.bot] if options.bot else options.names
    if not names or (options.bot and options.names):
        raise errors.SettingsError(host_words.NO_HOST_NAME)
    if not 0 < options.days <= _MAX_VALID_DAYS:
        raise errors.SettingsError(host_words.bad_days(_MAX_VALID_DAYS))
    authority = certificate_authorities.CertificateAuthority(options.directory)
    certificate_directory = authority.issue(names, is_bot=bool(options.bot), days=options.days)
    sys.stdout.write(f"{certificate_directory}\n")
    return 0


def _without_input_limit(config: settings.Settings) -> settings.Settings:
    """Let code wait for input while no bot is connected; `executions` applies the real limit."""
    limits = config.limits.model_copy(update={"input_seconds": _MAX_UNATTENDED_SECONDS})
    return config.model_copy(update={"limits": limits})


async def _wait_for_end(
    server: host_server.HostServer,
    host: local_host.LocalHost,
    config: settings.Settings,
    linger_seconds: float | None,
) -> None:
    """Wait until the host should end and nothing runs, or no bot has connected for too long."""
    ending_since: float | None = None
    # After this idle time, the variables of a session are saved.
    save_seconds = config.kernels.freeze_seconds or _DEFAULT_SAVE_SECONDS
    idle_seconds = save_seconds if host.keeps_variables else config.kernels.idle_seconds
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_INTERVAL_SECONDS):
                await server.state_changed.wait()
        server.state_changed.clear()
        now = time.monotonic()
        if server.is_ending:
            ending_since = ending_since or now
            if not server.executions or now - ending_since > config.limits.execution_seconds:
                return
        if server.is_draining:
            await host.end_idle_kernels(idle_seconds)
            if not await server.has_kernels():
                return
        is_alone = linger_seconds is not None and not server.connections
        if is_alone and now - server.last_disconnected_at > (linger_seconds or 0.0):
            return


def _find_user_id(name: str) -> int | None:
    """Return a user's id.

    Raises:
        SettingsError: there is no such user.
    """
    if not name:
        return None
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise errors.SettingsError(operator_words.no_user(name)) from error


def _print_message(message: messages.ToStarter) -> None:
    """Print a message for the process that started this one, which may have ended."""
    with contextlib.suppress(OSError):
        sys.stdout.write(messages.encode(message) + "\n")
        sys.stdout.flush()
