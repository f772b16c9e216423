"""Who may use the bot, where it answers, and who may change that."""

from __future__ import annotations

from typing import Final

NOT_LISTED: Final = "You don't have access to this bot. Ask an admin."
NO_BOTS: Final = "I don't respond to bots."
NO_OUTSIDERS: Final = "Only people of this workspace can use me."
NO_GUESTS: Final = "Guests of this workspace can't use me."
NOT_HERE: Final = "I can't be used here."
OWNER_LEFT_CHANNEL: Final = "Its owner is no longer in this channel."
UNKNOWN_PERSON: Final = "I couldn't look you up in Slack. Try again later."
ADMINS_ONLY: Final = "Only admins can change that."
ADMINS_ONLY_IN_CHANNEL: Final = "Only admins can change that for a channel."
ONLY_FOR_YOURSELF: Final = "Here you can only choose for yourself."
CHANNEL_MANAGERS_ONLY: Final = "Only people who manage this channel can choose for it."
SERVER_MANAGERS_ONLY: Final = "Only people who manage this server can choose for it."

MENTION_ME: Final = "I only answer messages here that mention me."
MENTION_ME_IN_CROWD: Final = (
    "Several people write in this thread, so I only answer messages that mention me."
)
MENTION_OR_REPLY: Final = "I only answer messages here that mention me or reply to me."
MENTION_OR_REPLY_IN_CROWD: Final = (
    "Several people write here, so I only answer messages that mention me or reply to me."
)
MENTION_OR_REPLY_TO_BE_READ: Final = "I can only read messages here that mention me or reply to me."
WRITE_SOMETHING: Final = (
    "Write what you want to know, or send a file with it. `/interpreter help` says more."
)
WEAKER_THAN_OTHER: Final = "That is weaker than another setting here, so the stricter one applies."


SETTINGS_TITLE: Final = "Your settings here"
SETTING_DESCRIPTIONS: Final = {
    "approval": "ask a person before the model's code runs: never, once per answer (plan), or "
    "every time; the strictest choice here applies",
    "model": "the model I use if a conversation has not chosen another",
    "threads": "a mention opens a thread",
    "follow_threads": "I answer in my threads without a mention",
    "show_code": "code stays visible after it has run",
}
POSSIBLE_VALUES: Final = "possible values"
_SCOPE_PHRASES: Final = {
    "me": "for you",
    "channel": "in this channel",
    "server": "on this server",
    "workspace": "in this workspace",
}


def no_such_setting(names: str) -> str:
    return f"There is no such setting. You can choose {names}."


def setting_choices(name: str, choices: str) -> str:
    return f"{name} can be one of: {choices}."


def setting_changed(name: str, value: str, scope: str) -> str:
    verb = "reset to the default" if value == "default" else f"now {value}"
    return f"{name} is {verb} {_SCOPE_PHRASES[scope]}."


def value_in_effect(value: str) -> str:
    return f"In effect for you here: {value}."
