"""What workspaces and channels choose for themselves in Slack, over what the settings say. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from interpreter_bot import settings
from interpreter_bot.sessions import allowances, approvals

PEOPLE: Final = "allowed_people"
GROUPS: Final = "allowed_groups"
CHANNELS: Final = "allowed_channels"
APPROVAL: Final = approvals.NAME
FOLLOWING: Final = "follow_threads"
TOKENS: Final = allowances.TOKENS
MONEY: Final = allowances.MONEY
"""The names under which it is chosen."""


@dataclasses.dataclass(frozen=True, slots=True)
class Preferences:
    """What holds somewhere; see `settings.Slack` for what each is.

    Approval is not among it: of that the strictest holds, see `sessions.approvals`.
    """

    people: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    follows_threads: bool = True


def effective(chosen: Mapping[str, Any], slack: settings.Slack) -> Preferences:
    """Read what was chosen; what makes no sense (any more) is as if it had not been."""
    follows = chosen.get(FOLLOWING)
    return Preferences(
        people=_ids(chosen.get(PEOPLE)) or slack.allowed_people,
        groups=_ids(chosen.get(GROUPS)) or slack.allowed_groups,
        channels=_ids(chosen.get(CHANNELS)) or slack.allowed_channels,
        follows_threads=follows if isinstance(follows, bool) else slack.follows_threads,
    )


def _ids(chosen: object) -> tuple[str, ...]:
    is_list = isinstance(chosen, Iterable) and not isinstance(chosen, str)
    return tuple(str(one) for one in chosen) if is_list else ()  # type: ignore[attr-defined]
