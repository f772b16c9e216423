"""Block Kit blocks of messages. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import message_splitting, past_code
from interpreter_bot.platforms.slack import markdown
from interpreter_bot.text import fences, safe_text
from interpreter_bot.wording import slack_words

Block: TypeAlias = dict[str, Any]

FEEDBACK: Final = "feedback"
CSV_PREFIX: Final = "csv_"
"""Begins the actions that send a whole table; its number follows."""
CONFIRM, DISMISS = "command_confirm", "command_dismiss"
_SEPARATOR: Final = "/"
_STYLES: Final = {"primary": "primary", "success": "primary", "danger": "danger"}

_MAX_TABLE_ROWS: Final = 100
_MAX_TABLE_COLUMNS: Final = 20
_MAX_TABLE_CHARACTERS: Final = 9_000
MAX_CHARACTERS: Final = 12_500
"""Of all blocks of a message together; Slack refuses a little above 13,000."""
_MAX_BLOCKS: Final = 50
_MAX_WRITTEN_BLOCKS: Final = 20
_MAX_SECTION_CHARACTERS: Final = 3_000
_SIMPLE_BLOCK_TYPES: Final = frozenset({"actions", "context", "context_actions", "section"})
_MAX_ALT_CHARACTERS: Final = 1_000
_MAX_NOTE_CHARACTERS: Final = 2_000


def plain(text: str, limit: int = 75) -> Block:
    """Make a text object without markup."""
    return {"type": "plain_text", "text": markdown.plain_line(text, limit) or "-", "emoji": True}


def from_markdown(text: str) -> list[Block]:
    """Make blocks of any Markdown, of at most 12,000 characters, that notify nobody.

    Code that holds a mention becomes rich text, which Slack does not parse; past 20 blocks its
    mentions are broken instead.
    """
    result: list[Block] = []
    texts_left: list[str] = []
    for part in markdown.split_at_mentions(text):
        has_room = len(result) < _MAX_WRITTEN_BLOCKS
        if isinstance(part, markdown.Code):
            if has_room:
                result.append(_preformatted(part.text.rstrip("\n")))
            else:
                texts_left.append(fences.wrap_block(markdown.break_mentions(part.text)))
        elif isinstance(part, markdown.Line):
            if has_room:
                result.append(_line(part))
            else:
                texts_left.append(markdown.break_mentions("".join(text for text, _ in part.texts)))
        elif part.strip():
            if has_room:
                result.append({"type": "markdown", "text": part})
            else:
                texts_left.append(part.strip("\n"))
    return [*result, {"type": "markdown", "text": "\n".join(texts_left)}] if texts_left else result


def _line(line: markdown.Line) -> Block:
    texts = [
        {"type": "text", "text": text} | ({"style": {"code": True}} if is_code else {})
        for text, is_code in line.texts
        if text
    ]
    return _rich_text(texts)


def _rich_text(elements: Sequence[Block], kind: str = "section") -> Block:
    part = {"type": f"rich_text_{kind}", "elements": list(elements)}
    return {"type": "rich_text", "elements": [part]}


def _preformatted(code: str) -> Block:
    return _rich_text([{"type": "text", "text": code}], "preformatted")


def simplify(blocks: Sequence[Block]) -> list[Block]:
    """Rewrite blocks that Slack refused in the plainest kinds; buttons and small print stay."""
    result: list[Block] = []
    for is_simple, group in itertools.groupby(
        blocks, lambda block: block["type"] in _SIMPLE_BLOCK_TYPES
    ):
        if is_simple:
            result += group
            continue
        pieces = message_splitting.split_messages(plain_text(list(group)), _MAX_SECTION_CHARACTERS)
        result += [
            {"type": "section", "text": {"type": "plain_text", "text": piece}} for piece in pieces
        ]
    return result


def plain_text(blocks: Sequence[Block]) -> str:
    """Return the text of blocks without markup and buttons."""
    return "\n".join(filter(None, (_plain_text(block).strip("\n") for block in blocks)))


def _plain_text(part: Block) -> str:
    match part.get("type"):
        case "markdown" | "text" | "mrkdwn" | "plain_text" | "raw_text":
            return str(part["text"])
        case "section":
            return _plain_text(part["text"])
        case "image":
            return str(part["alt_text"])
        case "link":
            return f"{part['text']} {part['url']}"
        case "table":
            return "\n".join(" | ".join(map(_plain_text, row)) for row in part["rows"])
        case "rich_text_section":
            return "".join(map(_plain_text, part["elements"]))
        case "context" | "rich_text" | "rich_text_preformatted":
            return "\n".join(map(_plain_text, part["elements"]))
        case _:
            return ""


def section(text: str) -> Block:
    """Make a block of mrkdwn."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_MAX_SECTION_CHARACTERS]}}


def note(text: str) -> Block:
    """Make a line of small print, from any text."""
    mrkdwn = markdown.escape_mrkdwn(markdown.plain_line(text, _MAX_NOTE_CHARACTERS))
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": mrkdwn}]}


def picture(file_id: str, name: str, alt: str) -> Block:
    """Make a picture of a file that was uploaded to Slack."""
    return {
        "type": "image",
        "slack_file": {"id": file_id},
        "title": plain(name),
        "alt_text": alt[:_MAX_ALT_CHARACTERS],
    }


def button(text: str, action: str, value: str, *, style: str = "") -> Block:
    """Make a button."""
    result = {"type": "button", "text": plain(text), "action_id": action, "value": value}
    return result | ({"style": _STYLES[style]} if style in _STYLES else {})


def actions(*buttons: Block) -> Block:
    """Make a row of buttons."""
    return {"type": "actions", "elements": list(buttons)}


def command_value(key: values.SessionKey, person: str, *command: str) -> str:
    """Encode the value of a button: a command that a person gave in a session."""
    return json.dumps([[key.workspace, key.channel, key.thread], person, command])


def parse_command_value(text: str) -> tuple[values.SessionKey, str, tuple[str, str]]:
    """Decode the session, the person and the command of a button.

    Raises:
        ValueError: it is no such value.
    """
    session, person, (name, argument) = json.loads(text)
    return values.SessionKey("slack", *session), person, (name, argument)


def button_rows(buttons: Sequence[transport.Button], session: values.SessionKey) -> list[Block]:
    """Make the rows of buttons below a message of a session."""
    row_buttons = [
        button(
            chat_button.label,
            _action_id(chat_button),
            button_value(session, chat_button.subject_id),
            style=chat_button.style,
        )
        for chat_button in buttons
        if chat_button.action != FEEDBACK
    ]
    feedback_rows = [
        _feedback_buttons(chat_button.subject_id)
        for chat_button in buttons
        if chat_button.action == FEEDBACK
    ]
    return ([actions(*row_buttons)] if row_buttons else []) + feedback_rows


def _action_id(chat_button: transport.Button) -> str:
    # Slack wants each element of a row to have an action id of its own.
    is_csv = chat_button.action == "csv"
    return f"{CSV_PREFIX}{chat_button.subject_id}" if is_csv else chat_button.action


def button_value(session: values.SessionKey, subject_id: str) -> str:
    """Encode the value of a button: the id of its subject, and the session of that."""
    return _SEPARATOR.join((session.workspace, session.channel, session.thread, subject_id))


def parse_button_value(text: str) -> tuple[values.SessionKey | None, str]:
    """Decode the session of a button, and the id of its subject."""
    *session, subject_id = text.split(_SEPARATOR, 3)
    return (values.SessionKey("slack", *session) if len(session) == 3 else None), subject_id


def link(url: str, text: str) -> Block:
    """Make a line that is a link, of any length."""
    return _rich_text([{"type": "link", "url": url, "text": text}])


def code_blocks(runs: Sequence[past_code.CodeRun], queries: str) -> list[Block] | None:
    """Make the blocks that show code exactly, and its output; None if no message can.

    The message has room for a line above the code.
    """
    result: list[Block] = []
    for run in runs:
        if safe_text.reveal_hidden(run.code).text != run.code:
            return None
        result += [note(run.words)] if run.words else []
        result += [_preformatted(run.code)] if run.code else []
        result += [note(past_code.OUTPUT_HEADING), _preformatted(run.output)] if run.output else []
    result += [_preformatted(queries)] if queries else []
    fits = len(result) < _MAX_BLOCKS and count_characters(result) <= MAX_CHARACTERS
    return result if result and fits else None


def _feedback_buttons(turn_id: str) -> Block:
    """Make the feedback buttons."""
    element = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": {"text": plain(slack_words.GOOD_ANSWER), "value": f"up {turn_id}"},
        "negative_button": {"text": plain(slack_words.BAD_ANSWER), "value": f"down {turn_id}"},
    }
    return {"type": "context_actions", "elements": [element]}


def count_characters(blocks: Sequence[Block]) -> int:
    """Count the characters that Slack counts in blocks, or a few more."""
    return sum(_characters(block) for block in blocks)


def _characters(part: object) -> int:
    if isinstance(part, str):
        return len(part)
    if isinstance(part, dict):
        return sum(_characters(value) for name, value in part.items() if name != "type")
    return sum(map(_characters, part)) if isinstance(part, list) else 0


def fits_table(shown_table: values.Table) -> bool:
    """Return whether Slack shows a table as one."""
    cells = [shown_table.columns, *shown_table.rows]
    characters = sum(len(cell) for row in cells for cell in row)
    is_small = len(cells) <= _MAX_TABLE_ROWS and characters <= _MAX_TABLE_CHARACTERS
    return is_small and 0 < len(shown_table.columns) <= _MAX_TABLE_COLUMNS


def table(shown_table: values.Table) -> Block:
    """Make a table."""
    # A cell without text is refused.
    cells = [
        [{"type": "raw_text", "text": cell or " "} for cell in row]
        for row in (shown_table.columns, *shown_table.rows)
    ]
    return {"type": "table", "rows": cells}
