"""A scripted language model behind Anthropic's Messages API, as strict as the real one.

It takes the scripts of `openai_server`, whose server it is otherwise.

    async with anthropic_server.Server(script, mind=anthropic_server.Claude()) as server: …
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

from tests.fakes import openai_minds, openai_server

_KNOWN = frozenset(
    {
        *("model", "messages", "max_tokens", "system", "stream", "tools", "tool_choice"),
        # No `temperature`: since version 2026-10-21, any is refused.
        "thinking",
    }
)
_THINKING = (
    {"type": "adaptive", "display": "omitted"},
    {"type": "adaptive"},
    {"type": "disabled"},
    None,
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_ID = re.compile(r"[A-Za-z0-9_-]+\Z")
_THOUGHTS = ("thinking", "redacted_thinking")
_STOPS = {"tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_MAX_BREAKPOINTS = 4
_MAX_BYTES = 32 * 1024 * 1024
_MAX_PICTURE_BYTES = 5 * 1024 * 1024
_MAX_SIDE, _MAX_SIDE_OF_MANY, _MANY = 8000, 2000, 20
_MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class Claude(openai_minds.Mind):
    """Thinks before each part of a reply, and wants its thoughts back as they were, or none."""

    def __init__(self) -> None:
        super().__init__()
        self._thoughts: dict[str, list[object]] = {}
        self._replies: dict[str, list[object]] = {}

    def thought(self, model: str, number: int, index: int) -> dict[str, Any]:
        """Give the block that comes before a part of the `number`th reply."""
        name = f"{model}/{number}/{index}"
        if index % 2:
            return {"type": "redacted_thinking", "data": f"Sealed+{name}=="}
        return {"type": "thinking", "thinking": "", "signature": f"Signed+{name}=="}

    def heard(self, model: str, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Hear of the blocks of a reply, in order."""
        marks = list(map(self._mark, blocks))
        thoughts = self._thoughts.setdefault(model, [])
        thoughts += [mark for mark, one in zip(marks, blocks, strict=True) if _is_thought(one)]
        for one in blocks:
            if one["type"] == "tool_use":
                self._replies[f"{model} {one['id']}"] = marks

    @staticmethod
    def _mark(block: Mapping[str, Any]) -> object:
        return block.get("id") or block.get("text") or dict(block)

    def refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        for place, message in enumerate(body["messages"]):
            blocks = message["content"]
            given = [self._mark(one) for one in blocks if _is_thought(one)]
            own = self._thoughts.get(body["model"], [])
            if given and (self.is_forgetful or any(one not in own for one in given)):
                words = f"messages.{place}.content.0: Invalid `signature` in `thinking` block"
                return _error(400, words)
            for call in (one for one in blocks if given and one["type"] == "tool_use"):
                wanted = self._replies[f"{body['model']} {call['id']}"]
                if list(map(self._mark, blocks)) != wanted:
                    return _error(
                        400,
                        f"messages.{place}.content.1: `thinking` or `redacted_thinking` blocks in "
                        "the latest assistant message cannot be modified. These blocks must remain "
                        "as they were in the original response.",
                    )
        return None


def _is_thought(block: Mapping[str, Any]) -> bool:
    return block["type"] in _THOUGHTS


class Server(openai_server.Server):
    """The server.

    Args:
        script: see `openai_server.Server`, as for all but the following.
        refusing: names of parameters or fields, and the words by which it refuses them.
        listed: what `/v1/models` lists.
    """

    def __init__(
        self,
        script: Any,
        *,
        refusing: Mapping[str, str] | None = None,
        listed: Sequence[Mapping[str, Any]] = (),
        **others: Any,
    ) -> None:
        super().__init__(script, **others)
        self._refusing = refusing or {}
        self._listed = listed

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/v1/models", self._models_listed)
        app.router.add_get("/v1/models/{name}", self._model)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        version = request.headers.get("anthropic-version")
        if version != "2026-10-21" or request.content_type != "application/json":
            self.faults.append(f"version {version} of {request.content_type}")
        return await self._answer(request, _Wire, _faults)

    async def _models_listed(self, request: web.Request) -> web.Response:
        if not self.is_authorized(request):
            return web.json_response(_error(401, "invalid x-api-key")[1], status=401)
        return web.json_response({"data": list(self._listed), "has_more": False})

    async def _model(self, request: web.Request) -> web.Response:
        listed = [one for one in self._listed if one["id"] == request.match_info["name"]]
        return web.json_response(listed[0] if listed else {}, status=200 if listed else 404)

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, Any] | None:
        for one in self._listed:
            if one["id"] == body["model"] and body["max_tokens"] > one.get("max_tokens", 10**9):
                return _error(400, f"max_tokens: {body['max_tokens']} is more than it can write")
        for name, words in self._refusing.items():
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
    last = b""

    def __init__(self, request: openai_server.Request, mind: openai_minds.Mind) -> None:
        self._mind = mind
        self._model = request.body["model"]
        self._thinks = request.body.get("thinking", {}).get("type") == "adaptive"
        self._number = len(request.messages)
        self._blocks: list[dict[str, Any]] = []

    def body(self, reply: openai_server.Reply) -> Iterator[dict[str, Any]]:
        usage = {"input_tokens": 0, "output_tokens": 1, "cache_read_input_tokens": 0}
        if reply.usage:
            usage |= {"input_tokens": reply.usage[0], **reply.counted}
        started = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        yield {"type": "message_start", "message": {**started, "usage": usage}}
        yield {"type": "ping"}
        words = [*reply.text, *reply.refusal]
        if words:
            yield from self._thought(0)
            deltas = [{"type": "text_delta", "text": one} for one in words]
            yield from self._block({"type": "text", "text": ""}, deltas, text="".join(words))
        for index, (name, arguments) in enumerate(reply.calls, start=1):
            yield from self._thought(index)
            key = f"toolu_{self._number}_{index}" if reply.call_id is None else reply.call_id
            deltas = [
                {"type": "input_json_delta", "partial_json": arguments[i : i + 7]}
                for i in range(0, len(arguments), 7)
                if arguments != "{}"
            ]
            block = {"type": "tool_use", "id": key, "name": name, "input": {}}
            yield from self._block(block, deltas)
        if isinstance(self._mind, Claude):
            self._mind.heard(self._model, self._blocks)

    def _thought(self, index: int) -> Iterable[dict[str, Any]]:
        if self._thinks and isinstance(self._mind, Claude):
            block = self._mind.thought(self._model, self._number, index)
            if block["type"] == "redacted_thinking":
                yield from self._block(block, ())
                return
            # The signature comes in one piece, at the end.
            signed = {"type": "signature_delta", "signature": block["signature"]}
            yield from self._block({**block, "signature": ""}, [signed], **block)

    def _block(
        self, block: dict[str, Any], deltas: Iterable[dict[str, Any]], **done: Any
    ) -> Iterator[dict[str, Any]]:
        place = {"index": len(self._blocks)}
        self._blocks.append({**block, **done})
        yield {"type": "content_block_start", "content_block": block, **place}
        for delta in deltas:
            yield {"type": "content_block_delta", "delta": delta, **place}
        yield {"type": "content_block_stop", **place}

    def end(self, reply: openai_server.Reply) -> Iterator[dict[str, Any]]:
        if reply.finish is None:
            return
        reason = "refusal" if reply.refusal else _STOPS.get(reply.finish, reply.finish)
        reason = "end_turn" if reason == "stop" else reason
        usage = {"output_tokens": reply.usage[1] if reply.usage else 0}
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}


def _faults(body: Mapping[str, Any], mind: openai_minds.Mind) -> Iterator[str]:
    """Say what the real server would refuse, or what it should never be sent."""
    yield from (f"unknown parameter {name}" for name in body.keys() - _KNOWN)
    if body.get("stream") is not True:
        yield "only streams are scripted"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield f"max_tokens {body.get('max_tokens')}"
    if body.get("thinking") not in _THINKING:
        yield f"thinking {body.get('thinking')}"
    yield from _tool_faults(body)
    yield from _block_faults(body.get("system") or [], ("text",), "system")
    written = json.dumps(body)
    if written.count('"cache_control"') > _MAX_BREAKPOINTS:
        yield f"{written.count('cache_control')} breakpoints"
    if len(written) > _MAX_BYTES:
        yield f"a request of {len(written)} bytes"
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
    roles = [one.get("role") for one in messages]
    if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
        yield f"roles {roles}"
    called: list[str] = []
    known: set[str] = set()
    for place, message in enumerate(messages):
        blocks = message.get("content") or []
        name = f"messages.{place}"
        if not isinstance(blocks, list) or not blocks:
            yield f"{name}: no blocks"
            return
        answered = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        first = [one["type"] for one in blocks[: len(answered)]]
        if sorted(answered) != sorted(called) or first != ["tool_result"] * len(answered):
            yield f"{name}: `tool_use` ids {called} were followed by {answered}, {first}"
        is_user = message["role"] == "user"
        kinds = ("text", "image", "tool_result") if is_user else ("text", "tool_use", *_THOUGHTS)
        yield from _block_faults(blocks, kinds, name)
        called = [one["id"] for one in blocks if one["type"] == "tool_use"]
        if known & {*called} or len({*called}) < len(called):
            yield f"{name}: `tool_use` ids must be unique"
        known |= {*called}
        if called and not has_tools:
            yield f"{name}: calls without tools"
        if not is_user and blocks[-1]["type"] in _THOUGHTS:
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
        for one in value:
            yield from _pictures(one)
    elif isinstance(value, dict):
        if value.get("type") == "image":
            yield value["source"]
        else:
            yield from _pictures(list(value.values()))


def _picture_faults(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    limit = _MAX_SIDE if len(sources) <= _MANY else _MAX_SIDE_OF_MANY
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
