"""Content blocks of Anthropic's protocol: transcripts to blocks, and streamed blocks to replies."""

from __future__ import annotations

import base64
import json
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, Final

from interpreter_bot.agent import chat_messages, tools
from interpreter_bot.agent.llms import (
    chat_completions,
    model_reply_assembly,
    reasoning_replay,
    sdk_errors,
)

_EMPTY_TEXT: Final = "[nothing]"
# Ids and names from other servers may contain characters that Anthropic refuses.
_FORBIDDEN_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARACTERS: Final = 64


class StreamReader:
    """Reads the events of one stream. The SDK does not validate events, so every field is checked.

    Args:
        assembler: receives the contents of the events.
    """

    def __init__(self, assembler: model_reply_assembly.ModelReplyAssembler) -> None:
        self._assembler = assembler
        self._blocks: dict[object, dict[str, Any]] = {}
        self._token_counts: dict[str, object] = {}

    def receive(self, event: object) -> None:
        """Process one event."""
        block_index = getattr(event, "index", None)
        block_index = block_index if isinstance(block_index, int) else None
        match getattr(event, "type", None):
            case "message_start":
                self._record_usage(getattr(getattr(event, "message", None), "usage", None))
            case "content_block_start":
                self._start_block(block_index, getattr(event, "content_block", None))
            case "content_block_delta":
                self._continue_block(block_index, getattr(event, "delta", None))
            case "content_block_stop":
                self._end_block(block_index)
            case "message_delta":
                self._record_usage(getattr(event, "usage", None))
                reason = getattr(getattr(event, "delta", None), "stop_reason", None)
                self._assembler.finish = sdk_errors.read_finish(reason) or self._assembler.finish

    def _start_block(self, block_index: int | None, block: object) -> None:
        match _read_text(block, "type"):
            case "text":
                self._blocks[block_index] = {"message": 0}
                self._add_text(self._blocks[block_index], _read_text(block, "text"))
            case "tool_use":
                number = self._assembler.add_call(
                    block_index, call_id=_read_text(block, "id"), name=_read_text(block, "name")
                )
                self._blocks[block_index] = {"call": number, "arguments": False}
            case "thinking":
                fields = {
                    name: _read_text(block, name) for name in ("type", "thinking", "signature")
                }
                self._blocks[block_index] = {"reasoning": fields}
            case "redacted_thinking":
                fields = {name: _read_text(block, name) for name in ("type", "data")}
                self._blocks[block_index] = {"reasoning": fields}

    def _continue_block(self, block_index: int | None, delta: object) -> None:
        block = self._blocks.get(block_index, {})
        match _read_text(delta, "type"):
            case "text_delta" if "message" in block:
                self._add_text(block, _read_text(delta, "text"))
            case "input_json_delta" if "call" in block:
                block["arguments"] |= bool(piece := _read_text(delta, "partial_json"))
                self._assembler.add_call(block_index, arguments=piece)
            case "thinking_delta" | "signature_delta" as kind if "reasoning" in block:
                name = kind.removesuffix("_delta")
                piece = _read_text(delta, name)
                self._assembler.count_output(len(piece))
                block["reasoning"][name] = block["reasoning"].get(name, "") + piece

    def _end_block(self, block_index: int | None) -> None:
        block = self._blocks.pop(block_index, None)
        if block is None:
            return
        if block.pop("arguments", None) is False:
            self._assembler.set_arguments(block_index, "{}")
        self._assembler.reasoning.add_item(block)

    def _add_text(self, block: dict[str, Any], text: str) -> None:
        block["message"] += len(text)
        self._assembler.add_text(text)

    def _record_usage(self, usage: object) -> None:
        """Record token counts. They come at the start of a message, and completed at its end."""
        for name in (
            *("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
            "output_tokens",
        ):
            if (count := getattr(usage, name, None)) is not None:
                self._token_counts[name] = count
        cache_reads, cache_writes = (
            count
            if isinstance(count := self._token_counts.get(f"cache_{name}_input_tokens"), int)
            else 0
            for name in ("read", "creation")
        )
        input_tokens: object = self._token_counts.get("input_tokens")
        # `input_tokens` does not include cached ones.
        input_tokens = (
            input_tokens + cache_reads + cache_writes
            if isinstance(input_tokens, int)
            else input_tokens
        )
        details = types.SimpleNamespace(cached_tokens=cache_reads, cache_write_tokens=cache_writes)
        self._assembler.usage = sdk_errors.read_usage(
            input_tokens, self._token_counts.get("output_tokens"), details
        )


def _read_text(item: object, name: str) -> str:
    value = getattr(item, name, None)
    return value if isinstance(value, str) else ""


def convert_tool(tool: chat_messages.Tool) -> dict[str, Any]:
    """Convert a tool. Code is streamed while the model writes it; other arguments are not."""
    streaming = {"eager_input_streaming": True} if tool.name == tools.RUN_CODE else {}
    description = {"name": tool.name, "description": tool.description}
    return {**description, "input_schema": tool.parameters, **streaming}


def convert_transcript(
    transcript: Iterable[chat_messages.Message], origin: str
) -> list[dict[str, Any]]:
    """Convert a transcript to messages of alternating roles.

    A user message that follows tool results becomes part of their message.

    Args:
        transcript: the messages.
        origin: the identifier of the receiving model, see `reasoning_replay.make_origin`.
    """
    messages: list[dict[str, Any]] = []
    wire_ids: dict[str, str] = {}
    used_ids: set[str] = set()
    for message in transcript:
        role = "user"
        match message:
            case chat_messages.UserMessage():
                blocks = _convert_content(message.text, message.pictures)
            case chat_messages.ToolResult():
                result = {"type": "tool_result", "tool_use_id": wire_ids.get(message.call_id, "")}
                blocks = [{**result, "content": _convert_content(message.text, message.pictures)}]
            case chat_messages.AssistantMessage():
                role = "assistant"
                wire_ids = _assign_ids(message, used_ids)
                blocks = _convert_assistant_message(
                    message, list(reasoning_replay.read_ordered_parts(message, origin)), wire_ids
                )
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _assign_ids(message: chat_messages.AssistantMessage, used_ids: set[str]) -> dict[str, str]:
    """Make the ids of calls unique, because some servers use the same ids in each step."""
    ids = {}
    for call in message.calls:
        call_id = _replace_forbidden(call.id)
        ids[call.id] = (
            f"{call_id[:_MAX_NAME_CHARACTERS]}_{len(used_ids)}" if call_id in used_ids else call_id
        )
        used_ids.add(ids[call.id])
    return ids


def _replace_forbidden(name: str) -> str:
    return _FORBIDDEN_CHARACTER.sub("_", name) or "_"


def _convert_assistant_message(
    message: chat_messages.AssistantMessage,
    ordered_parts: list[Mapping[str, Any]],
    ids: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Convert a model's message, with its parts in the original order if that is known."""
    calls = dict(enumerate(message.calls))
    text = message.text
    blocks: list[dict[str, Any]] = []
    for part in [*ordered_parts, {"message": len(text)}, *({"call": number} for number in calls)]:
        if "reasoning" in part:
            blocks.append(part["reasoning"])
        elif "message" in part:
            blocks += _convert_text(text[: part["message"]])
            text = text[part["message"] :]
        elif call := calls.pop(part["call"], None):
            blocks.append(_convert_call(call, ids[call.id]))
    return blocks or _convert_text(_EMPTY_TEXT)


def _convert_call(call: chat_messages.Call, call_id: str) -> dict[str, Any]:
    # JSON has no NaN and no Infinity, so they are sent as text.
    arguments = json.loads(chat_completions.make_sendable(call.arguments), parse_constant=str)
    name = _replace_forbidden(call.name)[:_MAX_NAME_CHARACTERS]
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _convert_text(text: str) -> list[dict[str, Any]]:
    """Convert text to a list of one block; empty for blank text, which the server refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _convert_content(
    text: str, pictures: tuple[chat_messages.Picture, ...]
) -> list[dict[str, Any]]:
    blocks = _convert_text(text)
    for picture in pictures:
        blocks += [
            {"type": "text", "text": text} for text in chat_completions.make_captions(picture)
        ]
        data = base64.b64encode(picture.data).decode("ascii")
        source = {"type": "base64", "media_type": picture.mime, "data": data}
        blocks.append({"type": "image", "source": source})
    return blocks or _convert_text(_EMPTY_TEXT)
