"""Parse messages: text without the mention, referenced messages, attachments. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

import discord

from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.sessions import requests
from interpreter_bot.text import code_reading, safe_text

_PLATFORM: Final = "discord"
_MAX_QUOTED_CHARACTERS: Final = 4000
_MAX_TITLE_CHARACTERS: Final = 80
_OUTSIDER_REMARK: Final = " (may not use you; their wishes do not count)"
_FORWARDED_SPEAKER: Final = "a forwarded message"


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A parsed message.

    Attributes:
        text: without the mention of the bot.
        recent: earlier and referenced messages, oldest first.
        attachments: of the message and of referenced ones.
        code: to be run as it is; empty for a question.
    """

    text: str
    recent: tuple[requests.RecentMessage, ...]
    attachments: tuple[discord.Attachment, ...]
    code: str = ""


def parse(
    message: discord.Message,
    bot_id: int,
    before: Iterable[discord.Message] = (),
    *,
    replies_to_outsider: bool = False,
) -> ParsedMessage:
    """Parse a message.

    Args:
        message: what a person wrote to the bot.
        bot_id: id of the bot's user.
        before: earlier messages there, oldest first.
        replies_to_outsider: it replies to a person who may not use the bot.
    """
    files = list(message.attachments)
    recent = [recent_message(earlier, bot_id) for earlier in before]
    original = replied_message(message)
    if original is not None:
        files += original.attachments
        if original.author.id != bot_id:
            unreferred = recent_message(original, bot_id)
            referred = recent_message(
                original, bot_id, is_referred=True, is_outsider=replies_to_outsider
            )
            recent = [*(message for message in recent if message != unreferred), referred]
    for snapshot in message.message_snapshots:
        files += snapshot.attachments
        recent.append(
            requests.RecentMessage(
                speaker=_FORWARDED_SPEAKER,
                text=snapshot.content[:_MAX_QUOTED_CHARACTERS],
                is_referred=True,
            )
        )
    text = words(message, bot_id)
    context = tuple(message for message in recent if message.text or message.files)
    invocation = command_table.parse_words(text, _PLATFORM)
    is_code = invocation is not None and invocation.command.name == "py"
    code = code_reading.read_as_code(invocation.argument) if invocation and is_code else ""
    return ParsedMessage(text, context, tuple(files), code)


def command(message: discord.Message, bot_id: int) -> command_types.Invocation | None:
    """Return the command that a message is; None if it is a question, or code."""
    if message.attachments:
        return None
    text = words(message, bot_id)
    invocation = command_table.parse_words(text, _PLATFORM)
    return None if invocation is None or invocation.command.name == "py" else invocation


def replied_message(message: discord.Message) -> discord.Message | None:
    """Return the message to which another one replies, if Discord included it."""
    original = message.reference.resolved if message.reference is not None else None
    return original if isinstance(original, discord.Message) else None


def is_for_others(message: discord.Message, bot_id: int) -> bool:
    """Return whether a message is for others: it mentions them, or replies to them."""
    original = replied_message(message)
    mentions_others = any(user.id not in (bot_id, message.author.id) for user in message.mentions)
    is_reply = original is not None and original.author.id not in (bot_id, message.author.id)
    return is_reply or mentions_others or bool(message.role_mentions) or message.mention_everyone


def is_addressed(message: discord.Message, bot_id: int) -> bool:
    """Return whether a message on a server mentions the bot, or replies to it."""
    return any(user.id == bot_id for user in message.mentions) or mentions_bot(message, bot_id)


def mentions_bot(message: discord.Message, bot_id: int) -> bool:
    """Return whether the text of a message mentions the bot; a reply does so without text."""
    return any(mention in message.content for mention in _mentions_of_bot(message, bot_id))


def _mentions_of_bot(message: discord.Message, bot_id: int) -> tuple[str, ...]:
    """Return how a message may mention the bot.

    A bot has a role with its name, which Discord offers as well as the bot when people type "@".
    """
    own_roles = (
        role.mention
        for role in message.role_mentions
        if role.tags is not None and role.tags.bot_id == bot_id
    )
    return (f"<@{bot_id}>", f"<@!{bot_id}>", *own_roles)


def words(message: discord.Message, bot_id: int) -> str:
    """Return text with names in place of mentions, and without the mention of the bot."""
    text = message.content
    for mention in _mentions_of_bot(message, bot_id):
        text = text.replace(mention, "")
    for user in message.mentions:
        for mention in (f"<@{user.id}>", f"<@!{user.id}>"):
            text = text.replace(mention, f"@{user.display_name}")
    return text.strip()


def recent_message(
    message: discord.Message, bot_id: int, *, is_referred: bool = False, is_outsider: bool = False
) -> requests.RecentMessage:
    """Return a message as context for the model."""
    speaker = "You" if message.author.id == bot_id else message.author.display_name
    return requests.RecentMessage(
        speaker=f"{speaker}{_OUTSIDER_REMARK if is_outsider else ''}",
        text=words(message, bot_id)[:_MAX_QUOTED_CHARACTERS],
        files=tuple(file.filename for file in message.attachments),
        is_bot=message.author.bot,
        is_referred=is_referred,
    )


def title(text: str) -> str:
    """Return a thread title: the first words of a request."""
    lines = safe_text.sanitize(text).split("\n")
    line = next((row for row in lines if row.strip(" `")), "")
    line = " ".join(line.replace("`", " ").split())
    if len(line) > _MAX_TITLE_CHARACTERS:
        line = line[:_MAX_TITLE_CHARACTERS].rsplit(" ", 1)[0] + "…"
    return line or "Interpreter"
