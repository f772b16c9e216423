"""Preferences that guilds, channels and people choose on Discord."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, get_args

from interpreter_bot import errors, settings
from interpreter_bot.sessions import approval_policy, requests
from interpreter_bot.wording import access_words

_YES: Final = frozenset({"on", "yes", "true"})
_NO: Final = frozenset({"off", "no", "false"})
_SWITCHES: Final = ("threads", "follow_threads", "show_code")
APPROVAL: Final = approval_policy.NAME
NAMES: Final = (APPROVAL, "model", *_SWITCHES)
"""Names of all preferences."""


@dataclasses.dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences in effect for one request; approval of code is left to
    `sessions.approval_policy`."""

    model: str = ""
    threads: bool = True
    follow_threads: bool = True
    show_code: bool = False


def effective(chosen: Mapping[str, Any], config: settings.Discord) -> Preferences:
    """Return the preferences in effect; invalid values count as not chosen."""
    switches = {name: chosen[name] for name in _SWITCHES if isinstance(chosen.get(name), bool)}
    model = chosen.get("model")
    return Preferences(
        **{
            "threads": config.threads,
            "follow_threads": config.follow_threads,
            "model": model if isinstance(model, str) else "",
            **switches,
        }
    )


def suggestions(name: str, models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the possible values of a preference."""
    if name == APPROVAL:
        return get_args(requests.Approval)
    if name == "model":
        return models
    return ("on", "off") if name in _SWITCHES else ()


def check(name: str) -> None:
    """Check the name of a preference.

    Raises:
        BotError: there is none of that name.
    """
    if name not in NAMES:
        raise errors.BotError(access_words.no_such_setting(", ".join(NAMES)))


def parse(name: str, text: str, models: tuple[str, ...]) -> object | None:
    """Parse a chosen value; None, for `default`, removes the choice.

    Raises:
        BotError: that cannot be chosen.
    """
    check(name)
    text = text.strip()
    if text.lower() == "default":
        return None
    if name in _SWITCHES and text.lower() in _YES | _NO:
        return text.lower() in _YES
    if name not in _SWITCHES and text in suggestions(name, models):
        return text
    known = ", ".join((*suggestions(name, models), "default"))
    raise errors.BotError(access_words.setting_choices(name, known))
