"""A scripted language model behind Anthropic's Messages API, as strict as the real one.

It takes the same scripts as `openai_server.Server`, from which it inherits the rest.

    async with anthropic_server.Server(script, reasoning=anthropic_server.Claude()) as server: …
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from tests.fakes import openai_server, reasoning_models

_PARAMETERS = frozenset(
    {
        *("model", "messages", "max_tokens", "system", "stream", "tools", "tool_choice"),
        # No `temperature`: since version 2026-10-21 it is refused.
        "thinking",
    }
)
_THINKING_VALUES = (
    {"type": "adaptive", "display": "omitted"},
    {"type": "adaptive"},
    {"type": "disabled"},
    None,
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_ID = re.compile(r"[A-Za-z0-9_-]+\Z")
_THOUGHT_TYPES = ("thinking", "redacted_thinking")
_STOP_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_MAX_BREAKPOINTS = 4
_MAX_BYTES = 32 * 1024 * 1024
_MAX_PICTURE_BYTES = 5 * 1024 * 1024
_MAX_SIDE_PIXELS, _MAX_SIDE_PIXELS_OF_MANY, _MAX_LARGE_PICTURES = 8000, 2000, 20
_MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class Claude(reasoning_models.ReasoningModel):
    """Thinks before each part of a reply; a request has all thoughts unchanged, or none."""

    def __init__(self) -> None:
        super().__init__()
        self._thoughts: dict[str, list[object]] = {}
        self._replies: dict[str, list[object]] = {}

    def thought(self, model: str, number: int, index: int) -> dict[str, Any]:
        """Return the block of thought before the `index`th part of the `number`th reply."""
        name = f"{model}/{number}/{index}"
        if index % 2:
            return {"type": "redacted_thinking", "data": f"Sealed+{name}=="}
        return {"type": "thinking", "thinking": "", "signature": f"Signed+{name}=="}

    def record_blocks(self, model: str, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Remember the blocks of a reply, in order."""
        marks = list(map(self._mark, blocks))
        thoughts = self._thoughts.setdefault(model, [])
        thoughts += [mark for mark, block in zip(marks, blocks, strict=True) if _is_thought(block)]
        for block in blocks:
            if block["type"] == "tool_use":
                self._replies[f"{model} {block['id']}"] = marks

    @staticmethod
    def _mark(block: Mapping[str, Any]) -> object:
        return block.get("id") or block.get("text") or dict(block)

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        for position, message in enumerate(body["messages"]):
            blocks = message["content"]
            thoughts = [self._mark(block) for block in blocks if _is_thought(block)]
            known_thoughts = self._thoughts.get(body["model"], [])
            if thoughts and (
                self.is_forgetful or any(block not in known_thoughts for block in thoughts)
            ):
                text = f"messages.{position}.content.0: Invalid `signature` in `thinking` block"
                return _error(400, text)
            for call in (block for block in blocks if thoughts and block["type"] == "tool_use"):
                expected = self._replies[f"{body['model']} {call['id']}"]
                if list(map(self._mark, blocks)) != expected:
                    return _error(
                        400,
                        f"messages.{position}.content.1: `thinking` or `redacted_thinking` "
                        "blocks in the latest assistant message cannot be modified. These blocks "
                        "must remain as they were in the original response.",
                    )
        return None


def _is_thought(block: Mapping[str, Any]) -> bool:
    return block["type"] in _THOUGHT_TYPES


class Server(openai_server.Server):
    """The server.

    Args:
        script: the script of `openai_server.Server`; other arguments are also passed to that.
        refused_names: names of parameters or fields, each with the message of the refusal.
        model_list: the models that `/v1/models` lists.
    """

    def __init__(
        self,
        script: Any,
        *,
        refused_names: Mapping[str, str] | None = None,
        model_list: Sequence[Mapping[str, Any]] = (),
        **others: Any,
    ) -> None:
        super().__init__(script, **others)
        self._refused_names = refused_names or {}
        self._model_list = model_list

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/v1/models", self._list_models)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        version = request.headers.get("anthropic-version")
        if version != "2026-10-21" or request.content_type != "application/json":
            self.faults.append(f"version {version} of {request.content_type}")
        return await self._answer(request, _Wire, _faults)

    async def _list_models(self, request: web.Request) -> web.Response:
        if not self.is_authorized(request):
            return web.json_response(_error(401, "invalid x-api-key")[1], status=401)
        return web.json_response({"data": list(self._model_list), "has_more": False})

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, Any] | None:
        for model in self._model_list:
            if model["id"] == body["model"] and body["max_tokens"] > model.get("max_tokens", 10**9):
                return _error(400, f"max_tokens: {body['max_tokens']} is more than it can write")
        for name, words in self._refused_names.items():
            if f'"{name}":' in json.dumps(body):
                return _error(400, words)
        return super()._refusal(body)

    async def _fail(self, request: web.Request, response: Any, fault: str) -> None:
        if fault == "garbage":
            await response.write(b"event: content_block_delta\ndata: {not json\n\n")
        elif fault == "shapes":
            for shape in (5, "words", [], None, {"delta": 5}, {"index": "x"}, {"type": []}):
                for kind in ("content_block_start", "content_block_delta", "message_delta"):
                    data = {"type": kind, **shape} if isinstance(shape, dict) else shape
                    await response.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
        elif fault == "error":
            error = {"type": "overloaded_error", "message": "Overloaded"}
            data = json.dumps({"type": "error", "error": error})
            await response.write(f"event: error\ndata: {data}\n\n".encode())
        elif fault == "cut":
            assert request.transport
            await asyncio.sleep(0.02)
            request.transport.abort()
        else:
            await super()._fail(request, response, fault)


def _error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    kind = {401: "authentication_error"}.get(status, "invalid_request_error")
    return status, {"type": "error", "error": {"type": kind, "message": message}}


class _Wire:
    terminator = b""

    def __init__(
        self, request: openai_server.Request, reasoning: reasoning_models.ReasoningModel
    ) -> None:
        self._reasoning = reasoning
        self._model = request.body["model"]
        self._thinks = request.body.get("thinking", {}).get("type") == "adaptive"
        self._number = len(request.messages)
        self._blocks: list[dict[str, Any]] = []

    def body(self, reply: openai_server.Reply) -> Iterator[dict[str, Any]]:
        usage = {"input_tokens": 0, "output_tokens": 1, "cache_read_input_tokens": 0}
        if reply.usage:
            usage |= {"input_tokens": reply.usage[0], **reply.usage_fields}
        started = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        yield {"type": "message_start", "message": {**started, "usage": usage}}
        yield {"type": "ping"}
        words = [*reply.text, *reply.refusal]
        if words:
            yield from self._thought_events(0)
            deltas = [{"type": "text_delta", "text": delta} for delta in words]
            yield from self._block_events({"type": "text", "text": ""}, deltas, text="".join(words))
        for index, (name, arguments) in enumerate(reply.calls, start=1):
            yield from self._thought_events(index)
            key = f"toolu_{self._number}_{index}" if reply.call_id is None else reply.call_id
            deltas = [
                {"type": "input_json_delta", "partial_json": arguments[i : i + 7]}
                for i in range(0, len(arguments), 7)
                if arguments != "{}"
            ]
            block = {"type": "tool_use", "id": key, "name": name, "input": {}}
            yield from self._block_events(block, deltas)
        if isinstance(self._reasoning, Claude):
            self._reasoning.record_blocks(self._model, self._blocks)

    def _thought_events(self, index: int) -> Iterable[dict[str, Any]]:
        if self._thinks and isinstance(self._reasoning, Claude):
            block = self._reasoning.thought(self._model, self._number, index)
            if block["type"] == "redacted_thinking":
                yield from self._block_events(block, ())
                return
            # The signature comes in one piece, at the end.
            signed = {"type": "signature_delta", "signature": block["signature"]}
            yield from self._block_events({**block, "signature": ""}, [signed], **block)

    def _block_events(
        self, block: dict[str, Any], deltas: Iterable[dict[str, Any]], **final_fields: Any
    ) -> Iterator[dict[str, Any]]:
        position = {"index": len(self._blocks)}
        self._blocks.append({**block, **final_fields})
        yield {"type": "content_block_start", "content_block": block, **position}
        for delta in deltas:
            yield {"type": "content_block_delta", "delta": delta, **position}
        yield {"type": "content_block_stop", **position}

    def end(self, reply: openai_server.Reply) -> Iterator[dict[str, Any]]:
        if reply.finish is None:
            return
        reason = "refusal" if reply.refusal else _STOP_REASONS.get(reply.finish, reply.finish)
        reason = "end_turn" if reason == "stop" else reason
        usage = {"output_tokens": reply.usage[1] if reply.usage else 0}
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}


def _faults(body: Mapping[str, Any], reasoning: reasoning_models.ReasoningModel) -> Iterator[str]:
    """Describe each mistake of a request that the real server would refuse, or should never get."""
    yield from (f"unknown parameter {name}" for name in body.keys() - _PARAMETERS)
    if body.get("stream") is not True:
        yield "only streams are scripted"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield f"max_tokens {body.get('max_tokens')}"
    if body.get("thinking") not in _THINKING_VALUES:
        yield f"thinking {body.get('thinking')}"
    yield from _tool_faults(body)
    yield from _block_faults(body.get("system") or [], ("text",), "system")
    text = json.dumps(body)
    if text.count('"cache_control"') > _MAX_BREAKPOINTS:
        yield f"{text.count('cache_control')} breakpoints"
    if len(text) > _MAX_BYTES:
        yield f"a request of {len(text)} bytes"
    yield from _message_faults(body.get("messages") or [], bool(body.get("tools")))
    yield from _picture_faults(list(_pictures(body.get("messages"))))


def _tool_faults(body: Mapping[str, Any]) -> Iterator[str]:
    for tool in body.get("tools", ()):
        if tool.keys() - {"name", "description", "input_schema", "eager_input_streaming"}:
            yield f"a tool with {sorted(tool)}"
        if not _NAME.match(tool["name"]) or tool["input_schema"].get("type") != "object":
            yield f"the tool {tool['name']!r}"
    choice = body.get("tool_choice", {"type": "none"})
    if choice not in ({"type": "auto"}, {"type": "none"}):
        yield f"tool_choice {choice}"
    if "tool_choice" in body and not body.get("tools"):
        yield "tool_choice without tools"


def _message_faults(messages: Sequence[Mapping[str, Any]], has_tools: bool) -> Iterator[str]:
    roles = [item.get("role") for item in messages]
    if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
        yield f"roles {roles}"
    call_ids: list[str] = []
    known_ids: set[str] = set()
    for position, message in enumerate(messages):
        blocks = message.get("content") or []
        name = f"messages.{position}"
        if not isinstance(blocks, list) or not blocks:
            yield f"{name}: no blocks"
            return
        answered_ids = [item["tool_use_id"] for item in blocks if item["type"] == "tool_result"]
        leading_types = [item["type"] for item in blocks[: len(answered_ids)]]
        has_results_first = leading_types == ["tool_result"] * len(answered_ids)
        if sorted(answered_ids) != sorted(call_ids) or not has_results_first:
            answers = f"{answered_ids}, {leading_types}"
            yield f"{name}: `tool_use` ids {call_ids} were followed by {answers}"
        is_user = message["role"] == "user"
        kinds = (
            ("text", "image", "tool_result") if is_user else ("text", "tool_use", *_THOUGHT_TYPES)
        )
        yield from _block_faults(blocks, kinds, name)
        call_ids = [item["id"] for item in blocks if item["type"] == "tool_use"]
        if known_ids & {*call_ids} or len({*call_ids}) < len(call_ids):
            yield f"{name}: `tool_use` ids must be unique"
        known_ids |= {*call_ids}
        if call_ids and not has_tools:
            yield f"{name}: calls without tools"
        if not is_user and blocks[-1]["type"] in _THOUGHT_TYPES:
            yield f"{name}: the last block is a thought"


def _block_faults(
    blocks: Sequence[Mapping[str, Any]], kinds: Sequence[str], name: str
) -> Iterator[str]:
    for block in blocks:
        fields = set(block) - {"type", "cache_control"}
        if block.get("cache_control", {"type": "ephemeral"}) != {"type": "ephemeral"}:
            yield f"{name}: cache_control {block['cache_control']}"
        match block.get("type"):
            case kind if kind not in kinds:
                yield f"{name}: a block of type {kind}"
            case "text" if fields != {"text"} or not block["text"].strip():
                yield f"{name}: text content blocks must contain non-whitespace text: {block}"
            case "tool_use":
                is_named = _ID.match(block["id"]) and _NAME.match(block["name"])
                if not is_named or not isinstance(block["input"], dict):
                    yield f"{name}: a call that is {block}"
            case "tool_result":
                yield from _block_faults(block["content"], ("text", "image"), name)
            case "thinking" if fields != {"thinking", "signature"} or "cache_control" in block:
                yield f"{name}: a thought with {sorted(block)}"
            case "redacted_thinking" if fields != {"data"} or "cache_control" in block:
                yield f"{name}: a thought with {sorted(block)}"


def _pictures(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _pictures(item)
    elif isinstance(value, dict):
        if value.get("type") == "image":
            yield value["source"]
        else:
            yield from _pictures(list(value.values()))


def _picture_faults(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    limit = _MAX_SIDE_PIXELS if len(sources) <= _MAX_LARGE_PICTURES else _MAX_SIDE_PIXELS_OF_MANY
    for source in sources:
        try:
            data = base64.b64decode(source["data"], validate=True)
        except binascii.Error:
            data = b""
        magic = _MAGIC.get(source.get("media_type", ""))
        if source.get("type") != "base64" or magic is None or not data.startswith(magic):
            yield f"an image that is none: {source.get('media_type')}, {data[:8]!r}"
        elif len(source["data"]) > _MAX_PICTURE_BYTES:
            yield f"an image of {len(source['data'])} bytes"
        elif magic == _MAGIC["image/png"] and max(struct.unpack(">II", data[16:24])) > limit:
            yield "an image of too many pixels"
