"""The package index on trial: whether it answers, where packages are kept, and what is allowed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import tempfile
import time
from typing import Final

from packaging import requirements

from interpreter_bot import errors, settings
from interpreter_bot.doctor import diagnosis
from interpreter_bot.kernels import package_installations
from interpreter_bot.kernels.packages import layers, uv_commands
from interpreter_bot.kernels.provisioning import python_environments
from interpreter_bot.text import quantities

# Of every copy of the public index, and without dependencies.
_WANTED: Final = "six"
_UNKNOWN: Final = f"{_WANTED} was not found"
_NOTHING: Final = "People and models cannot install packages."
_CHECK: Final = (
    "Look at package_index.url and netrc_file, and whether the bot's machine may connect; an index "
    "that does not tell when files were uploaded needs package_index.cooldown_days = 0."
)
_OWN: Final = "Let the bot write to that directory (paths.data)."


def check(config: settings.Settings) -> list[diagnosis.Finding]:
    """Ask the index for a package; runs an event loop of its own.

    Raises:
        KernelStartError: the kernels' Python cannot be run.
    """
    environment = python_environments.interrogate(config.kernels.python)
    with tempfile.TemporaryDirectory() as place:
        staging = pathlib.Path(place, "staging")
        staging.mkdir()
        uv = uv_commands.Uv(config.package_index, environment, pathlib.Path(place))
        return [asyncio.run(_index(config.package_index, uv, staging)), _kept(config)]


async def _index(
    config: settings.PackageIndex, uv: uv_commands.Uv, staging: pathlib.Path
) -> diagnosis.Finding:
    began = time.monotonic()
    try:
        await uv.resolve([requirements.Requirement(_WANTED)], {}, staging)
        seen = "answered"
    except errors.PackagesError as error:
        if _UNKNOWN not in str(error):
            detail = f"{config.url}: {error}"
            return diagnosis.Finding("package index", False, _NOTHING, _CHECK, detail)
        seen = f"answered, without a {_WANTED} that could be taken,"
    took = quantities.duration(time.monotonic() - began)
    detail = f"{config.url} {seen} within {took}; {_policy(config)}"
    return diagnosis.Finding("package index", True, _NOTHING, _CHECK, detail)


def _policy(config: settings.PackageIndex) -> str:
    allowed = "all names" if "*" in config.allow else ", ".join(config.allow) or "nothing"
    denied = f" but {', '.join(config.deny)}" if config.deny else ""
    age = f", none younger than {quantities.count(config.cooldown_days, 'day')}"
    young = age if config.cooldown_days else ", however young"
    return f"{allowed}{denied} may be installed{young}; missing imports: {config.missing}"


def _kept(config: settings.Settings) -> diagnosis.Finding:
    place = package_installations.directory(config)
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        detail = f"{there} cannot be written to"
        return diagnosis.Finding("kept packages", False, _NOTHING, _OWN, detail)
    held = layers.recorded(place)
    size = quantities.size(sum(size_bytes for _, _, size_bytes in held))
    most = quantities.size(config.package_index.cache_bytes)
    detail = f"{quantities.count(len(held), 'layer')} in {place}: {size} of {most}"
    return diagnosis.Finding("kept packages", True, _NOTHING, _OWN, detail)
