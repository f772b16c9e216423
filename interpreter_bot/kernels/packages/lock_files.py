"""Locks: the exact files that an installation adds, and checks of the operator's rules. Pure."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from interpreter_bot import errors, settings
from interpreter_bot.text import quantities
from interpreter_bot.wording import package_words

_MAX_PACKAGES: Final = 60
_MAX_DOWNLOAD_BYTES: Final = 500 * settings.MIB
_NAME_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_VERSION_PATTERN: Final = re.compile(r"[A-Za-z0-9.!+_-]{1,100}")
_SHA256_PATTERN: Final = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package of a lock.

    Attributes:
        name: normalized, as in indexes.
        version: the version to install.
        sha256: hashes of all matching wheels.
        size_bytes: size of the largest matching wheel; 0 if the index does not say.
    """

    name: str
    version: str
    sha256: tuple[str, ...]
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


Lock = tuple[LockedPackage, ...]


def read(text: str) -> Lock:
    """Read the output of `uv pip compile --format pylock.toml`.

    Raises:
        PackagesError: it is malformed, or a package has no wheel with a hash.
    """
    try:
        entries = tomllib.loads(text).get("packages", [])
        return tuple(_parse_package(entry) for entry in entries)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.PackagesError(package_words.UNREADABLE) from error


def _parse_package(entry: Mapping[str, Any]) -> LockedPackage:
    name, version = entry["name"], entry["version"]
    if not (_NAME_PATTERN.fullmatch(name) and _VERSION_PATTERN.fullmatch(version)):
        raise ValueError("a name or a version")
    wheels = entry.get("wheels") or []
    hashes = tuple(sorted({wheel.get("hashes", {}).get("sha256", "") for wheel in wheels} - {""}))
    if not hashes or not all(map(_SHA256_PATTERN.fullmatch, hashes)):
        raise errors.PackagesError(package_words.no_wheel(name, version))
    sizes = (wheel.get("size", 0) for wheel in wheels)
    return LockedPackage(name, version, hashes, max(int(size) for size in sizes))


def format_requirements(lock: Lock) -> str:
    """Format a lock as requirements with hashes; equal files give equal text."""
    return "".join(map(_format_requirement, sorted(lock, key=lambda package: package.name)))


def _format_requirement(package: LockedPackage) -> str:
    hashes = " ".join(f"--hash=sha256:{sha}" for sha in package.sha256)
    return f"{package.name}=={package.version} {hashes}\n"


def total_bytes(lock: Lock) -> int:
    """Return the largest possible download size."""
    return sum(package.size_bytes for package in lock)


def check(lock: Lock, installed_names: Collection[str], config: settings.PackageIndex) -> None:
    """Check that the packages of a lock may be added to the installed ones of a kernel.

    Raises:
        PackagesError: they may not; the message names the rule.
    """
    check_names([package.name for package in lock], config)
    if replaced_names := [package.name for package in lock if package.name in installed_names]:
        raise errors.PackagesError(package_words.not_replaced(replaced_names[0]))
    if len(lock) > _MAX_PACKAGES:
        raise errors.PackagesError(package_words.too_many(len(lock), _MAX_PACKAGES))
    if (size_bytes := total_bytes(lock)) > _MAX_DOWNLOAD_BYTES:
        sentence = package_words.download_too_large(size_bytes, _MAX_DOWNLOAD_BYTES)
        raise errors.PackagesError(sentence)


def check_names(names: Sequence[str], config: settings.PackageIndex) -> None:
    """Check names against the operator's lists.

    Raises:
        PackagesError: a name is denied, or not allowed.
    """
    for name in names:
        is_denied = any(fnmatch.fnmatchcase(name, pattern) for pattern in config.deny)
        is_allowed = any(fnmatch.fnmatchcase(name, pattern) for pattern in config.allow)
        if is_denied or not is_allowed:
            setting = "package_index.deny" if is_denied else "package_index.allow"
            raise errors.PackagesError(package_words.not_allowed(name, setting))


def summarize(lock: Lock, requested_names: Sequence[str]) -> str:
    """Summarize a lock: the requested packages, then the number of others, and the size."""
    descriptions = [
        f"{package.name} {package.version}" for package in lock if package.name in requested_names
    ]
    other_count = len(lock) - len(descriptions)
    text = ", ".join(descriptions) or quantities.count(other_count, "package")
    if descriptions and other_count:
        text += f" and {quantities.count(other_count, 'package')} more"
    size_bytes = total_bytes(lock)
    return f"{text} ({quantities.size(size_bytes)})" if size_bytes else text
