"""Settings that people choose for themselves, a channel or a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from interpreter_bot import errors
from interpreter_bot.sessions import approval_policy, places, requests
from interpreter_bot.wording import access_words, command_words, model_words

APPROVAL: Final = approval_policy.PREFERENCE_NAME
INSTRUCTIONS: Final = places.INSTRUCTIONS
MODEL: Final = "model"
THREADS: Final = "threads"
FOLLOW_THREADS: Final = "follow_threads"
SHOW_CODE: Final = "show_code"

_VALUE_OF_WORD: Final = {
    **dict.fromkeys(("on", "yes", "true"), True),
    **dict.fromkeys(("off", "no", "false"), False),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Preferences:
    """The settings of a request. (Whether code needs approval: see `sessions.approval_policy`.)"""

    model: str = ""
    threads: bool = True
    follow_threads: bool = True
    show_code: bool = False


def find_effective(choices: Mapping[str, Any], defaults: Mapping[str, Any]) -> Preferences:
    """Return the settings in effect, by valid choices of people, then by those of the operator."""
    preferences = Preferences()
    for chosen_values in (defaults, choices):
        valid_values = {
            field.name: chosen_values[field.name]
            for field in dataclasses.fields(Preferences)
            if type(chosen_values.get(field.name)) is type(field.default)
        }
        preferences = dataclasses.replace(preferences, **valid_values)
    return preferences


def possible_values(name: str, models: Sequence[str]) -> Sequence[str]:
    """Return the possible values of a setting, except `default`."""
    if name == APPROVAL:
        return get_args(requests.Approval)
    return models if name == MODEL else ("on", "off")


def parse(name: str, text: str, models: Sequence[str]) -> object | None:
    """Parse a value; `default` is None, which removes the choice.

    Raises:
        BotError: the setting cannot have that value.
    """
    word = text.lower()
    if word == command_words.DEFAULT_VALUE:
        return None
    if name == MODEL:
        return model_title(text, models)
    if name == APPROVAL and word in get_args(requests.Approval):
        return word
    if name != APPROVAL and word in _VALUE_OF_WORD:
        return _VALUE_OF_WORD[word]
    choices = (*possible_values(name, models), command_words.DEFAULT_VALUE)
    raise errors.BotError(access_words.setting_choices(name, ", ".join(choices)))


def format_value(value: object) -> str:
    """Return a value as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value or command_words.DEFAULT_VALUE)


def model_title(typed_title: str, titles: Sequence[str]) -> str:
    """Return the title that a person typed, or of which they typed a unique part.

    Raises:
        BotError: no title matches, or several do; the sentence lists them.
    """
    folded_title = typed_title.casefold()
    matches = [title for title in titles if title.casefold() == folded_title]
    matches = matches or [title for title in titles if folded_title in title.casefold()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise errors.BotError(model_words.ambiguous_name(typed_title, matches))
    raise errors.BotError(model_words.unknown_model(typed_title, titles))
