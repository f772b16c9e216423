"""Checks that Slack makes of messages and views, and a search for text that notifies people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.fakes.slack_server.worlds import RefusalError

MENTION = re.compile(r"<(?:!(?:channel|here|everyone|subteam\b)|@[UWB]?)|<#C")
_MESSAGE_BLOCKS = frozenset(
    {
        *("section", "context", "actions", "divider", "header", "image", "markdown", "table"),
        *("context_actions", "rich_text", "plan", "task_card", "file"),
    }
)
_VIEW_BLOCKS = frozenset({"section", "context", "actions", "divider", "header", "image", "input"})
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


def _require(condition: object, problem: str, error: str = "invalid_blocks") -> None:
    if not condition:
        raise RefusalError(error, response_metadata={"messages": [problem]})


def _check_text(text: Any, limit: int, *, plain: bool = False, name: str = "text") -> int:
    _require(isinstance(text, Mapping), f"{name} is no text object")
    _require(
        text.keys() <= {"type", "text", "emoji", "verbatim"}, f"fields of {name}: {text.keys()}"
    )
    kinds = {"plain_text"} if plain else _TEXT_TYPES
    _require(text.get("type") in kinds, f"{name} is of type {text.get('type')}")
    _require(isinstance(text.get("text"), str) and text["text"], f"{name} is empty")
    _require(len(text["text"]) <= limit, f"{name} is longer than {limit}")
    return len(text["text"])


def _check_element(element: Any, action_ids: set[str]) -> int:
    kind = element.get("type")
    _require(kind in _ELEMENTS, f"element {kind}")
    if kind in _TEXT_TYPES:
        return _check_text(element, 3000)
    if kind == "image":
        _require(element.get("alt_text"), "an image without alt_text")
        return 0
    action = element.get("action_id")
    _require(isinstance(action, str) and 0 < len(action) <= 255, f"action_id {action!r}")
    _require(action not in action_ids, f"action_id {action} twice")
    action_ids.add(action)
    size = 0
    if kind == "button":
        size = _check_text(element.get("text"), 75, plain=True, name="a button's text")
        _require(len(element.get("value", "")) <= 2000, "a button's value")
        _require(element.get("style", "primary") in ("primary", "danger"), "a button's style")
        if confirm := element.get("confirm"):
            _check_text(confirm.get("title"), 100, plain=True)
            _check_text(confirm.get("text"), 300)
            _check_text(confirm.get("confirm"), 30, plain=True)
            _check_text(confirm.get("deny"), 30, plain=True)
    if kind == "static_select":
        options = element.get("options", [])
        _require(0 < len(options) <= 100, "options of a select")
        for option in options:
            _check_text(option.get("text"), 75, plain=True, name="an option")
            _require(0 < len(option.get("value", "")) <= 150, "an option's value")
        if initial := element.get("initial_option"):
            _require(initial in options, "an initial option that is none")
    if kind == "plain_text_input":
        _require(len(element.get("initial_value", "")) <= 3000, "initial_value")
        _require(0 < element.get("max_length", 3000) <= 3000, "max_length")
    if kind == "feedback_buttons":
        for name in ("positive_button", "negative_button"):
            _check_text(element.get(name, {}).get("text"), 75, plain=True, name=name)
            _require(len(element[name].get("value", "")) in range(1, 2001), f"{name}'s value")
    return size


def _check_table(block: Mapping[str, Any]) -> int:
    rows = block.get("rows")
    _require(isinstance(rows, list) and 0 < len(rows) <= 100, "rows of a table")
    size = 0
    for row in rows:
        _require(0 < len(row) <= 20, "columns of a table")
        _require(len(row) == len(rows[0]), "a ragged table")
        for cell in row:
            _require(cell.get("type") == "raw_text", "a table's cell")
            _require(isinstance(cell.get("text"), str) and cell["text"], "an empty cell")
            size += len(cell["text"])
    _require(size <= 10_000, "a table over 10,000 characters", "invalid_blocks")
    _require(len(block.get("column_settings", [])) <= 20, "column_settings")
    return size


def _check_rich_text(block: Mapping[str, Any]) -> int:
    _require(
        block.keys() <= {"type", "block_id", "elements"}, f"fields of rich text: {block.keys()}"
    )
    size = 0
    for element in block.get("elements") or [{}]:
        kinds = ("rich_text_section", "rich_text_preformatted", "rich_text_quote", "rich_text_list")
        _require(element.get("type") in kinds, f"{element.get('type')} in rich text")
        for part in element.get("elements") or [{}]:
            _require(
                part.get("type") in ("text", "link", "emoji"), f"{part.get('type')} in rich text"
            )
            _require(part["type"] != "text" or part.get("text"), "an empty text in rich text")
            size += len(part.get("text", ""))
    return size


def _check_block(block: Any, allowed: frozenset[str], action_ids: set[str]) -> int:
    _require(isinstance(block, Mapping), "a block that is none")
    kind = block.get("type")
    _require(kind in allowed, f"block {kind} here")
    if kind == "section":
        _require(block.get("text") or block.get("fields"), "an empty section")
        size = _check_text(block["text"], 3000) if "text" in block else 0
        fields = block.get("fields", [])
        _require(len(fields) <= 10, "fields of a section")
        size += sum(_check_text(field, 2000) for field in fields)
        if accessory := block.get("accessory"):
            size += _check_element(accessory, action_ids)
        return size
    if kind == "header":
        return _check_text(block.get("text"), 150, plain=True)
    if kind in ("actions", "context", "context_actions"):
        limit = {"actions": 25, "context": 10, "context_actions": 5}[kind]
        elements = block.get("elements", [])
        _require(0 < len(elements) <= limit, f"elements of {kind}")
        allowed_elements = {"context": {"plain_text", "mrkdwn", "image"}}.get(kind)
        allowed_elements = allowed_elements or (
            {"feedback_buttons", "icon_button"} if kind == "context_actions" else None
        )
        for element in elements:
            element_kind = element.get("type")
            _require(
                allowed_elements is None or element_kind in allowed_elements,
                f"{element_kind} in {kind}",
            )
            _require(
                allowed_elements or element_kind not in _TEXT_TYPES, f"{element_kind} in {kind}"
            )
        return sum(_check_element(element, action_ids) for element in elements)
    if kind == "markdown":
        _require(isinstance(block.get("text"), str) and block["text"], "an empty markdown block")
        _require(block.keys() <= {"type", "text"}, f"fields of markdown: {block.keys()}")
        return len(block["text"])
    if kind == "table":
        return _check_table(block)
    if kind == "rich_text":
        return _check_rich_text(block)
    if kind == "image":
        _require(block.get("alt_text"), "an image without alt_text")
        _require("slack_file" in block or "image_url" in block, "an image of nothing")
        return 0
    if kind == "input":
        _check_text(block.get("label"), 2000, plain=True)
        known_fields = {"type", "block_id", "label", "hint", "element", "optional"}
        _require(block.keys() <= known_fields, f"fields of an input: {block.keys()}")
        if hint := block.get("hint"):
            _check_text(hint, 2000, plain=True)
        _require(block.get("block_id"), "an input without block_id")
        return _check_element(block.get("element", {}), action_ids)
    return 0


def parse_blocks(blocks: Any) -> list[dict[str, Any]]:
    """Return blocks that may have come as a JSON string."""
    if isinstance(blocks, str):
        try:
            blocks = json.loads(blocks)
        except ValueError as error:
            raise RefusalError("invalid_blocks_format") from error
    _require(isinstance(blocks, list), "blocks are no list", "invalid_blocks_format")
    return blocks


def check_message_blocks(blocks: Sequence[Any]) -> None:
    """Refuse blocks that a message must not have."""
    _require(len(blocks) <= 50, "more than 50 blocks")
    size = sum(_check_block(block, _MESSAGE_BLOCKS, set()) for block in blocks)
    markdown_size = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    if markdown_size > 12_000:
        raise RefusalError("msg_too_long")
    if size > 13_200:
        raise RefusalError("msg_blocks_too_long")
    tables = [block for block in blocks if block["type"] == "table"]
    _require(len(tables) <= 1, "only_one_table_allowed")


def check_view(view: Any) -> dict[str, Any]:
    """Refuse an invalid modal or home; returns the view, parsed."""
    view = json.loads(view) if isinstance(view, str) else view
    _require(isinstance(view, dict), "no view", "invalid_arguments")
    kind = view.get("type")
    _require(kind in ("modal", "home"), f"view of type {kind}", "invalid_arguments")
    blocks = parse_blocks(view.get("blocks"))
    _require(0 < len(blocks) <= 100, "blocks of a view", "invalid_arguments")
    for block in blocks:
        # An action_id is unique within its block.
        _check_block(block, _VIEW_BLOCKS, set())
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    _require(len(ids) == len(set(ids)), "a block_id twice", "invalid_arguments")
    _require(len(view.get("private_metadata", "")) <= 3000, "private_metadata", "invalid_arguments")
    if kind == "modal":
        _check_text(view.get("title"), 24, plain=True, name="title")
        for name in ("submit", "close"):
            if name in view:
                _check_text(view[name], 24, plain=True, name=name)
        has_input = any(block["type"] == "input" for block in blocks)
        _require(not has_input or "submit" in view, "inputs without submit", "invalid_arguments")
    _require(len(json.dumps(view)) <= 250_000, "a view over 250 kB", "invalid_arguments")
    return view


def check_chunks(chunks: Any) -> str:
    """Refuse chunks that a stream does not take; returns their text."""
    _require(isinstance(chunks, list), "chunks are no list", "invalid_chunks")
    text = ""
    for chunk in chunks:
        kind = chunk.get("type")
        if kind == "markdown_text":
            _require(isinstance(chunk.get("text"), str) and chunk["text"], "no text", "no_text")
            text += chunk["text"]
        elif kind == "task_update":
            known_fields = {"type", "id", "title", "status", "details", "output", "sources"}
            _require(chunk.keys() <= known_fields, f"fields {chunk.keys()}", "invalid_chunks")
            _require(
                chunk.get("id") and chunk.get("title"), "a task without a name", "invalid_chunks"
            )
            statuses = ("pending", "in_progress", "complete", "error")
            _require(chunk.get("status") in statuses, "a task's status", "invalid_chunks")
            for name in ("title", "details", "output"):
                is_short = len(chunk.get(name) or "") <= 256
                _require(is_short, f"{name} over 256 characters", "invalid_chunks")
        elif kind == "plan_update":
            _require(0 < len(chunk.get("title", "")) <= 256, "a plan's title", "invalid_chunks")
        elif kind == "blocks":
            check_message_blocks(chunk.get("blocks", []))
        else:
            _require(False, f"chunk {kind}", "invalid_chunks")
    return text


def find_texts(value: Any) -> Iterable[str]:
    """Find every string that Slack would parse for mentions."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        # Plain text and rich text are never parsed; ids and values are not shown.
        if value.get("type") in ("plain_text", "raw_text", "rich_text"):
            return
        for name, item in value.items():
            if name not in ("action_id", "value", "block_id", "url", "metadata"):
                yield from find_texts(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from find_texts(item)


def find_pings(*values: Any) -> list[str]:
    """Find texts that would notify people, or look like a link to a channel."""
    return [text for value in values for text in find_texts(value) if MENTION.search(text)]
