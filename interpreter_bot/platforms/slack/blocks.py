"""Block Kit blocks of messages. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot import values
from interpreter_bot.platforms.chat import transport
from interpreter_bot.platforms.rendering import message_splitting, past_code
from interpreter_bot.platforms.slack import markdown
from interpreter_bot.text import fences, quantities, safe_text
from interpreter_bot.wording import slack_words

Block: TypeAlias = dict[str, Any]

FEEDBACK: Final = "feedback"
CSV: Final = "csv_"
"""Beginning of the actions that send all of a table, whose number follows."""
CONFIRM, DISMISS = "command_confirm", "command_dismiss"
_SEPARATOR: Final = "/"
_STYLES: Final = {"primary": "primary", "success": "primary", "danger": "danger"}

_TABLE_ROWS: Final = 100
_TABLE_COLUMNS: Final = 20
_TABLE_CHARACTERS: Final = 9_000
MAX_CHARACTERS: Final = 12_500
"""The most characters of all blocks of a message; Slack refuses a little above 13,000."""
_MAX_BLOCKS: Final = 50
_MAX_WRITTEN_BLOCKS: Final = 20
_SECTION_CHARACTERS: Final = 3_000
_PLAIN_BLOCKS: Final = frozenset({"actions", "context", "context_actions", "section"})
_ALT_CHARACTERS: Final = 1_000
_NOTE_CHARACTERS: Final = 2_000
_CODE_CHARACTERS: Final = 12_000
_MAX_CODE_MESSAGES: Final = 4


def plain(text: str, limit: int = 75) -> Block:
    """Make a text object without markup."""
    return {"type": "plain_text", "text": quantities.one_line(text, limit) or "-", "emoji": True}


def written(text: str) -> list[Block]:
    """Make blocks of any Markdown, of at most 12,000 characters, that notify nobody.

    Code that holds a mention becomes rich text, which Slack does not parse; past 20 blocks its
    mentions are broken instead.
    """
    made: list[Block] = []
    rest: list[str] = []
    for part in markdown.parts(text):
        has_room = len(made) < _MAX_WRITTEN_BLOCKS
        if isinstance(part, markdown.Code):
            if has_room:
                made.append(_preformatted(part.text.rstrip("\n")))
            else:
                rest.append(fences.fenced(markdown.defused(part.text)))
        elif isinstance(part, markdown.Line):
            if has_room:
                made.append(_line(part))
            else:
                rest.append(markdown.defused("".join(text for text, _ in part.texts)))
        elif part.strip():
            if has_room:
                made.append({"type": "markdown", "text": part})
            else:
                rest.append(part.strip("\n"))
    return [*made, {"type": "markdown", "text": "\n".join(rest)}] if rest else made


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


def plainer(made: Sequence[Block]) -> list[Block]:
    """Rewrite blocks that Slack refused in the plainest kinds; buttons and small print stay."""
    result: list[Block] = []
    for is_plain, group in itertools.groupby(made, lambda block: block["type"] in _PLAIN_BLOCKS):
        if is_plain:
            result += group
            continue
        pieces = message_splitting.split(words(list(group)), _SECTION_CHARACTERS)
        result += [{"type": "section", "text": {"type": "plain_text", "text": p}} for p in pieces]
    return result


def words(made: Sequence[Block]) -> str:
    """Return what can be read in blocks as plain text, without buttons."""
    return "\n".join(filter(None, (_words(block).strip("\n") for block in made)))


def _words(part: Block) -> str:
    match part.get("type"):
        case "markdown" | "text" | "mrkdwn" | "plain_text" | "raw_text":
            return str(part["text"])
        case "section":
            return _words(part["text"])
        case "image":
            return str(part["alt_text"])
        case "link":
            return f"{part['text']} {part['url']}"
        case "table":
            return "\n".join(" | ".join(map(_words, row)) for row in part["rows"])
        case "rich_text_section":
            return "".join(map(_words, part["elements"]))
        case "context" | "rich_text" | "rich_text_preformatted":
            return "\n".join(map(_words, part["elements"]))
        case _:
            return ""


def section(text: str) -> Block:
    """Make a block of mrkdwn."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:_SECTION_CHARACTERS]}}


def note(text: str) -> Block:
    """Make a line of small print, from any text."""
    shown = markdown.escaped(quantities.one_line(text, _NOTE_CHARACTERS))
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": shown}]}


def picture(file: str, name: str, about: str) -> Block:
    """Make a picture of a file that is in Slack already."""
    title, alt = plain(name), about[:_ALT_CHARACTERS]
    return {"type": "image", "slack_file": {"id": file}, "title": title, "alt_text": alt}


def packed(made: Sequence[Block], *, max_blocks: int = _MAX_BLOCKS) -> list[list[Block]]:
    """Split blocks into messages, each as full as Slack permits."""
    messages: list[list[Block]] = [[]]
    for block in made:
        current = messages[-1]
        is_full = len(current) == max_blocks or size([*current, block]) > MAX_CHARACTERS
        if current and is_full:
            messages.append(current := [])
        current.append(block)
    return messages


def button(text: str, action: str, value: str, *, style: str = "") -> Block:
    """Make a button."""
    made = {"type": "button", "text": plain(text), "action_id": action, "value": value}
    return made | ({"style": _STYLES[style]} if style in _STYLES else {})


def actions(*buttons: Block) -> Block:
    """Make a row of buttons."""
    return {"type": "actions", "elements": list(buttons)}


def command_value(key: values.SessionKey, person: str, *command: str) -> str:
    """Encode for a button a command that a person asked for in a session."""
    return json.dumps([[key.workspace, key.channel, key.thread], person, command])


def command_of(text: str) -> tuple[values.SessionKey, str, tuple[str, str]]:
    """Decode the session, the person and the command of a button.

    Raises:
        ValueError: it is none.
    """
    place, person, (name, argument) = json.loads(text)
    return values.SessionKey("slack", *place), person, (name, argument)


def rows(buttons: Sequence[transport.Button], session: values.SessionKey) -> list[Block]:
    """Make the rows of buttons below a message of a session."""
    shown = [
        button(one.label, _action_id(one), button_value(session, one.id), style=one.style)
        for one in buttons
        if one.action != FEEDBACK
    ]
    row = [actions(*shown)] if shown else []
    return row + [feedback(one.id) for one in buttons if one.action == FEEDBACK]


def _action_id(one: transport.Button) -> str:
    # Each element of a row needs an action id of its own.
    return f"{CSV}{one.id}" if one.action == "csv" else one.action


def button_value(session: values.SessionKey, about: str) -> str:
    """Encode for a button what it is about, and the session of that."""
    return _SEPARATOR.join((session.workspace, session.channel, session.thread, about))


def value_of(text: str) -> tuple[values.SessionKey | None, str]:
    """Decode the session of a button, and what it is about."""
    *session, about = text.split(_SEPARATOR, 3)
    return (values.SessionKey("slack", *session) if len(session) == 3 else None), about


def linked(url: str, text: str) -> Block:
    """Make a line that is a link, of any length."""
    return _rich_text([{"type": "link", "url": url, "text": text}])


def code_messages(runs: Sequence[past_code.RunCode], queries: str) -> list[list[Block]] | None:
    """Make the fewest messages that show code exactly as it is, and what it printed; None if it can
    be shown exactly only as files.

    Each has room for a line above the code.
    """
    made: list[Block] = []
    for run in runs:
        lines = run.code.split("\n")
        is_exact = safe_text.revealed(run.code).text == run.code
        if not is_exact or max(map(len, lines)) > _CODE_CHARACTERS:
            return None
        made += [note(run.words)] if run.words else []
        made += [_preformatted(part) for part in _joined_lines(lines) if part]
        if run.output:
            output = _joined_lines(run.output.split("\n"))
            made += [note(past_code.OUTPUT), *map(_preformatted, output)]
    made += [_preformatted(part) for part in _joined_lines(queries.split("\n")) if part]
    messages = packed(made, max_blocks=_MAX_BLOCKS - 1)
    return messages if made and len(messages) <= _MAX_CODE_MESSAGES else None


def _joined_lines(lines: Sequence[str]) -> Iterator[str]:
    """Join lines to texts that each fit into a message."""
    part = lines[0]
    for line in lines[1:]:
        if len(part) + 1 + len(line) > _CODE_CHARACTERS:
            yield part
            part = line
        else:
            part += f"\n{line}"
    yield part


def feedback(key: str) -> Block:
    """Make the feedback buttons."""
    element = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": {"text": plain(slack_words.GOOD_ANSWER), "value": f"up {key}"},
        "negative_button": {"text": plain(slack_words.BAD_ANSWER), "value": f"down {key}"},
    }
    return {"type": "context_actions", "elements": [element]}


def size(made: Sequence[Block]) -> int:
    """Count the characters that Slack counts in blocks, or a few more."""
    return sum(_characters(block) for block in made)


def _characters(part: object) -> int:
    if isinstance(part, str):
        return len(part)
    if isinstance(part, dict):
        return sum(_characters(value) for name, value in part.items() if name != "type")
    return sum(map(_characters, part)) if isinstance(part, list) else 0


def fits_table(shown: values.Table) -> bool:
    """Return whether Slack shows a table as one."""
    cells = [shown.columns, *shown.rows]
    characters = sum(len(cell) for row in cells for cell in row)
    is_small = len(cells) <= _TABLE_ROWS and characters <= _TABLE_CHARACTERS
    return is_small and 0 < len(shown.columns) <= _TABLE_COLUMNS


def table(shown: values.Table) -> Block:
    """Make a table."""
    # A cell without text is refused.
    cells = [
        [{"type": "raw_text", "text": cell or " "} for cell in row]
        for row in (shown.columns, *shown.rows)
    ]
    return {"type": "table", "rows": cells}
