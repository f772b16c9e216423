"""The first steps of a process: check the settings, and hide the memory from other processes."""

from __future__ import annotations

import ctypes
import os
import pathlib
import tomllib
from typing import Final

import pydantic

from interpreter_bot import errors, settings
from interpreter_bot.setting_groups import header_values, unknown_names
from interpreter_bot.wording import operator_words

_PR_SET_DUMPABLE: Final = 4


def load_settings(file: pathlib.Path | None, *, is_sandboxed: bool) -> settings.Settings:
    """Load the settings, from a named file instead of the usual one if given.

    `is_sandboxed` says whether code runs behind walls, which no setting can turn off.

    Raises:
        SettingsError: they are wrong, or turn the sandbox off.
    """
    prefix = str(settings.Settings.model_config["env_prefix"])
    if unknown_variables := unknown_names.variable_sentences(os.environ, prefix, settings.Settings):
        raise errors.SettingsError("\n".join(unknown_variables))
    try:
        config = settings.load(file)
    except pydantic.ValidationError as error:
        # The given values are not repeated: one may be a secret in the wrong place.
        faults = error.errors(include_url=False, include_input=False)
        lines = [
            unknown_names.unknown_setting(_join_location(fault["loc"]), settings.Settings)
            if fault["type"] == "extra_forbidden"
            else operator_words.bad_setting(
                _join_location(fault["loc"]), fault["msg"].removeprefix("Value error, ")
            )
            for fault in faults
        ]
        raise errors.SettingsError("\n".join(lines)) from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise errors.SettingsError(operator_words.unreadable_settings_file(error)) from error
    except ValueError as error:
        raise errors.SettingsError(operator_words.unreadable_settings(error)) from error
    key_variables = tuple(model.api_key_variable for model in config.models)
    if sentences := header_values.variable_sentences(os.environ, key_variables):
        raise errors.SettingsError("\n".join(sentences))
    sandbox = config.sandbox.with_walls(enabled=is_sandboxed)
    return config.model_copy(update={"sandbox": sandbox})


def forbid_inspection() -> None:
    """Keep other processes of this user from reading the memory and environment of this one.

    In an ordinary container, processes of sessions may have the bot's user id.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _join_location(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))
