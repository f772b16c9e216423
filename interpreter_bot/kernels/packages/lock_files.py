"""Locks: the exact files that one installation adds, and whether they may be installed. Pure."""

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

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9.!+_-]{1,100}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package of a lock.

    Attributes:
        name: as indexes write it.
        version: the one that is taken.
        sha256: of its wheels that fit; one of them is taken.
        size_bytes: of the largest of these; 0 where the index does not tell.
    """

    name: str
    version: str
    sha256: tuple[str, ...]
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


Lock = tuple[LockedPackage, ...]


def read(text: str) -> Lock:
    """Read what `uv pip compile --format pylock.toml` wrote.

    Raises:
        PackagesError: it cannot be understood, or a package has no wheel with a hash.
    """
    try:
        found = tomllib.loads(text).get("packages", [])
        return tuple(_package(one) for one in found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.PackagesError(package_words.UNREADABLE) from error


def _package(entry: Mapping[str, Any]) -> LockedPackage:
    name, version = entry["name"], entry["version"]
    if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version)):
        raise ValueError("a name or a version")
    wheels = entry.get("wheels") or []
    hashes = tuple(sorted({wheel.get("hashes", {}).get("sha256", "") for wheel in wheels} - {""}))
    if not hashes or not all(map(_SHA256.fullmatch, hashes)):
        raise errors.PackagesError(package_words.no_wheel(name, version))
    sizes = (wheel.get("size", 0) for wheel in wheels)
    return LockedPackage(name, version, hashes, max(int(size) for size in sizes))


def lines(lock: Lock) -> str:
    """Write a lock as requirements with hashes; the same for the same files."""
    return "".join(
        f"{one.name}=={one.version} {' '.join(f'--hash=sha256:{sha}' for sha in one.sha256)}\n"
        for one in sorted(lock, key=lambda one: one.name)
    )


def total_bytes(lock: Lock) -> int:
    """Return how much is downloaded, at most."""
    return sum(one.size_bytes for one in lock)


def check(lock: Lock, held: Collection[str], config: settings.PackageIndex) -> None:
    """Check that these packages may be installed.

    Args:
        lock: what would be added.
        held: names of what the kernel has.
        config: the operator's rules.

    Raises:
        PackagesError: they may not; the sentence says which rule says so.
    """
    check_names([one.name for one in lock], config)
    if again := [one.name for one in lock if one.name in held]:
        raise errors.PackagesError(package_words.not_replaced(again[0]))
    if len(lock) > config.packages:
        raise errors.PackagesError(package_words.too_many(len(lock), config.packages))
    if (size_bytes := total_bytes(lock)) > config.download_bytes:
        sentence = package_words.download_too_large(size_bytes, config.download_bytes)
        raise errors.PackagesError(sentence)


def check_names(names: Sequence[str], config: settings.PackageIndex) -> None:
    """Check names against the operator's lists.

    Raises:
        PackagesError: one is denied, or not allowed.
    """
    for name in names:
        denying = any(fnmatch.fnmatchcase(name, pattern) for pattern in config.deny)
        allowing = any(fnmatch.fnmatchcase(name, pattern) for pattern in config.allow)
        if denying or not allowing:
            setting = "package_index.deny" if denying else "package_index.allow"
            raise errors.PackagesError(package_words.not_allowed(name, setting))


def summary(lock: Lock, wanted: Sequence[str]) -> str:
    """Say what a lock adds, in a few words: those that were asked for first, then how many more."""
    named = [f"{one.name} {one.version}" for one in lock if one.name in wanted]
    more = len(lock) - len(named)
    text = ", ".join(named) or quantities.count(more, "package")
    if named and more:
        text += f" and {quantities.count(more, 'package')} more"
    size_bytes = total_bytes(lock)
    return f"{text} ({quantities.size(size_bytes)})" if size_bytes else text
