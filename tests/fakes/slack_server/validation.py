"""What Slack refuses of messages and views, and what in a text would reach people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fakes.slack_server.worlds import RefusalError

PING = re.compile(r"<(?:!(?:channel|here|everyone|subteam\b)|@[UWB]?)|<#C")
_IN_MESSAGES = frozenset(
    {
        *("section", "context", "actions", "divider", "header", "image", "markdown", "table"),
        *("context_actions", "rich_text", "plan", "task_card", "file"),
    }
)
_IN_VIEWS = frozenset({"section", "context", "actions", "divider", "header", "image", "input"})
_ELEMENTS = frozenset(
    {
        *("button", "static_select", "overflow", "plain_text_input", "image", "feedback_buttons"),
        *(
            "icon_button",
            "plain_text",
            "mrkdwn",
            "multi_users_select",
            "multi_conversations_select",
        ),
        *("number_input", "radio_buttons", "checkboxes", "users_select", "conversations_select"),
    }
)
_TEXT_TYPES = frozenset({"plain_text", "mrkdwn"})


def _need(condition: object, what: str, error: str = "invalid_blocks") -> None:
    if not condition:
        raise RefusalError(error, response_metadata={"messages": [what]})


def _text(text: Any, limit: int, *, plain: bool = False, what: str = "text") -> int:
    _need(isinstance(text, Mapping), f"{what} is no text object")
    _need(text.keys() <= {"type", "text", "emoji", "verbatim"}, f"fields of {what}: {text.keys()}")
    kinds = {"plain_text"} if plain else _TEXT_TYPES
    _need(text.get("type") in kinds, f"{what} is of type {text.get('type')}")
    _need(isinstance(text.get("text"), str) and text["text"], f"{what} is empty")
    _need(len(text["text"]) <= limit, f"{what} is longer than {limit}")
    return len(text["text"])


def _element(element: Any, action_ids: set[str]) -> int:
    kind = element.get("type")
    _need(kind in _ELEMENTS, f"element {kind}")
    if kind in _TEXT_TYPES:
        return _text(element, 3000)
    if kind == "image":
        _need(element.get("alt_text"), "an image without alt_text")
        return 0
    action = element.get("action_id")
    _need(isinstance(action, str) and 0 < len(action) <= 255, f"action_id {action!r}")
    _need(action not in action_ids, f"action_id {action} twice")
    action_ids.add(action)
    size = 0
    if kind == "button":
        size = _text(element.get("text"), 75, plain=True, what="a button's text")
        _need(len(element.get("value", "")) <= 2000, "a button's value")
        _need(element.get("style", "primary") in ("primary", "danger"), "a button's style")
        if confirm := element.get("confirm"):
            _text(confirm.get("title"), 100, plain=True)
            _text(confirm.get("text"), 300)
            _text(confirm.get("confirm"), 30, plain=True)
            _text(confirm.get("deny"), 30, plain=True)
    if kind == "static_select":
        options = element.get("options", [])
        _need(0 < len(options) <= 100, "options of a select")
        for option in options:
            _text(option.get("text"), 75, plain=True, what="an option")
            _need(0 < len(option.get("value", "")) <= 150, "an option's value")
        if initial := element.get("initial_option"):
            _need(initial in options, "an initial option that is none")
    if kind == "plain_text_input":
        _need(len(element.get("initial_value", "")) <= 3000, "initial_value")
        _need(0 < element.get("max_length", 3000) <= 3000, "max_length")
    if kind == "feedback_buttons":
        for name in ("positive_button", "negative_button"):
            _text(element.get(name, {}).get("text"), 75, plain=True, what=name)
            _need(len(element[name].get("value", "")) in range(1, 2001), f"{name}'s value")
    return size


def _table(block: Mapping[str, Any]) -> int:
    rows = block.get("rows")
    _need(isinstance(rows, list) and 0 < len(rows) <= 100, "rows of a table")
    size = 0
    for row in rows:
        _need(0 < len(row) <= 20, "columns of a table")
        _need(len(row) == len(rows[0]), "a ragged table")
        for cell in row:
            _need(cell.get("type") == "raw_text", "a table's cell")
            _need(isinstance(cell.get("text"), str) and cell["text"], "an empty cell")
            size += len(cell["text"])
    _need(size <= 10_000, "a table over 10,000 characters", "invalid_blocks")
    _need(len(block.get("column_settings", [])) <= 20, "column_settings")
    return size


def _rich_text(block: Mapping[str, Any]) -> int:
    _need(block.keys() <= {"type", "block_id", "elements"}, f"fields of rich text: {block.keys()}")
    size = 0
    for element in block.get("elements") or [{}]:
        kinds = ("rich_text_section", "rich_text_preformatted", "rich_text_quote", "rich_text_list")
        _need(element.get("type") in kinds, f"{element.get('type')} in rich text")
        for part in element.get("elements") or [{}]:
            _need(part.get("type") in ("text", "link", "emoji"), f"{part.get('type')} in rich text")
            _need(part["type"] != "text" or part.get("text"), "an empty text in rich text")
            size += len(part.get("text", ""))
    return size


def _block(block: Any, allowed: frozenset[str], action_ids: set[str]) -> int:
    _need(isinstance(block, Mapping), "a block that is none")
    kind = block.get("type")
    _need(kind in allowed, f"block {kind} here")
    if kind == "section":
        _need(block.get("text") or block.get("fields"), "an empty section")
        size = _text(block["text"], 3000) if "text" in block else 0
        fields = block.get("fields", [])
        _need(len(fields) <= 10, "fields of a section")
        size += sum(_text(field, 2000) for field in fields)
        if accessory := block.get("accessory"):
            size += _element(accessory, action_ids)
        return size
    if kind == "header":
        return _text(block.get("text"), 150, plain=True)
    if kind in ("actions", "context", "context_actions"):
        limit = {"actions": 25, "context": 10, "context_actions": 5}[kind]
        elements = block.get("elements", [])
        _need(0 < len(elements) <= limit, f"elements of {kind}")
        fit = {"context": {"plain_text", "mrkdwn", "image"}}.get(kind)
        fit = fit or ({"feedback_buttons", "icon_button"} if kind == "context_actions" else None)
        for element in elements:
            kind_of = element.get("type")
            _need(fit is None or kind_of in fit, f"{kind_of} in {kind}")
            _need(fit or kind_of not in _TEXT_TYPES, f"{kind_of} in {kind}")
        return sum(_element(element, action_ids) for element in elements)
    if kind == "markdown":
        _need(isinstance(block.get("text"), str) and block["text"], "an empty markdown block")
        _need(block.keys() <= {"type", "text"}, f"fields of markdown: {block.keys()}")
        return len(block["text"])
    if kind == "table":
        return _table(block)
    if kind == "rich_text":
        return _rich_text(block)
    if kind == "image":
        _need(block.get("alt_text"), "an image without alt_text")
        _need("slack_file" in block or "image_url" in block, "an image of nothing")
        return 0
    if kind == "input":
        _text(block.get("label"), 2000, plain=True)
        known = {"type", "block_id", "label", "hint", "element", "optional"}
        _need(block.keys() <= known, f"fields of an input: {block.keys()}")
        if hint := block.get("hint"):
            _text(hint, 2000, plain=True)
        _need(block.get("block_id"), "an input without block_id")
        return _element(block.get("element", {}), action_ids)
    return 0


def parsed(blocks: Any) -> list[dict[str, Any]]:
    """Read what may come as a JSON string."""
    if isinstance(blocks, str):
        try:
            blocks = json.loads(blocks)
        except ValueError as error:
            raise RefusalError("invalid_blocks_format") from error
    _need(isinstance(blocks, list), "blocks are no list", "invalid_blocks_format")
    return blocks


def message_blocks(blocks: Sequence[Any]) -> None:
    """Refuse what a message must not hold."""
    _need(len(blocks) <= 50, "more than 50 blocks")
    size = sum(_block(block, _IN_MESSAGES, set()) for block in blocks)
    written = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    if written > 12_000:
        raise RefusalError("msg_too_long")
    if size > 13_200:
        raise RefusalError("msg_blocks_too_long")
    tables = [block for block in blocks if block["type"] == "table"]
    _need(len(tables) <= 1, "only_one_table_allowed")


def view(view: Any) -> dict[str, Any]:
    """Refuse what a modal or a home must not be."""
    view = json.loads(view) if isinstance(view, str) else view
    _need(isinstance(view, dict), "no view", "invalid_arguments")
    kind = view.get("type")
    _need(kind in ("modal", "home"), f"view of type {kind}", "invalid_arguments")
    blocks = parsed(view.get("blocks"))
    _need(0 < len(blocks) <= 100, "blocks of a view", "invalid_arguments")
    for block in blocks:
        # An action_id is unique within its block.
        _block(block, _IN_VIEWS, set())
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    _need(len(ids) == len(set(ids)), "a block_id twice", "invalid_arguments")
    _need(len(view.get("private_metadata", "")) <= 3000, "private_metadata", "invalid_arguments")
    if kind == "modal":
        _text(view.get("title"), 24, plain=True, what="title")
        for name in ("submit", "close"):
            if name in view:
                _text(view[name], 24, plain=True, what=name)
        has_input = any(block["type"] == "input" for block in blocks)
        _need(not has_input or "submit" in view, "inputs without submit", "invalid_arguments")
    _need(len(json.dumps(view)) <= 250_000, "a view over 250 kB", "invalid_arguments")
    return view


def chunks(chunks: Any) -> str:
    """Refuse what a stream does not take; returns the text in it."""
    _need(isinstance(chunks, list), "chunks are no list", "invalid_chunks")
    text = ""
    for chunk in chunks:
        kind = chunk.get("type")
        if kind == "markdown_text":
            _need(isinstance(chunk.get("text"), str) and chunk["text"], "no text", "no_text")
            text += chunk["text"]
        elif kind == "task_update":
            known = {"type", "id", "title", "status", "details", "output", "sources"}
            _need(chunk.keys() <= known, f"fields {chunk.keys()}", "invalid_chunks")
            _need(chunk.get("id") and chunk.get("title"), "a task without a name", "invalid_chunks")
            statuses = ("pending", "in_progress", "complete", "error")
            _need(chunk.get("status") in statuses, "a task's status", "invalid_chunks")
            for name in ("title", "details", "output"):
                limit = len(chunk.get(name) or "") <= 256
                _need(limit, f"{name} over 256 characters", "invalid_chunks")
        elif kind == "plan_update":
            _need(0 < len(chunk.get("title", "")) <= 256, "a plan's title", "invalid_chunks")
        elif kind == "blocks":
            message_blocks(chunk.get("blocks", []))
        else:
            _need(False, f"chunk {kind}", "invalid_chunks")
    return text


def texts(thing: Any) -> Iterable[str]:
    """Find every string that Slack would parse for mentions."""
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, Mapping):
        # Plain text and rich text are never parsed; ids and values are not shown.
        if thing.get("type") in ("plain_text", "raw_text", "rich_text"):
            return
        for name, value in thing.items():
            if name not in ("action_id", "value", "block_id", "url", "metadata"):
                yield from texts(value)
    elif isinstance(thing, Sequence) and not isinstance(thing, bytes):
        for value in thing:
            yield from texts(value)


def pings(*things: Any) -> list[str]:
    """Find what would notify somebody, or pretend to be a link."""
    return [text for thing in things for text in texts(thing) if PING.search(text)]
