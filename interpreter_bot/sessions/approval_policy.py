"""Whether people are asked before the model's code runs: the strictest setting or choice.

The operator decides for the whole bot (`sessions.approval`) and for a platform (which puts its
own setting into `Request.approval`); servers, channels and people choose under the name `NAME`,
each in their own scope. Unlike other choices, a narrower one never replaces a
wider one: it can only be stricter. So a person cannot switch off what the operator, the server or
the channel demands.

Turns enforce the approval for every platform. Platforms only store choices under `NAME`, and show
the approval in effect by `SessionReads.approval`.
"""

from __future__ import annotations

from typing import Final, get_args

from interpreter_bot.sessions import requests
from interpreter_bot.store import preferences

NAME: Final = "approval"
"""Name of the choice in the store."""

_MILDEST_FIRST: Final[tuple[requests.Approval, ...]] = get_args(requests.Approval)


def strictest(*choices: object) -> requests.Approval:
    """Return the strictest of the choices; unknown values count as not chosen."""
    return max(
        (approval for approval in _MILDEST_FIRST if approval in choices),
        key=_MILDEST_FIRST.index,
        default="never",
    )


def effective(choices: preferences.Choices, *at_least: object) -> requests.Approval:
    """Return the strictest approval of the settings (`at_least`) and of all scopes."""
    return strictest(*at_least, *(choice.value for choice in choices.of(NAME)))


def of_request(
    request: requests.Request, choices: preferences.Choices, demanded: requests.Approval
) -> requests.Approval:
    """Return the approval in effect for a request; `demanded` is what the bot's settings demand."""
    # A person who sends code has decided to run it.
    return "never" if request.is_code else effective(choices, demanded, request.approval)
