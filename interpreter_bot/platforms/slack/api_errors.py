"""Errors of Slack.

BotError
└── SlackError           Slack refused something, or cannot be reached
    ├── RefusedError     it said no, and `code` is its word for why
    │   ├── ContentRefusedError    it may take a plainer message
    │   └── GoneError    it does not accept the token
    └── LostError        it cannot be reached, or answers nonsense: a PlatformLostError, too
"""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors
from interpreter_bot.wording import slack_words

# Slack does not accept the token.
GONE: Final = frozenset(
    {
        *("account_inactive", "invalid_auth", "not_authed", "org_login_required"),
        *("team_access_not_granted", "token_expired", "token_revoked"),
    }
)
# It may work in a moment.
PASSING: Final = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)
# How words begin for what is wrong with a message.
_OF_CONTENT: Final = (
    *("invalid_arg", "invalid_block", "invalid_metadata", "markdown_text", "messaging_processing"),
    *("metadata_", "msg_", "no_text", "only_one_table", "too_many_"),
)
LIMITED: Final = frozenset({"ratelimited", "rate_limited"})
# The workspace does not have the feature, in any place and at any time.
LACKING: Final = frozenset(
    {
        *("access_denied", "enterprise_is_restricted", "feature_not_enabled", "missing_scope"),
        *("method_deprecated", "method_not_supported", "no_permission", "not_allowed"),
        *("not_allowed_token_type", "not_authorized", "paid_only", "plan_upgrade_required"),
        *("restricted_plan_level", "team_not_eligible", "unknown_method"),
    }
)


class SlackError(errors.BotError):
    """Slack could not do that."""


class RefusedError(SlackError):
    """Slack refused a call.

    Attributes:
        method: what was called.
        code: Slack's word for why.
    """

    def __init__(self, method: str, code: str) -> None:
        super().__init__(slack_words.refused(method, code))
        self.method = method
        self.code = code


class ContentRefusedError(RefusedError):
    """Slack refuses what a message holds, and may take it in a plainer form."""


class GoneError(RefusedError):
    """Slack does not accept the token: the bot is no longer installed there, or it expired."""


class LostError(SlackError, errors.PlatformLostError):
    """Slack cannot be reached. Please try again in a moment."""


def refused(method: str, code: str) -> RefusedError:
    """Return the error for Slack's error code."""
    if code in GONE:
        return GoneError(method, code)
    is_of_content = code.startswith(_OF_CONTENT)
    return (ContentRefusedError if is_of_content else RefusedError)(method, code)
