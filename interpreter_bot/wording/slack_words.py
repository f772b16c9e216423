"""Slack: its Home tab and forms, its answers, and its refusals."""

from __future__ import annotations

from typing import Final

GREETING: Final = "What would you like to know?"
SUGGESTED_PROMPTS: Final = (
    ("Look at a file", "Here is a file. What is in it, and what is worth knowing about it?"),
    ("Draw a chart", "Draw a chart of the data I send next."),
    ("Calculate", "How does 10,000 grow in 20 years at 3 %, 5 % and 7 %? Draw it."),
    ("What can you do?", "help"),
)
"""Titles of suggestions, and what they send."""

YOUR_SESSIONS: Final = "Your sessions"
NO_SESSIONS: Final = "None yet. Mention me in a channel, or send me a message."
YOUR_USE: Final = "Your use today"
DIRECT_MESSAGE: Final = "a direct message"
ALL_SESSIONS: Final = "All sessions"
ACCESS: Final = "Access and limits"
USAGE: Final = "Usage and budgets"
SHOW_USAGE: Final = "Show usage for…"
STOP_QUESTION: Final = "Stop this session?"
STOP_CONSEQUENCE: Final = "Running code is stopped and variables are deleted; files are kept."
DELETE_QUESTION: Final = "Delete this session?"
DELETE_CONSEQUENCE: Final = "Its variables, files and history are deleted. This can't be undone."
OPERATORS_SETTING: Final = "Leave empty to use the operator's setting."
PEOPLE_LABEL: Final = "People who may use me"
GROUPS_LABEL: Final = "User groups (S…) that may use me"
CHANNELS_LABEL: Final = "Channels where I work"
APPROVAL_LABEL: Final = "Ask a person before the model's code runs"
FOLLOWING_LABEL: Final = "Answer without a mention in threads of one person"
TOKENS_LABEL: Final = "Tokens one person may use in a day"
MONEY_LABEL: Final = "Cost that one person may cause in a day"

OWN_PYTHON: Final = "This thread has its own Python: reply here to continue"
PICTURE: Final = "A picture"
GOOD_ANSWER: Final = "Good answer"
BAD_ANSWER: Final = "Bad answer"
RATE_LIMITED: Final = "Slack is rate-limiting me. Try again in a minute."

NO_APP_TOKEN: Final = (
    "Slack needs SLACK_APP_TOKEN (xapp-…) for Socket Mode, or SLACK_SIGNING_SECRET for HTTP."
)
NO_BOT_TOKEN: Final = "Slack needs SLACK_BOT_TOKEN (xoxb-…)."
NO_CLIENT_SECRET: Final = (
    "To serve several workspaces, Slack needs SLACK_CLIENT_SECRET and a database for their tokens."
)
WHOLE_ORGANISATION: Final = (
    "This bot is installed workspace by workspace, not for a whole organisation. Install it again "
    "and choose one workspace."
)
ORGANISATION_TOKEN: Final = f"SLACK_BOT_TOKEN is for an organisation. {WHOLE_ORGANISATION}"
TOKEN_NOT_STORED: Final = (
    "The bot could not store its token for this workspace, so it was not installed. Ask whoever "
    "runs this bot to check its log."
)
NO_SOCKET: Final = "Slack's Socket Mode cannot be reached."
BOT_TOKEN: Final = "the bot token (SLACK_BOT_TOKEN)"
APP_TOKEN: Final = "the app token (SLACK_APP_TOKEN)"
MESSAGE_TO_PERSON: Final = "the message to that person"
TEST_MESSAGE: Final = (
    "Hello! My token works. Once I am started, write to me here, or mention me in a channel."
)
REFUSAL_REASONS: Final = {
    "account_inactive": "the bot's account was deactivated",
    "channel_not_found": "the bot cannot see that channel; invite it",
    "file_upload_size_restricted": "this workspace does not accept files of that size",
    "file_uploads_disabled": "this workspace does not accept files",
    "invalid_auth": "the token is not valid",
    "is_archived": "the channel is archived",
    "missing_scope": "the app lacks a permission; install it again with the current manifest",
    "not_allowed_token_type": "it is a token of another kind",
    "not_in_channel": "the bot is not in that channel; invite it",
    "restricted_action": "this workspace does not let the bot do that",
    "storage_limit_reached": "this workspace's storage is full",
    "token_expired": "the token has expired",
    "token_revoked": "the token was revoked",
    "user_not_found": "nobody has that member ID in this workspace",
}
"""Slack's codes for why it refuses a call."""


def call_refused(method: str, code: str) -> str:
    return f"Slack refused {method}: {REFUSAL_REASONS.get(code, code)}."


def call_refused_for_now(action: str, code: str) -> str:
    return f"Slack did not accept {action} just now ({code or 'no reason given'})."


def token_lost(reason: object) -> str:
    return f"Slack no longer accepts the bot's token. {reason}"


def unreachable(address: str) -> str:
    return f"Slack cannot be reached at {address}."


def no_listener(address: str, reason: object) -> str:
    return f"The bot cannot listen for Slack's requests on {address}: {reason}."
