"""Whether people are asked before the model's code runs: the strictest setting or choice.

The operator chooses for everything or for some places (`[[place]]`), and for one command in the
terminal (`Request.approval`). Servers, channels and people choose under `PREFERENCE_NAME`, each in
their own scope. Other choices replace that of a wider scope; this one can only be stricter, so a
person cannot switch off an approval that the operator, the server or the channel demands.

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


def effective_approval(
    choices: preferences.Choices, at_least: requests.Approval
) -> requests.Approval:
    """Return the strictest approval that any scope demands, but no milder one than `at_least`."""
    return strictest_approval(at_least, *(choice.value for choice in choices.of(PREFERENCE_NAME)))


def approval_for_request(
    request: requests.Request, choices: preferences.Choices
) -> requests.Approval:
    """Return the approval in effect for a request."""
    # A person who sends code has decided to run it.
    return "never" if request.is_code else effective_approval(choices, request.approval)
