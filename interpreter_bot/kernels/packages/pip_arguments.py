"""Parser of arguments of `pip install` that people and models write. Pure.

Packages from outside the index, and options that change the use of the index, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from packaging import requirements, utils

from interpreter_bot import errors
from interpreter_bot.wording import package_words

_MAX_REQUIREMENTS: Final = 40
_MAX_CHARACTERS: Final = 200
# Options that have no effect here, or are the default.
_IGNORED_OPTIONS: Final = frozenset(
    {
        "-q",
        "-qq",
        "-qqq",
        "--quiet",
        "-v",
        "--verbose",
        "-y",
        "--yes",
        "--user",
        "-U",
        "--upgrade",
        "--no-cache-dir",
        "--no-cache",
        "--no-input",
        "--prefer-binary",
        "--disable-pip-version-check",
        "--no-warn-script-location",
        "--break-system-packages",
        "--no-warn-conflicts",
        "--system",
        "--root-user-action=ignore",
        "--progress-bar=off",
        "--only-binary=:all:",
    }
)
# Such options whose value is the next argument.
_IGNORED_OPTIONS_WITH_VALUE: Final = frozenset(
    {"--progress-bar", "--root-user-action", "--only-binary"}
)


def read(arguments: Sequence[str]) -> list[requirements.Requirement]:
    """Parse the arguments after `pip install`.

    Raises:
        PackagesError: an argument is refused, or there is no package; the message says which.
    """
    if len(arguments) > _MAX_REQUIREMENTS:
        raise errors.PackagesError(package_words.too_many_named(_MAX_REQUIREMENTS))
    parsed_requirements = []
    argument_iterator = iter(arguments)
    for argument in argument_iterator:
        quoted_argument = repr(argument[:_MAX_CHARACTERS])
        if argument in _IGNORED_OPTIONS_WITH_VALUE:
            next(argument_iterator, None)
        elif argument.startswith("-"):
            if argument not in _IGNORED_OPTIONS:
                raise errors.PackagesError(package_words.pip_option(quoted_argument))
        else:
            parsed_requirements.append(_parse_requirement(argument, quoted_argument))
    if not parsed_requirements:
        raise errors.PackagesError(package_words.NONE_NAMED)
    return parsed_requirements


def _parse_requirement(argument: str, quoted_argument: str) -> requirements.Requirement:
    is_path = argument.startswith((".", "/", "~")) or argument.endswith((".whl", ".gz", ".zip"))
    if is_path or "://" in argument:
        raise errors.PackagesError(package_words.not_from_index(quoted_argument))
    try:
        requirement = requirements.Requirement(argument[: _MAX_CHARACTERS + 1])
    except requirements.InvalidRequirement as error:
        raise errors.PackagesError(package_words.not_a_name(quoted_argument)) from error
    if len(argument) > _MAX_CHARACTERS:
        raise errors.PackagesError(package_words.too_long(quoted_argument))
    if requirement.marker is not None:
        # A marker may contain line ends, and the following lines would be options for uv.
        raise errors.PackagesError(package_words.condition_refused(quoted_argument))
    if requirement.url is not None:
        raise errors.PackagesError(package_words.not_from_index(quoted_argument))
    return requirement


def is_met(requirement: requirements.Requirement, installed_versions: Mapping[str, str]) -> bool:
    """Return whether the installed packages meet a requirement.

    Raises:
        PackagesError: another version is installed, which is not replaced.
    """
    name = utils.canonicalize_name(requirement.name)
    if name not in installed_versions:
        return False
    if not requirement.specifier.contains(installed_versions[name], prereleases=True):
        raise errors.PackagesError(
            package_words.not_replaced_while_running(name, installed_versions[name])
        )
    # With extras, packages that they need may be missing.
    return not requirement.extras


def normalized_names(requested_packages: Sequence[requirements.Requirement]) -> list[str]:
    """Return the normalized names of requirements."""
    return [utils.canonicalize_name(requirement.name) for requirement in requested_packages]
