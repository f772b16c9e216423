"""Errors of Slack.

BotError
└── SlackError           Slack refused something, or cannot be reached
    ├── RefusedError     Slack refused a call; `code` is its error code
    │   ├── ContentRefusedError    Slack may accept a plainer message
    │   └── GoneError    Slack does not accept the token
    └── LostError        Slack cannot be reached, or answers nonsense; also a PlatformLostError
"""

from __future__ import annotations

from typing import Final

from interpreter_bot import errors
from interpreter_bot.wording import slack_words

# Codes of a token that Slack does not accept.
TOKEN_CODES: Final = frozenset(
    {
        *("account_inactive", "invalid_auth", "not_authed", "org_login_required"),
        *("team_access_not_granted", "token_expired", "token_revoked"),
    }
)
# Codes of temporary failures: the same call may succeed in a moment.
TEMPORARY_CODES: Final = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)
# Beginnings of the codes that complain about the content of a message.
_CONTENT_PREFIXES: Final = (
    *("invalid_arg", "invalid_block", "invalid_metadata", "markdown_text", "messaging_processing"),
    *("metadata_", "msg_", "no_text", "only_one_table", "too_many_"),
)
RATE_LIMIT_CODES: Final = frozenset({"ratelimited", "rate_limited"})
# These codes mean that a feature is missing in the whole workspace.
MISSING_FEATURE_CODES: Final = frozenset(
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
        method: the method that was called.
        code: Slack's error code.
    """

    def __init__(self, method: str, code: str) -> None:
        super().__init__(slack_words.call_refused(method, code))
        self.method = method
        self.code = code


class ContentRefusedError(RefusedError):
    """Slack refuses the content of a message, and may accept a plainer form of it."""


class GoneError(RefusedError):
    """Slack does not accept the token: the bot is no longer installed there, or it expired."""


class LostError(SlackError, errors.PlatformLostError):
    """Slack cannot be reached. Please try again in a moment."""


def error_of_code(method: str, code: str) -> RefusedError:
    """Return the error for Slack's error code."""
    if code in TOKEN_CODES:
        return GoneError(method, code)
    is_about_content = code.startswith(_CONTENT_PREFIXES)
    return (ContentRefusedError if is_about_content else RefusedError)(method, code)
