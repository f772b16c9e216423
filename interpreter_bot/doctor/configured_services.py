"""Trials of configured services: data connections, a package index, hosts of a fleet."""

from __future__ import annotations

import asyncio
import os
import pathlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

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

_Fleet: TypeAlias = Callable[[], Awaitable[list[host_addresses.Address]]]

_UNREACHED: Final = "Code cannot query it."
_CHECK_ADDRESS: Final = (
    "Look at its `address` and `options`, and whether the bot's machine may connect."
)
_COULD_WRITE: Final = "Only the bot's own care keeps code from changing what is in it."
_READ_ONLY: Final = "Use a login that can read only: CREATE ROLE … LOGIN; GRANT SELECT ON … TO …"
_COULD_CALL: Final = (
    "Only the bot's own list of names keeps code from calling them: they end queries of others, "
    "hold locks, or fill the server's disk."
)
_REVOKE: Final = (
    "As the database's owner: REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC; and GRANT it to "
    "the roles that need it."
)

# Every copy of the public index has it, and it has no dependencies.
_TRIAL_PACKAGE: Final = "six"
_NOT_FOUND: Final = f"{_TRIAL_PACKAGE} was not found"
_NO_PACKAGES: Final = "People and models cannot install packages."
_CHECK_INDEX: Final = (
    "Check package_index.url and netrc_file, and whether the bot's machine may connect. "
    "SSL_CERT_FILE names a company's certificates, HTTPS_PROXY, HTTP_PROXY and NO_PROXY its proxy; "
    "set them where the kernels' process is started. An index that does not tell when files were "
    "uploaded needs package_index.cooldown_days = 0."
)
_LET_WRITE: Final = "Let the bot write to that directory (paths.data)."

_LOST_HOST: Final = "Sessions that are there wait, and begin again elsewhere; others go on."
_FIX_HOST: Final = (
    "See the log of the host there, and whether host.listen, the network and the certificates of "
    "both ends (`interpreter-bot host certificate`) let this machine reach it."
)
_EMPTY_FLEET: Final = "host.fleet leads to no host"


def check(
    config: settings.Settings,
    environment: Mapping[str, str],
    fleet: _Fleet | None,
) -> tuple[diagnosis.Finding, ...]:
    """Try every configured service, in event loops of its own.

    Args:
        environment: variables with the secrets that the settings name.
        fleet: returns the addresses of a fleet's hosts; may raise `BotError`. None without a fleet.

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
            findings.append(_fleet_finding("fleet", str(error), is_active=False))
    return tuple(findings)


async def _check_connections(
    config: settings.Settings, environment: Mapping[str, str]
) -> list[diagnosis.Finding]:
    async with connection_service.opened(config, environment) as service:
        pairs = await asyncio.gather(
            *(_probe_connection(service, connection.name) for connection in config.connections)
        )
    return [finding for pair in pairs for finding in pair]


async def _probe_connection(
    service: connection_service.ConnectionService, name: str
) -> list[diagnosis.Finding]:
    """Connect, and check which rights the login has to write and to call functions."""
    title = f"connection {name}"
    try:
        reachable_detail, writable, functions = await service.sources.probe(name)
    except errors.BotError as error:
        return [diagnosis.Finding(title, False, _UNREACHED, _CHECK_ADDRESS, str(error))]
    reached = diagnosis.Finding(title, True, _UNREACHED, _CHECK_ADDRESS, reachable_detail)
    findings = [reached]
    if writable is not None:
        detail = f"its login could {writable}" if writable else "its login can change nothing"
        name = f"{title}, read only"
        findings.append(diagnosis.Finding(name, not writable, _COULD_WRITE, _READ_ONLY, detail))
    if functions:
        detail = f"its login may call {quantities.count(len(functions), 'function')} with effects"
        fix = _REVOKE.format(functions=", ".join(functions))
        name = f"{title}, functions"
        findings.append(diagnosis.Finding(name, False, _COULD_CALL, fix, detail))
    return findings


def _check_packages(config: settings.Settings) -> list[diagnosis.Finding]:
    """Ask the index for a package, and check the directory of installed layers."""
    environment = python_environments.interrogate(kernel_environment.python(config))
    with tempfile.TemporaryDirectory() as place:
        staging = pathlib.Path(place, "staging")
        staging.mkdir()
        uv = uv_commands.Uv(config.package_index, environment, pathlib.Path(place))
        return [asyncio.run(_ask_index(config.package_index, uv, staging)), _check_layers(config)]


async def _ask_index(
    config: settings.PackageIndex, uv: uv_commands.Uv, staging: pathlib.Path
) -> diagnosis.Finding:
    began = time.monotonic()
    try:
        await uv.resolve([requirements.Requirement(_TRIAL_PACKAGE)], {}, staging)
        outcome = "answered"
    except errors.PackagesError as error:
        if _NOT_FOUND not in str(error):
            cause = " ".join(str(error.__cause__ or error).split())
            detail = f"{config.url}: {cause}"
            return diagnosis.Finding("package index", False, _NO_PACKAGES, _CHECK_INDEX, detail)
        outcome = f"answered, without a {_TRIAL_PACKAGE} that could be taken,"
    duration = quantities.duration(time.monotonic() - began)
    detail = f"{config.url} {outcome} within {duration}; {_describe_policy(config)}"
    return diagnosis.Finding("package index", True, _NO_PACKAGES, _CHECK_INDEX, detail)


def _describe_policy(config: settings.PackageIndex) -> str:
    allowed = "all names" if "*" in config.allow else ", ".join(config.allow) or "nothing"
    denied = f" but {', '.join(config.deny)}" if config.deny else ""
    age = f", none younger than {quantities.count(config.cooldown_days, 'day')}"
    young = age if config.cooldown_days else ", however young"
    return f"{allowed}{denied} may be installed{young}; missing imports: {config.missing}"


def _check_layers(config: settings.Settings) -> diagnosis.Finding:
    directory = package_installations.directory(config)
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        detail = f"{existing} cannot be written to"
        return diagnosis.Finding("kept packages", False, _NO_PACKAGES, _LET_WRITE, detail)
    recorded = layers.recorded(directory)
    size = quantities.size(sum(size_bytes for _, _, size_bytes in recorded))
    limit = quantities.size(config.package_index.cache_bytes)
    detail = f"{quantities.count(len(recorded), 'layer')} in {directory}: {size} of {limit}"
    return diagnosis.Finding("kept packages", True, _NO_PACKAGES, _LET_WRITE, detail)


async def _check_hosts(fleet: _Fleet) -> list[diagnosis.Finding]:
    """Query the status of each host of a fleet."""
    addresses = await fleet()
    if not addresses:
        return [_fleet_finding("fleet", _EMPTY_FLEET, is_active=False)]
    return list(await asyncio.gather(*map(_check_host, addresses)))


async def _check_host(address: host_addresses.Address) -> diagnosis.Finding:
    name = f"host {address}"
    try:
        status = await host_processes.status(address)
    except errors.KernelError as error:
        return _fleet_finding(name, str(error), is_active=False)
    state = "takes no new sessions" if status.is_draining else "takes sessions"
    kernels = quantities.count(status.kernels, "kernel")
    walls = ", WITHOUT a sandbox" if status.sandbox_level is values.SandboxLevel.NONE else ""
    return _fleet_finding(
        name, f"release {status.release}, {kernels}, {state}{walls}", is_active=True
    )


def _fleet_finding(name: str, detail: str, *, is_active: bool) -> diagnosis.Finding:
    return diagnosis.Finding(name, is_active, _LOST_HOST, _FIX_HOST, detail)
