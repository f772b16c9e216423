"""A scripted language model behind the real wire formats: chat completions and Responses, as SSE.

    script = [openai_server.code("print(1)"), openai_server.text("1")]
    async with openai_server.Server(script) as server:
        … AsyncOpenAI(base_url=server.base_url, api_key=server.api_key) …
    assert server.requests[1].messages[-1]["role"] == "tool"

It is as strict as a real server: a malformed request is answered 400, and is a fault. A script that
runs out, or is not used up, is a fault too. Faults raise at the end of the `async with`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web
from PIL import Image

from tests.fakes import reasoning_models

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_RESERVED = frozenset({"python"})
_CHAT_PARAMETERS = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "temperature"),
        *("max_tokens", "max_completion_tokens", "parallel_tool_calls", "prompt_cache_key"),
    }
)
_RESPONSES_PARAMETERS = frozenset(
    {
        *("model", "input", "instructions", "stream", "tools", "tool_choice", "temperature"),
        *("max_output_tokens", "store", "include", "prompt_cache_key"),
    }
)
_ASSISTANT_FIELDS = frozenset({"role", "content", "tool_calls"})
_CALL_FIELDS = frozenset({"id", "type", "function"})
_MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_NO_REASONING = reasoning_models.ReasoningModel()
_IMAGE_DETAILS = (None, "auto", "low", "high", "original")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """One scripted answer.

    Attributes:
        text: deltas of text.
        calls: (name, arguments) of native calls; arguments are sent in pieces.
        finish: the finish_reason of chat completions; None sends none.
        usage: (input tokens, output tokens); None if the server does not count.
        usage_fields: more fields of the usage, in the wire format.
        fault: a fault after text and calls: "cut" (the socket is closed without an end), "eof" (a
            clean end without a finish), "garbage" (an event that is no JSON), "error" (an error
            event), "shapes" (JSON of wrong shapes), "html" (a page instead of a stream), "stall"
            (nothing more comes).
        status: any status but 200 answers with an error at once.
        error: the error's fields.
        headers: headers of an error.
        delay_seconds: the pause after each event.
        refusal: deltas of a refusal.
        has_index: False leaves out the index of calls, as some servers do.
        call_id: the id of each call; "" sends none, None makes one up.
    """

    text: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()
    finish: str | None = "stop"
    usage: tuple[Any, Any] | None = (100, 20)
    usage_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fault: str = ""
    status: int = 200
    error: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    delay_seconds: float = 0.0
    refusal: Sequence[str] = ()
    has_index: bool = True
    call_id: str | None = None


def text(*deltas: str, **fields: Any) -> Reply:
    """Answer with text."""
    return Reply(text=deltas, **fields)


def call(name: str, arguments: object, *deltas: str, **fields: Any) -> Reply:
    """Call a tool; arguments other than a string are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Reply(text=deltas, calls=[(name, text)], **{"finish": "tool_calls", **fields})


def code(source: str, *deltas: str, **fields: Any) -> Reply:
    """Call `run_code`."""
    return call("run_code", {"code": source}, *deltas, **fields)


def failure(status: int, message: str = "no", *, headers: Any = None, **error: Any) -> Reply:
    """Answer with an error."""
    return Reply(status=status, error={"message": message, **error}, headers=headers or {})


@dataclasses.dataclass(frozen=True)
class Request:
    """A request; `messages` are the messages of a chat, or the input items of Responses."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages" if "messages" in self.body else "input"]


class Server:
    """The server. `script` is a list of replies, or a function from request to reply.

    Args:
        reasoning: how the models send reasoning, and want it back.
        unknown: parameters that the server refuses, in the words of Google's server, or of
            Mistral's with `is_pydantic`.
        blind: status and message by which pictures are refused; None if the models see.
        decodes: the server decodes pictures, and refuses unreadable ones.
        text_outputs: pictures are refused as the output of a call, as by llama.cpp.
        port: the port; 0 for any free one.
        lists_models: the server has `/v1/models`.

    Attributes:
        requests: requests that were answered.
        stalled: set once a reply with the fault "stall" has sent its deltas.
        refusals: errors for valid requests that this particular server refuses.
        faults: mistakes of requests that every server would refuse.
    """

    def __init__(
        self,
        script: Iterable[Reply] | Callable[[Request], Reply],
        *,
        api_key: str = "test-key-0123456789",
        models: Sequence[str] = ("scripted",),
        reasoning: reasoning_models.ReasoningModel | None = None,
        unknown: Sequence[str] = (),
        is_pydantic: bool = False,
        blind: tuple[int, str] | None = None,
        decodes: bool = False,
        text_outputs: bool = False,
        port: int = 0,
        lists_models: bool = True,
    ) -> None:
        self.lists_models = lists_models
        self.reasoning = reasoning or reasoning_models.ReasoningModel()
        self.refusals: list[str] = []
        self._unknown = unknown
        self._is_pydantic = is_pydantic
        self.blind = blind
        self._decodes = decodes
        self._text_outputs = text_outputs
        self.port = port
        self.api_key = api_key
        self.requests: list[Request] = []
        self.faults: list[str] = []
        self._choose_reply = script if callable(script) else None
        self.script: list[Reply] = [] if callable(script) else list(script)
        self._models = models
        self.stalled = asyncio.Event()
        self._closed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.base_url = ""

    async def __aenter__(self) -> Server:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        self.routes(app)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        assert self._runner
        await self._runner.cleanup()
        if kind is None:
            assert self.faults == []
            assert self.script == [], "the script was not used up"

    def routes(self, app: web.Application) -> None:
        """Add this server's routes."""
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        if self.lists_models:
            app.router.add_get("/v1/models", self._list_models)

    async def _list_models(self, request: web.Request) -> web.Response:
        if not self.is_authorized(request):
            return _error_response(401, message="Incorrect API key", code="invalid_api_key")
        fields = {"object": "model", "created": 0, "owned_by": "us"}
        data = [{"id": name, **fields} for name in self._models]
        return web.json_response({"object": "list", "data": data})

    def is_authorized(self, request: web.Request) -> bool:
        """Return whether a request has the API key."""
        return request.headers.get("Authorization") == f"Bearer {self.api_key}"

    async def wait_until_closed(self, seconds: float = 2.0) -> None:
        """Wait until a client has closed a stream early."""
        async with asyncio.timeout(seconds):
            await self._closed.wait()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _ChatWire, _chat_faults)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _ResponsesWire, _responses_faults)

    async def _answer(self, request: web.Request, wire: Any, faults: Any) -> web.StreamResponse:
        if not self.is_authorized(request):
            header = request.headers.get("Authorization", "")
            message = f"Incorrect API key provided: {header.removeprefix('Bearer ')}"
            return _error_response(401, message=message, code="invalid_api_key")
        body = await request.json()
        if body.get("model") not in self._models:
            return _error_response(404, message="The model does not exist", code="model_not_found")
        if refusal := self._refusal(body):
            status, error = refusal
            self.refusals.append(json.dumps(error))
            if self.reasoning.refuses_in_stream:
                return await self._refuse_in_stream(request, error["error"])
            return web.json_response(error, status=status)
        if mistakes := list(faults(body, self.reasoning)):
            self.faults += mistakes
            return _error_response(400, message="; ".join(mistakes), type="invalid_request_error")
        parsed = Request(request.path, dict(request.headers), body)
        self.requests.append(parsed)
        if self._choose_reply:
            reply = self._choose_reply(parsed)
        elif self.script:
            reply = self.script.pop(0)
        else:
            self.faults.append(f"the script has run out at request {len(self.requests)}")
            return _error_response(400, message="the script has run out")
        if reply.status != 200:
            return web.json_response(
                {"error": dict(reply.error)}, status=reply.status, headers=reply.headers
            )
        return await self._stream(request, reply, wire(parsed, self.reasoning))

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, Any] | None:
        """Return the status and error by which this server refuses a valid request, or None."""
        for name in self._unknown:
            if f'"{name}":' not in json.dumps(body):
                continue
            if self._is_pydantic:
                location = {"type": "extra_forbidden", "loc": ["body", name], "input": "x"}
                message = {**location, "msg": "Extra inputs are not permitted"}
                return 422, {"object": "error", "message": {"detail": [message]}, "code": None}
            message = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            return 400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]
        items = body.get("input", ())
        if self._text_outputs and any(isinstance(item.get("output"), list) for item in items):
            return 400, {"error": {"message": "Output of tool call should be 'Input text'"}}
        if self.blind and decode_pictures(body):
            return self.blind[0], {"error": {"message": self.blind[1]}}
        if self._decodes and not all(map(_is_readable, decode_pictures(body))):
            message = "You uploaded an unsupported image. Please make sure your image is valid."
            return 400, {"error": {"message": message, "code": "invalid_image_format"}}
        return self.reasoning.refusal(body)

    async def _refuse_in_stream(self, request: web.Request, error: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        response_fields = {"id": "resp_1", "status": "in_progress", "output": []}
        await response.write(_sse({"type": "response.created", "response": response_fields}))
        kind = self.reasoning.refuses_in_stream
        failed = {"response": {**response_fields, "status": "failed", "error": error}}
        await response.write(_sse({"type": kind, **(error if kind == "error" else failed)}))
        return response

    async def _stream(self, request: web.Request, reply: Reply, wire: Any) -> web.StreamResponse:
        if reply.fault == "html":
            return web.Response(text="<html>hello</html>", content_type="text/html")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for event in wire.body(reply):
                await response.write(_sse(event))
                if reply.delay_seconds:
                    await asyncio.sleep(reply.delay_seconds)
            if reply.fault:
                await self._fail(request, response, reply.fault)
                return response
            for event in wire.end(reply):
                await response.write(_sse(event))
            if wire.terminator:
                await response.write(wire.terminator)
        except (ConnectionError, asyncio.CancelledError):
            self._closed.set()
            raise
        return response

    async def _fail(self, request: web.Request, response: Any, fault: str) -> None:
        if fault == "cut":
            assert request.transport
            # Without a pause, data that was written may never be sent.
            await asyncio.sleep(0.02)
            request.transport.abort()
        elif fault == "garbage":
            await response.write(b"data: {not json\n\n")
        elif fault == "shapes":
            for shape in (5, "words", [], None, {"choices": 5}, {"choices": [7]}, {"type": []}):
                await response.write(f"data: {json.dumps(shape)}\n\n".encode())
            odd = {"choices": [{"delta": {"content": 5, "tool_calls": [None, {"index": "x"}]}}]}
            await response.write(f"data: {json.dumps(odd)}\n\n".encode())
        elif fault == "error":
            error = {"error": {"message": "the server had an error", "code": "server_error"}}
            await response.write(f"data: {json.dumps(error)}\n\n".encode())
        elif fault == "stall":
            self.stalled.set()
            await asyncio.sleep(60)


def decode_pictures(body: Mapping[str, Any]) -> list[bytes]:
    """Return the pictures of a request, of any protocol, decoded."""
    prefix = r'(?:data:image/[a-z]+;base64,|"media_type": "image/[a-z]+", "data": ")'
    encoded = re.findall(rf"{prefix}([A-Za-z0-9+/=]*)", json.dumps(body))
    return [base64.b64decode(data) for data in encoded]


def _is_readable(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def _error_response(status: int, **error: Any) -> web.Response:
    return web.json_response({"error": {"type": "invalid_request_error", **error}}, status=status)


def _sse(event: Mapping[str, Any]) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _split(text: str, size: int = 7) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


class _ChatWire:
    terminator = b"data: [DONE]\n\n"

    def __init__(self, request: Request, reasoning: reasoning_models.ReasoningModel) -> None:
        self._reasoning = reasoning
        self._model = request.body["model"]
        self._sends_usage = request.body.get("stream_options", {}).get("include_usage", False)
        self._number = len(request.messages)

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._frame(), "choices": [choice]}

    def _frame(self) -> dict[str, Any]:
        frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
        return {**frame, "model": "scripted"}

    def body(self, reply: Reply) -> Iterable[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})
        for delta in self._reasoning.deltas(self._model, self._number):
            yield self._chunk(delta)
        for delta in reply.text:
            yield self._chunk({"content": delta})
        for delta in reply.refusal:
            yield self._chunk({"refusal": delta})
        for index, (name, arguments) in enumerate(reply.calls):
            key = f"call_{self._number}_{index}" if reply.call_id is None else reply.call_id
            position = {"index": index} if reply.has_index else {}
            call_fields = {**position, "type": "function", **({"id": key} if key else {})}
            call_fields |= self._reasoning.signature(self._model, key, index)
            if not reply.has_index:
                complete_call = {**call_fields, "function": {"name": name, "arguments": arguments}}
                yield self._chunk({"tool_calls": [complete_call]})
                continue
            yield self._chunk(
                {"tool_calls": [{**call_fields, "function": {"name": name, "arguments": ""}}]}
            )
            for piece in _split(arguments):
                yield self._chunk({"tool_calls": [{**position, "function": {"arguments": piece}}]})

    def end(self, reply: Reply) -> Iterable[dict[str, Any]]:
        if reply.finish:
            yield self._chunk({}, reply.finish)
        if reply.usage and self._sends_usage:
            read, written = reply.usage
            usage = {"prompt_tokens": read, "completion_tokens": written}
            yield {
                **self._frame(),
                "choices": [],
                "usage": {**usage, "total_tokens": 1, **reply.usage_fields},
            }


class _ResponsesWire:
    terminator = b""

    def __init__(self, request: Request, reasoning: reasoning_models.ReasoningModel) -> None:
        self._reasoning = reasoning
        self._model = request.body["model"]
        self._has_sealed_reasoning = "reasoning.encrypted_content" in request.body.get(
            "include", ()
        )
        self._sequence = 0
        self._position = -1
        self._sent_items: list[dict[str, Any]] = []
        self._number = len(request.messages)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence, **fields}

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {"id": "resp_1", "object": "response", "status": status, "output": [], **fields}

    def body(self, reply: Reply) -> Iterable[dict[str, Any]]:
        yield self._event("response.created", response=self._response("in_progress"))
        if reply.text or reply.refusal:
            yield from self._reasoning_events(0)
            yield from self._message_events(reply)
        for index, (name, arguments) in enumerate(reply.calls, start=1):
            yield from self._reasoning_events(index)
            key = f"call_{self._number}_{index}"
            item = {"type": "function_call", "id": f"fc_{key}", "call_id": key, "name": name}
            location = {"item_id": f"fc_{key}", "output_index": self._next_position()}
            pieces = [
                self._event("response.function_call_arguments.delta", delta=piece, **location)
                for piece in _split(arguments)
            ]
            kind = "response.function_call_arguments.done"
            pieces.append(self._event(kind, arguments=arguments, name=name, **location))
            yield from self._item_events(
                {**item, "arguments": arguments}, {"arguments": ""}, pieces
            )
        self._reasoning.record_reply(self._model, self._sent_items)

    def _next_position(self) -> int:
        return self._position + 1

    def _reasoning_events(self, index: int) -> Iterable[dict[str, Any]]:
        item = self._reasoning.item(self._model, self._number, index, self._has_sealed_reasoning)
        if item:
            yield from self._item_events(item, {"encrypted_content": "gAAAunfinished"}, ())

    def _message_events(self, reply: Reply) -> Iterable[dict[str, Any]]:
        name = f"msg_{self._number}"
        location = {"item_id": name, "output_index": self._next_position(), "content_index": 0}
        kind = "response.output_text.delta"
        events = [self._event(kind, delta=delta, logprobs=[], **location) for delta in reply.text]
        kind = "response.refusal.delta"
        events += [self._event(kind, delta=delta, **location) for delta in reply.refusal]
        part = {"type": "output_text", "text": "".join(reply.text), "annotations": []}
        item = {"type": "message", "id": name, "role": "assistant", "phase": "commentary"}
        yield from self._item_events({**item, "content": [part]}, {"content": []}, events)

    def _item_events(
        self, item: dict[str, Any], initial_fields: dict[str, Any], deltas: Iterable[dict[str, Any]]
    ) -> Iterable[dict[str, Any]]:
        self._position += 1
        started = {**item, **initial_fields, "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=self._position, item=started)
        yield from deltas
        done = {**item, "status": "completed"}
        yield self._event("response.output_item.done", output_index=self._position, item=done)
        self._sent_items.append(item)

    def end(self, reply: Reply) -> Iterable[dict[str, Any]]:
        if reply.finish is None:
            return
        usage = None
        if reply.usage:
            read, written = reply.usage
            usage = {"input_tokens": read, "output_tokens": written, "total_tokens": 1}
            usage |= reply.usage_fields
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(
            reply.finish
        )
        kind = "incomplete" if reason else "completed"
        details = {"reason": reason} if reason else None
        response = self._response(kind, usage=usage, incomplete_details=details)
        yield self._event(f"response.{kind}", response=response)


def _chat_faults(
    body: Mapping[str, Any], reasoning: reasoning_models.ReasoningModel = _NO_REASONING
) -> Iterable[str]:
    """Say what a server would refuse."""
    yield from (f"unknown parameter {name}" for name in body.keys() - _CHAT_PARAMETERS)
    if body.get("stream") is not True:
        yield "only streams are scripted"
    yield from _common_faults(body, [tool.get("function", {}) for tool in body.get("tools", [])])
    if any(tool.get("type") != "function" for tool in body.get("tools", [])):
        yield "a tool is no function"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "no messages"
        return
    pending: set[str] = set()
    for message in messages:
        role = message.get("role")
        if role not in ("system", "user", "assistant", "tool"):
            yield f"role {role}"
        if pending and role != "tool":
            yield f"calls without an answer before a message of {role}: {sorted(pending)}"
            pending.clear()
        if role == "tool":
            if message.get("tool_call_id") not in pending:
                yield f"an answer to no call: {message.get('tool_call_id')}"
            pending.discard(message.get("tool_call_id"))
            if not isinstance(message.get("content"), str):
                yield "the content of a tool's message must be text"
        elif role == "assistant":
            yield from _assistant_faults(message, reasoning)
            pending = {tool_call["id"] for tool_call in message.get("tool_calls") or ()}
        elif not message.get("content"):
            yield f"an empty message of {role}"
        elif isinstance(message["content"], list):
            yield from _part_faults(message["content"], ("text", "image_url"))
    if pending:
        yield f"calls without an answer at the end: {sorted(pending)}"


def _assistant_faults(
    message: Mapping[str, Any], reasoning: reasoning_models.ReasoningModel
) -> Iterable[str]:
    calls = message.get("tool_calls")
    yield from (
        f"unknown field {name}" for name in message.keys() - _ASSISTANT_FIELDS - reasoning.fields
    )
    for tool_call in calls or ():
        yield from (
            f"unknown field {name}"
            for name in tool_call.keys() - _CALL_FIELDS - reasoning.call_fields
        )
    if calls is None and not message.get("content"):
        yield "an assistant's message without content or calls"
    if calls is not None and not calls:
        yield "tool_calls is empty"
    for tool_call in calls or ():
        if not isinstance(tool_call.get("id"), str) or not tool_call["id"]:
            yield "a call without an id"
        yield from _argument_faults(tool_call.get("function", {}))
    ids = [tool_call.get("id") for tool_call in calls or ()]
    if len(set(ids)) != len(ids):
        yield "two calls with one id"


def _argument_faults(function: Mapping[str, Any]) -> Iterable[str]:
    if not _NAME.match(str(function.get("name", ""))):
        yield f"a call of {function.get('name')!r}"
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(function.get("arguments", "")), dict):
            return
    yield "the arguments of a call are no object"


def _part_faults(parts: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> Iterable[str]:
    for part in parts:
        kind = part.get("type")
        if kind not in kinds:
            yield f"a part of type {kind}"
        elif kind in ("text", "input_text"):
            if part.keys() != {"type", "text"} or not part["text"]:
                yield f"a part of text that is {part}"
        elif kind == "input_image":
            yield from _image_faults({"url": part.get("image_url"), **part}, part.keys())
        elif not isinstance(part.get("image_url"), dict):
            yield "image_url is no object"
        else:
            image = part["image_url"]
            yield from _image_faults(image, {*part.keys(), *image.keys() - {"url"}})


def _image_faults(image: Mapping[str, Any], names: Iterable[str]) -> Iterable[str]:
    if (
        not set(names) <= {"type", "image_url", "detail"}
        or image.get("detail") not in _IMAGE_DETAILS
    ):
        yield f"an image with {sorted(names)}, detail {image.get('detail')}"
    head, _, encoded = str(image.get("url")).partition(";base64,")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        data = b""
    magic = _MAGIC.get(head.removeprefix("data:"))
    if magic is None or not data.startswith(magic):
        yield f"an image that is none: {head}, {data[:8]!r}"


def _common_faults(
    body: Mapping[str, Any], functions: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    for function in functions:
        name = str(function.get("name", ""))
        schema = function.get("parameters", {})
        if not _NAME.match(name) or name in _RESERVED:
            yield f"a tool named {name!r}"
        if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
            yield f"the schema of {name}"
        elif not set(schema.get("required", [])) <= set(schema["properties"]):
            yield f"required parameters of {name} that it does not have"
    if "tool_choice" in body and not functions:
        yield "tool_choice without tools"
    temperature = body.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        yield f"temperature {temperature}"


def _responses_faults(
    body: Mapping[str, Any], reasoning: reasoning_models.ReasoningModel
) -> Iterable[str]:
    """Say what a server would refuse."""
    yield from (f"unknown parameter {name}" for name in body.keys() - _RESPONSES_PARAMETERS)
    if body.get("stream") is not True or body.get("store") is not False:
        yield "only streams that are not stored are scripted"
    yield from _common_faults(body, body.get("tools", []))
    called: set[str] = set()
    answered: set[str] = set()
    for item in body.get("input") or ():
        kind = item.get("type", "message")
        if kind == "message":
            if item.get("role") not in ("user", "assistant") or not item.get("content"):
                yield f"a message of {item.get('role')}"
            if isinstance(item.get("content"), list) and item["role"] == "user":
                yield from _part_faults(item["content"], ("input_text", "input_image"))
            elif isinstance(item.get("content"), list) and not (
                item.get("id") and all(part["type"] == "output_text" for part in item["content"])
            ):
                yield "the content of an assistant's message"
        elif kind == "reasoning":
            if not item.get("id") or item.keys() & {"status", "content"}:
                yield f"an item of reasoning with {sorted(item)}"
        elif kind == "function_call":
            called.add(item.get("call_id", ""))
            yield from _argument_faults(item)
        elif kind == "function_call_output":
            if item.get("call_id") not in called:
                yield f"an answer to no call: {item.get('call_id')}"
            answered.add(item.get("call_id", ""))
            if isinstance(item.get("output"), list):
                yield from _part_faults(item["output"], ("input_text", "input_image"))
        else:
            yield f"an item of type {kind}"
    if called - answered:
        yield f"calls without an answer: {sorted(called - answered)}"
