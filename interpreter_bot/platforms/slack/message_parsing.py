"""Parse what Slack sends: text, code, files and commands of messages. Pure."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.text import code_reading

_MENTION: Final = re.compile(r"<(?:@|!subteam\^)[A-Z0-9]+(?:\|[^>]*)?>|<!(?:here|channel|everyone)")
_SLACK_TOKEN: Final = re.compile(r"<([^<>\n]{1,3000})>")
_PYTHON_FILE_TYPES: Final = frozenset({"python", "py"})
_MESSAGE_SUBTYPES: Final = frozenset({"", "file_share", "thread_broadcast"})


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message of a person.

    Attributes:
        channel: `C…`, `G…` or `D…`.
        ts: its own timestamp, which is its id within the channel.
        thread: timestamp of its thread's root; empty if it is no reply.
        user: `U…` or `W…`.
        user_team: `T…` of the person, which may be another one in shared channels; or empty.
        text: as Slack encodes it.
        files: as Slack describes them.
        is_direct: it is in a conversation of one person with the bot.
        edited_at: timestamp of its last edit; empty if there was none.
        bot: `B…` of another app that wrote it; empty for a person's.
        bot_name: the name of that app.
    """

    channel: str
    ts: str
    thread: str
    user: str
    user_team: str
    text: str
    files: tuple[Mapping[str, Any], ...] = ()
    is_direct: bool = False
    edited_at: str = ""
    bot: str = ""
    bot_name: str = ""

    @property
    def id(self) -> str:
        """Id of the message, unique in its workspace."""
        return f"{self.channel}/{self.ts}"

    @property
    def root(self) -> str:
        """Timestamp of the root of the thread that it is in, or would begin."""
        return self.thread or self.ts


@dataclasses.dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message, parsed on arrival.

    Attributes:
        message: as Slack sent it.
        text: readable, without the mention of the bot.
        is_mention: it mentions the bot.
        is_code: it is code to be run as it is: `py …`, or a snippet without text.
        code: what follows `py`; empty if the code is in a snippet.
        command: another command; None for a question.
    """

    message: Message
    text: str
    is_mention: bool
    is_code: bool = False
    code: str = ""
    command: command_types.Invocation | None = None


def parse_incoming(
    event: Mapping[str, Any], bot_user: str, channel: str = ""
) -> IncomingMessage | None:
    """Parse a message; None if it is not one of a person's."""
    message = parse_message(event, channel)
    if message is None or message.user == bot_user:
        return None
    text = readable_text(message.text, bot_user)
    is_mention = mentions(message.text, bot_user)
    if message.files:
        is_code = not text and len(message.files) == 1 and is_snippet(message.files[0])
        return IncomingMessage(message, text, is_mention, is_code=is_code)
    command = command_table.parse_words(text, "slack")
    if command is not None and command.command.name == "py":
        code = code_of_mention(message.text, bot_user)
        return IncomingMessage(message, text, is_mention, is_code=True, code=code)
    return IncomingMessage(message, text, is_mention, command=command)


def parse_message(event: Mapping[str, Any], channel: str = "") -> Message | None:
    """Parse a message; None if it is not one of a person's."""
    if (
        event.get("subtype", "") not in _MESSAGE_SUBTYPES
        or event.get("bot_id")
        or not event.get("user")
    ):
        return None
    channel_id = str(channel or event.get("channel", ""))
    return Message(
        channel=channel_id,
        ts=str(event["ts"]),
        thread=str(event.get("thread_ts") or ""),
        user=str(event["user"]),
        user_team=str(event.get("user_team") or event.get("team") or ""),
        text=str(event.get("text") or ""),
        files=tuple(event.get("files") or ()),
        is_direct=channel_id.startswith("D"),
        edited_at=str((event.get("edited") or {}).get("ts", "")),
    )


def parse_bot_message(event: Mapping[str, Any], channel: str) -> Message | None:
    """Parse a message of another app; None if no app wrote it."""
    bot = str(event.get("bot_id") or "")
    if not bot or event.get("subtype", "") not in (*_MESSAGE_SUBTYPES, "bot_message"):
        return None
    profile = event.get("bot_profile") or {}
    return Message(
        channel=channel,
        ts=str(event["ts"]),
        thread=str(event.get("thread_ts") or ""),
        user=str(event.get("user") or bot),
        user_team="",
        text=_text_of_bot(event),
        files=tuple(event.get("files") or ()),
        bot=bot,
        bot_name=str(event.get("username") or profile.get("name") or "another app"),
    )


def _text_of_bot(event: Mapping[str, Any]) -> str:
    """Return the text of an app's message; many apps put it only into attachments."""
    attachments = event.get("attachments") or ()
    texts = [
        event.get("text"),
        *(attachment.get("text") or attachment.get("fallback") for attachment in attachments),
    ]
    return "\n".join(str(text) for text in texts if text)


def mentions_others(text: str, bot_user: str) -> bool:
    """Return whether a text mentions somebody else, and not the bot."""
    return bool(_MENTION.search(text)) and not mentions(text, bot_user)


def mentions(text: str, user: str) -> bool:
    """Return whether a text mentions somebody."""
    return f"<@{user}>" in text or f"<@{user}|" in text


def readable_text(text: str, bot_user: str = "") -> str:
    """Decode a text of Slack to what the person typed, without the mention of the bot."""
    if bot_user:
        text = _without_mention(text, bot_user)
    return html.unescape(_SLACK_TOKEN.sub(_readable_token, text)).strip()


def code_of_mention(text: str, bot_user: str) -> str:
    """Return the code after `py` in a mention."""
    return code(_without_mention(text, bot_user).strip()[2:].lstrip(" "))


def _without_mention(text: str, user: str) -> str:
    return re.sub(rf"<@{re.escape(user)}(?:\|[^>]*)?>[:,]?", "", text)


def _readable_token(token: re.Match[str]) -> str:
    """Return the text of a link or mention of Slack."""
    target, separator, label = token[1].partition("|")
    if target.startswith(("@", "#")):
        return f"{target[0]}{label or target[1:]}"
    if target.startswith("!"):
        return label or f"@{target[1:].partition('^')[0]}"
    if re.match(r"(?:https?|mailto|tel|ftp):", target):
        address = target.removeprefix("mailto:").removeprefix("tel:")
        # Slack turns a typed `example.com` into a link.
        if not separator:
            return address
        return label if label in address else f"{label} ({address})"
    return token[0]


def code(text: str) -> str:
    """Return code as it was typed, without Slack's marks and entities."""
    return code_reading.read_as_code(_decode(text))


def fenced_code(text: str) -> list[str]:
    """Return the Python of the code blocks of a text."""
    return code_reading.find_python_blocks(_decode(text))


def _decode(text: str) -> str:
    return html.unescape(_SLACK_TOKEN.sub(_typed_token, text))


def _typed_token(token: re.Match[str]) -> str:
    target, _, label = token[1].partition("|")
    if re.match(r"(?:https?|mailto|tel|ftp):", target):
        # The label is what was typed; Slack adds one only to links that it made.
        return label or target
    return token[0]


def rich_text_code(blocks: tuple[Mapping[str, Any], ...]) -> list[str]:
    """Return the code blocks of rich text, which Slack changes less than the text of a message."""
    code_blocks = []
    for block in blocks:
        for element in block.get("elements") or () if block.get("type") == "rich_text" else ():
            if element.get("type") == "rich_text_preformatted":
                parts = (
                    str(part.get("text") or part.get("url") or "") for part in element["elements"]
                )
                code_blocks.append(code_reading.undo_typography("".join(parts)))
    return code_blocks


def is_snippet(file: Mapping[str, Any]) -> bool:
    """Return whether a file is Python that was pasted rather than sent."""
    return file.get("mode") == "snippet" and file.get("filetype") in _PYTHON_FILE_TYPES
