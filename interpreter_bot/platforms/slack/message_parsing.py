"""Parse what Slack sends: text, code, files and commands of messages. Pure."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot.platforms import command_table
from interpreter_bot.text import code_reading

_MENTION: Final = re.compile(r"<(?:@|!subteam\^)[A-Z0-9]+(?:\|[^>]*)?>|<!(?:here|channel|everyone)")
_TOKEN: Final = re.compile(r"<([^<>\n]{1,3000})>")
_CODE_TYPES: Final = frozenset({"python", "py"})
_SUBTYPES: Final = frozenset({"", "file_share", "thread_broadcast"})


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message of a person.

    Attributes:
        channel: `C…`, `G…` or `D…`.
        ts: its own timestamp, which is its id within the channel.
        thread: that of its thread's root, or empty where it is no reply.
        user: `U…` or `W…`.
        user_team: `T…` of the person, which in shared channels may be another; or empty.
        text: as Slack encodes it.
        files: as Slack describes them.
        is_direct: it stands in a conversation of one person with the bot.
        edited: when it was edited, or empty.
        bot: `B…` of another app that wrote it; empty for a person's.
        bot_name: what that calls itself.
    """

    channel: str
    ts: str
    thread: str
    user: str
    user_team: str
    text: str
    files: tuple[Mapping[str, Any], ...] = ()
    is_direct: bool = False
    edited: str = ""
    bot: str = ""
    bot_name: str = ""

    @property
    def id(self) -> str:
        """Names it as it is worded now; begins with `ts`."""
        return f"{self.ts}-{self.edited}" if self.edited else self.ts

    @property
    def root(self) -> str:
        """The thread it belongs to, were it to have one."""
        return self.thread or self.ts


@dataclasses.dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message parsed once when it comes.

    Attributes:
        message: as Slack sent it.
        text: its words, without the mention of the bot.
        is_mention: it mentions the bot.
        is_code: it is code to be run as it is: `py …`, or a snippet without words.
        code: what follows `py`; empty if the code is in a snippet.
        command: another command to the bot; None for a question.
    """

    message: Message
    text: str
    is_mention: bool
    is_code: bool = False
    code: str = ""
    command: command_table.Invocation | None = None


def incoming(event: Mapping[str, Any], bot_user: str, channel: str = "") -> IncomingMessage | None:
    """Parse a message; None if it is not one of a person's."""
    sent = message(event, channel)
    if sent is None or sent.user == bot_user:
        return None
    text = words(sent.text, bot_user)
    is_mention = mentions(sent.text, bot_user)
    if sent.files:
        is_code = not text and len(sent.files) == 1 and is_snippet(sent.files[0])
        return IncomingMessage(sent, text, is_mention, is_code=is_code)
    command = command_table.parse_words(text, "slack")
    if command is not None and command.command.name == "py":
        code = code_of_mention(sent.text, bot_user)
        return IncomingMessage(sent, text, is_mention, is_code=True, code=code)
    return IncomingMessage(sent, text, is_mention, command=command)


def message(event: Mapping[str, Any], channel: str = "") -> Message | None:
    """Parse a message; None if it is not one of a person's."""
    if event.get("subtype", "") not in _SUBTYPES or event.get("bot_id") or not event.get("user"):
        return None
    where = str(channel or event.get("channel", ""))
    return Message(
        channel=where,
        ts=str(event["ts"]),
        thread=str(event.get("thread_ts") or ""),
        user=str(event["user"]),
        user_team=str(event.get("user_team") or event.get("team") or ""),
        text=str(event.get("text") or ""),
        files=tuple(event.get("files") or ()),
        is_direct=where.startswith("D"),
        edited=str((event.get("edited") or {}).get("ts", "")),
    )


def message_of_bot(event: Mapping[str, Any], channel: str) -> Message | None:
    """Parse a message of another app; None if it is none."""
    bot = str(event.get("bot_id") or "")
    if not bot or event.get("subtype", "") not in (*_SUBTYPES, "bot_message"):
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
    """Return the words of an app's message; many write them into attachments alone."""
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


def words(text: str, bot_user: str = "") -> str:
    """Convert a text to what the person saw as they wrote it, without the mention of the bot."""
    if bot_user:
        text = _without_mention(text, bot_user)
    return html.unescape(_TOKEN.sub(_token_in_words, text)).strip()


def code_of_mention(text: str, bot_user: str) -> str:
    """Return the code after `py` in a mention, as it was meant."""
    return code(_without_mention(text, bot_user).strip()[2:].lstrip(" "))


def _without_mention(text: str, user: str) -> str:
    return re.sub(rf"<@{re.escape(user)}(?:\|[^>]*)?>[:,]?", "", text)


def _token_in_words(found: re.Match[str]) -> str:
    """Undo the links that Slack made."""
    inner = found[1]
    target, bar, label = inner.partition("|")
    if target.startswith(("@", "#")):
        return f"{target[0]}{label or target[1:]}"
    if target.startswith("!"):
        return label or f"@{target[1:].partition('^')[0]}"
    if re.match(r"(?:https?|mailto|tel|ftp):", target):
        bare = target.removeprefix("mailto:").removeprefix("tel:")
        # `example.com` is made a link by Slack, which a person did not write.
        return label if bar and label in bare else bare if not bar else f"{label} ({bare})"
    return found[0]


def code(text: str) -> str:
    """Return what was written as code, without Slack's marks and entities."""
    return code_reading.code_of(_decoded(text))


def fenced(text: str) -> list[str]:
    """Return the Python of the code blocks of a text."""
    return code_reading.blocks(_decoded(text))


def _decoded(text: str) -> str:
    return html.unescape(_TOKEN.sub(_shown_in_code, text))


def _shown_in_code(found: re.Match[str]) -> str:
    target, _, label = found[1].partition("|")
    if re.match(r"(?:https?|mailto|tel|ftp):", target):
        # What stood there is the label, which Slack gives only where it made up the rest.
        return label or target
    return found[0]


def preformatted(blocks: tuple[Mapping[str, Any], ...]) -> list[str]:
    """Return the code blocks of rich text, which Slack encodes more faithfully than text."""
    found = []
    for block in blocks:
        for element in block.get("elements") or () if block.get("type") == "rich_text" else ():
            if element.get("type") == "rich_text_preformatted":
                parts = (str(p.get("text") or p.get("url") or "") for p in element["elements"])
                found.append(code_reading.mended("".join(parts)))
    return found


def is_snippet(file: Mapping[str, Any]) -> bool:
    """Return whether a file is Python that was pasted rather than sent."""
    return file.get("mode") == "snippet" and file.get("filetype") in _CODE_TYPES
