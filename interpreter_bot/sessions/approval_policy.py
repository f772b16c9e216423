"""Whether people are asked before the model's code runs: the strictest setting or choice.

The operator decides for the whole bot (`sessions.approval`) and for a platform (which puts its
own setting into `Request.approval`). Servers, channels and people choose under `PREFERENCE_NAME`,
each in their own scope. Other choices replace that of a wider scope; this one can only be stricter,
so a person cannot switch off an approval that the operator, the server or the channel demands.

Turns enforce the approval for every platform. Platforms only store choices under
`PREFERENCE_NAME`, and show the approval in effect by `SessionReads.approval`.
"""

from __future__ import annotations

from typing import Final, get_args

from interpreter_bot.sessions import requests
from interpreter_bot.store import preferences

PREFERENCE_NAME: Final = "approval"
"""The choice's name in the store."""

_MILDEST_FIRST: Final[tuple[requests.Approval, ...]] = get_args(requests.Approval)


def strictest_approval(*choices: object) -> requests.Approval:
    """Return the strictest of the choices; unknown values count as not chosen."""
    return max(
        (approval for approval in _MILDEST_FIRST if approval in choices),
        key=_MILDEST_FIRST.index,
        default="never",
    )


def effective_approval(choices: preferences.Choices, *configured: object) -> requests.Approval:
    """Return the strictest approval that the settings (`configured`) or any scope demand."""
    return strictest_approval(
        *configured, *(choice.value for choice in choices.of(PREFERENCE_NAME))
    )


def approval_for_request(
    request: requests.Request, choices: preferences.Choices, bot_approval: requests.Approval
) -> requests.Approval:
    """Return the approval in effect for a request; `bot_approval` is that of the bot's settings."""
    # A person who sends code has decided to run it.
    return (
        "never" if request.is_code else effective_approval(choices, bot_approval, request.approval)
    )
