"""Trials of configured services: data connections, a package index, hosts of a fleet."""

from __future__ import annotations

import asyncio
import os
import pathlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from packaging import requirements

from interpreter_bot import errors, settings, values
from interpreter_bot.data_connections import connection_service
from interpreter_bot.doctor import diagnosis
from interpreter_bot.hosts import host_addresses, host_processes
from interpreter_bot.kernels import package_installations
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.packages import layers, uv_commands
from interpreter_bot.kernels.provisioning import python_environments
from interpreter_bot.text import quantities
from interpreter_bot.wording import doctor_words

_Fleet: TypeAlias = Callable[[], Awaitable[list[host_addresses.Address]]]


def check(
    config: settings.Settings,
    environment: Mapping[str, str],
    fleet: _Fleet | None,
) -> tuple[diagnosis.Finding, ...]:
    """Try every configured service, in event loops of its own.

    Args:
        environment: variables with the secrets that the settings name.
        fleet: returns the addresses of a fleet's hosts, or raises `BotError`; None without a fleet.

    Raises:
        SettingsError: a data connection cannot be used.
        KernelStartError: the kernels' Python cannot be run.
    """
    findings: list[diagnosis.Finding] = []
    if config.connections:
        findings += asyncio.run(_check_connections(config, environment))
    if config.package_index.url:
        findings += _check_packages(config)
    if fleet is not None:
        try:
            findings += asyncio.run(_check_hosts(fleet))
        except errors.BotError as error:
            findings.append(diagnosis.create_finding("fleet", False, str(error), check="host"))
    return tuple(findings)


async def _check_connections(
    config: settings.Settings, environment: Mapping[str, str]
) -> list[diagnosis.Finding]:
    async with connection_service.open_service(config, environment) as service:
        pairs = await asyncio.gather(
            *(_probe_connection(service, connection.name) for connection in config.connections)
        )
    return [finding for pair in pairs for finding in pair]


async def _probe_connection(
    service: connection_service.ConnectionService, name: str
) -> list[diagnosis.Finding]:
    """Connect, and check whether the login may write, or call functions."""
    title = f"connection {name}"
    try:
        server_description, write_rights, functions = await service.pool.probe(name)
    except errors.BotError as error:
        return [diagnosis.create_finding(title, False, str(error), check="connection")]
    findings = [diagnosis.create_finding(title, True, server_description, check="connection")]
    if write_rights is not None:
        detail = doctor_words.can_write(write_rights) if write_rights else doctor_words.READS_ONLY
        name = f"{title}, read only"
        findings.append(
            diagnosis.create_finding(name, not write_rights, detail, check="read-only login")
        )
    if functions:
        detail = doctor_words.can_call(len(functions))
        fix = doctor_words.revoke(functions)
        name = f"{title}, functions"
        findings.append(
            diagnosis.create_finding(name, False, detail, check="functions of a login", fix=fix)
        )
    return findings


def _check_packages(config: settings.Settings) -> list[diagnosis.Finding]:
    """Ask the index for a package, and check the directory of installed packages."""
    environment = python_environments.inspect_environment(kernel_environment.python(config))
    with tempfile.TemporaryDirectory() as temporary_directory:
        staging = pathlib.Path(temporary_directory, "staging")
        staging.mkdir()
        uv = uv_commands.Uv(config.package_index, environment, pathlib.Path(temporary_directory))
        return [asyncio.run(_ask_index(config.package_index, uv, staging)), _check_layers(config)]


async def _ask_index(
    config: settings.PackageIndex, uv: uv_commands.Uv, staging: pathlib.Path
) -> diagnosis.Finding:
    start_time = time.monotonic()
    try:
        await uv.resolve([requirements.Requirement(doctor_words.TRIAL_PACKAGE)], {}, staging)
        outcome = doctor_words.INDEX_ANSWERED
    except errors.PackagesError as error:
        if doctor_words.TRIAL_NOT_FOUND not in str(error):
            cause = " ".join(str(error.__cause__ or error).split())
            detail = f"{config.url}: {cause}"
            return diagnosis.create_finding("package index", False, detail)
        outcome = doctor_words.INDEX_LACKS_TRIAL
    duration = quantities.duration(time.monotonic() - start_time)
    policy = doctor_words.index_policy(
        config.allow, config.deny, config.cooldown_days, config.missing
    )
    detail = f"{config.url} {outcome} within {duration}; {policy}"
    return diagnosis.create_finding("package index", True, detail)


def _check_layers(config: settings.Settings) -> diagnosis.Finding:
    directory = package_installations.packages_directory(config)
    existing_directory = diagnosis.find_existing_directory(directory)
    if not os.access(existing_directory, os.W_OK | os.X_OK):
        detail = doctor_words.not_writable(existing_directory)
        return diagnosis.create_finding("kept packages", False, detail)
    records = layers.list_records(directory)
    size_bytes = sum(size_bytes for _, _, size_bytes in records)
    limit_bytes = config.package_index.cache_bytes
    detail = doctor_words.layers(len(records), directory, size_bytes, limit_bytes)
    return diagnosis.create_finding("kept packages", True, detail)


async def _check_hosts(fleet: _Fleet) -> list[diagnosis.Finding]:
    """Query the status of each host of a fleet."""
    addresses = await fleet()
    if not addresses:
        return [diagnosis.create_finding("fleet", False, doctor_words.EMPTY_FLEET, check="host")]
    return list(await asyncio.gather(*map(_check_host, addresses)))


async def _check_host(address: host_addresses.Address) -> diagnosis.Finding:
    name = f"host {address}"
    try:
        status = await host_processes.read_status(address)
    except errors.KernelError as error:
        return diagnosis.create_finding(name, False, str(error), check="host")
    detail = doctor_words.host_state(
        status.release,
        status.kernels,
        is_draining=status.is_draining,
        is_sandboxed=status.sandbox_level is not values.SandboxLevel.NONE,
    )
    return diagnosis.create_finding(name, True, detail, check="host")
