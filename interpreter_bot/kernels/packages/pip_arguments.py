"""Arguments of `pip install` that people and models write, read as requirements of packages. Pure.

What would come from anywhere but the index, or change how it is used, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from packaging import requirements, utils

from interpreter_bot import errors
from interpreter_bot.wording import package_words

_MOST: Final = 40
_CHARACTERS: Final = 200
# Change nothing here, or are what is done anyway.
_NEEDLESS: Final = frozenset(
    {
        *("-q", "-qq", "-qqq", "--quiet", "-v", "--verbose", "-y", "--yes", "--user"),
        *("-U", "--upgrade", "--no-cache-dir", "--no-cache", "--no-input", "--prefer-binary"),
        *("--disable-pip-version-check", "--no-warn-script-location", "--break-system-packages"),
        *("--no-warn-conflicts", "--system", "--root-user-action=ignore", "--progress-bar=off"),
        *("--only-binary=:all:",),
    }
)
# Of the same kind, with their value as the next argument.
_NEEDLESS_PAIRS: Final = frozenset({"--progress-bar", "--root-user-action", "--only-binary"})


def read(arguments: Sequence[str]) -> list[requirements.Requirement]:
    """Read what stands after `pip install`.

    Raises:
        PackagesError: it is not possible, or names nothing; the sentence says what.
    """
    if len(arguments) > _MOST:
        raise errors.PackagesError(package_words.too_many_named(_MOST))
    found = []
    waiting = iter(arguments)
    for argument in waiting:
        shown = repr(argument[:_CHARACTERS])
        if argument in _NEEDLESS_PAIRS:
            next(waiting, None)
        elif argument.startswith("-"):
            if argument not in _NEEDLESS:
                raise errors.PackagesError(package_words.pip_option(shown))
        else:
            found.append(_requirement(argument, shown))
    if not found:
        raise errors.PackagesError(package_words.NONE_NAMED)
    return found


def _requirement(argument: str, shown: str) -> requirements.Requirement:
    is_path = argument.startswith((".", "/", "~")) or argument.endswith((".whl", ".gz", ".zip"))
    if is_path or "://" in argument:
        raise errors.PackagesError(package_words.not_from_index(shown))
    try:
        found = requirements.Requirement(argument[: _CHARACTERS + 1])
    except requirements.InvalidRequirement as error:
        raise errors.PackagesError(package_words.not_a_name(shown)) from error
    if len(argument) > _CHARACTERS:
        raise errors.PackagesError(package_words.too_long(shown))
    if found.marker is not None:
        # Text in it may have line ends, and what follows them would be options for uv.
        raise errors.PackagesError(package_words.conditional(shown))
    if found.url is not None:
        raise errors.PackagesError(package_words.not_from_index(shown))
    return found


def is_met(wanted: requirements.Requirement, held: Mapping[str, str]) -> bool:
    """Return whether what is there meets a requirement.

    Raises:
        PackagesError: another version is there, which is not replaced.
    """
    name = utils.canonicalize_name(wanted.name)
    if name not in held:
        return False
    if not wanted.specifier.contains(held[name], prereleases=True):
        raise errors.PackagesError(package_words.not_replaced_while_running(name, held[name]))
    # What an extra needs besides may be missing.
    return not wanted.extras


def names(wanted: Sequence[requirements.Requirement]) -> list[str]:
    """Return the names of what is wanted, as indexes write them."""
    return [utils.canonicalize_name(one.name) for one in wanted]
