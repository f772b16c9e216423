"""Settings that people choose for themselves, a channel or a server: their values, what holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from interpreter_bot import errors
from interpreter_bot.sessions import approval_policy, places, requests
from interpreter_bot.wording import access_words, command_words, model_words

APPROVAL: Final = approval_policy.NAME
INSTRUCTIONS: Final = places.INSTRUCTIONS
MODEL: Final = "model"
THREADS: Final = "threads"
FOLLOW_THREADS: Final = "follow_threads"
SHOW_CODE: Final = "show_code"

_SWITCHES: Final = {
    **dict.fromkeys(("on", "yes", "true"), True),
    **dict.fromkeys(("off", "no", "false"), False),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Preferences:
    """What holds for a request; the approval of code is for `sessions.approval_policy` to say."""

    model: str = ""
    threads: bool = True
    follow_threads: bool = True
    show_code: bool = False


def effective(chosen: Mapping[str, Any], defaults: Mapping[str, Any]) -> Preferences:
    """Return what holds by people's choices and the operator's; invalid choices do not count."""
    preferences = Preferences()
    for choices in (defaults, chosen):
        valid = {
            field.name: choices[field.name]
            for field in dataclasses.fields(Preferences)
            if type(choices.get(field.name)) is type(field.default)
        }
        preferences = dataclasses.replace(preferences, **valid)
    return preferences


def possible_values(name: str, models: Sequence[str]) -> Sequence[str]:
    """Return what a setting can be, but for the default."""
    if name == APPROVAL:
        return get_args(requests.Approval)
    return models if name == MODEL else ("on", "off")


def parse(name: str, text: str, models: Sequence[str]) -> object | None:
    """Parse a value; None, for `default`, removes the choice.

    Raises:
        BotError: the setting cannot be that.
    """
    typed = text.lower()
    if typed == command_words.DEFAULT:
        return None
    if name == MODEL:
        return model_title(text, models)
    if name == APPROVAL and typed in get_args(requests.Approval):
        return typed
    if name != APPROVAL and typed in _SWITCHES:
        return _SWITCHES[typed]
    choices = (*possible_values(name, models), command_words.DEFAULT)
    raise errors.BotError(access_words.setting_choices(name, ", ".join(choices)))


def written(value: object) -> str:
    """Return a value as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value or command_words.DEFAULT)


def model_title(words: str, titles: Sequence[str]) -> str:
    """Return the title that a person typed, or of which they typed a part that only it has.

    Raises:
        BotError: none is meant, or several; the sentence says which there are.
    """
    typed = words.casefold()
    matches = [title for title in titles if title.casefold() == typed]
    matches = matches or [title for title in titles if typed in title.casefold()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise errors.BotError(model_words.ambiguous(words, matches))
    raise errors.BotError(model_words.unknown(words, titles))
