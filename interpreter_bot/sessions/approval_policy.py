"""Whether people are asked before the model's code runs: the strictest setting or choice.

The operator decides for the whole bot (`sessions.approval`) and for a platform (which puts its
own setting into `Request.approval`); servers, channels and people choose under the name `NAME`,
each in their own scope. A narrower choice never replaces a wider one, as it does with all other
choices: it can ask for more, and never for less. So a person cannot switch off what the operator,
the server or the channel wants.

Turns apply this to each request of every platform. Platforms have nothing to enforce: they store
choices under `NAME`, and show the approval in effect by `Queries.approval`.
"""

from __future__ import annotations

from typing import Final, get_args

from interpreter_bot.sessions import requests
from interpreter_bot.store import preferences

NAME: Final = "approval"
"""Name of the choice in the store."""

_MILD_FIRST: Final[tuple[requests.Approval, ...]] = get_args(requests.Approval)


def strictest(*choices: object) -> requests.Approval:
    """Return the strictest of the choices; unknown values count as not chosen."""
    return max(
        (approval for approval in _MILD_FIRST if approval in choices),
        key=_MILD_FIRST.index,
        default="never",
    )


def in_effect(choices: preferences.Choices, *at_least: object) -> requests.Approval:
    """Return the approval in effect.

    Args:
        choices: in a scope and in all around it; each counts.
        at_least: what the settings demand.
    """
    return strictest(*at_least, *choices.all_of(NAME))


def of_request(
    request: requests.Request, choices: preferences.Choices, demanded: requests.Approval
) -> requests.Approval:
    """Return the approval in effect for a request.

    Args:
        request: what is asked, and where.
        choices: by the person who asks, and around them.
        demanded: what the settings of the bot demand.
    """
    # Code that a person wrote is what they want to run.
    return "never" if request.is_code else in_effect(choices, demanded, request.approval)
