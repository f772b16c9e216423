"""A scripted language model behind the real wire formats: chat completions and Responses, as SSE.

    script = [openai_server.code("print(1)"), openai_server.text("1")]
    async with openai_server.Server(script) as server:
        … AsyncOpenAI(base_url=server.base_url, api_key=server.api_key) …
    assert server.requests[1].messages[-1]["role"] == "tool"

As strict as a real server: a request that one would refuse is answered 400, and is a fault. A
script that runs out, or is not used up, is a fault. Faults raise at the end of the `async with`.
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

from tests.fakes import openai_minds

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_RESERVED = frozenset({"python"})
_CHAT = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "temperature"),
        *("max_tokens", "max_completion_tokens", "parallel_tool_calls", "prompt_cache_key"),
    }
)
_RESPONSES = frozenset(
    {
        *("model", "input", "instructions", "stream", "tools", "tool_choice", "temperature"),
        *("max_output_tokens", "store", "include", "prompt_cache_key"),
    }
)
_ASSISTANT = frozenset({"role", "content", "tool_calls"})
_CALL = frozenset({"id", "type", "function"})
_MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_NOBODY = openai_minds.Mind()
_DETAILS = (None, "auto", "low", "high", "original")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """One scripted answer.

    Attributes:
        text: deltas of text.
        calls: (name, arguments) of native calls; arguments go out in pieces.
        finish: finish_reason as chat completions name it; None sends none.
        usage: (read, written); None where the server does not count.
        counted: further fields of the usage, as they go over the wire.
        fault: what goes wrong: "cut" (the socket is closed without an end), "eof" (a clean end
            without a finish), "garbage" (an event that is no JSON), "error" (an error event),
            "shapes" (JSON of wrong shapes), "html" (a page instead of a stream), "stall"
            (nothing more comes), each after text and calls.
        status: anything but 200 answers with an error at once.
        error: the error's fields.
        headers: of the answer.
        delay_seconds: between deltas.
        refusal: deltas of a refusal.
        has_index: False leaves out the index of calls, as some servers do.
        call_id: the id of each call; "" sends none, None makes one up.
    """

    text: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()
    finish: str | None = "stop"
    usage: tuple[Any, Any] | None = (100, 20)
    counted: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fault: str = ""
    status: int = 200
    error: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    delay_seconds: float = 0.0
    refusal: Sequence[str] = ()
    has_index: bool = True
    call_id: str | None = None


def text(*deltas: str, **others: Any) -> Reply:
    """Answer in words."""
    return Reply(text=deltas, **others)


def call(name: str, arguments: object, *deltas: str, **others: Any) -> Reply:
    """Call a tool; arguments that are no string become JSON."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Reply(text=deltas, calls=[(name, written)], **{"finish": "tool_calls", **others})


def code(source: str, *deltas: str, **others: Any) -> Reply:
    """Call `run_code`."""
    return call("run_code", {"code": source}, *deltas, **others)


def failure(status: int, message: str = "no", *, headers: Any = None, **error: Any) -> Reply:
    """Answer with an error."""
    return Reply(status=status, error={"message": message, **error}, headers=headers or {})


@dataclasses.dataclass(frozen=True)
class Request:
    """A request that came. `messages` are those of chat, or the input items of Responses."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages" if "messages" in self.body else "input"]


class Server:
    """The server. `script` is a list of replies, or a function from request to reply.

    Args:
        mind: how its models think, and what it wants to get back of that.
        unknown: parameters that it refuses as Google's does, or Mistral's with `is_pydantic`.
        blind: status and words by which it refuses pictures; None where its models see.
        decodes: it looks into pictures, and refuses what is none.
        text_outputs: it takes no pictures as the output of a call, as llama.cpp's does.
        port: where; 0 is anywhere.
        lists_models: it says which models it has.

    Attributes:
        requests: what was answered.
        stalled: set once a reply with that fault has sent all it sends.
        refusals: what was refused as a real server would refuse it for its own reasons.
        faults: what no server would take.
    """

    def __init__(
        self,
        script: Iterable[Reply] | Callable[[Request], Reply],
        *,
        api_key: str = "test-key-0123456789",
        models: Sequence[str] = ("scripted",),
        mind: openai_minds.Mind | None = None,
        unknown: Sequence[str] = (),
        is_pydantic: bool = False,
        blind: tuple[int, str] | None = None,
        decodes: bool = False,
        text_outputs: bool = False,
        port: int = 0,
        lists_models: bool = True,
    ) -> None:
        self.lists_models = lists_models
        self.mind = mind or openai_minds.Mind()
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
        self._answering = script if callable(script) else None
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
        """Add what this server answers."""
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        if self.lists_models:
            app.router.add_get("/v1/models", self._list_models)

    async def _list_models(self, request: web.Request) -> web.Response:
        if not self.is_authorized(request):
            return _refused(401, message="Incorrect API key", code="invalid_api_key")
        fields = {"object": "model", "created": 0, "owned_by": "us"}
        data = [{"id": name, **fields} for name in self._models]
        return web.json_response({"object": "list", "data": data})

    def is_authorized(self, request: web.Request) -> bool:
        """Say whether a request has the key."""
        return request.headers.get("Authorization") == f"Bearer {self.api_key}"

    async def until_hung_up(self, seconds: float = 2.0) -> None:
        """Wait until a client has closed a stream before its end."""
        async with asyncio.timeout(seconds):
            await self._closed.wait()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _ChatWire, _chat_faults)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _ResponsesWire, _responses_faults)

    async def _answer(self, request: web.Request, wire: Any, faults: Any) -> web.StreamResponse:
        if not self.is_authorized(request):
            given = request.headers.get("Authorization", "")
            message = f"Incorrect API key provided: {given.removeprefix('Bearer ')}"
            return _refused(401, message=message, code="invalid_api_key")
        body = await request.json()
        if body.get("model") not in self._models:
            return _refused(404, message="The model does not exist", code="model_not_found")
        if refusal := self._refusal(body):
            status, said = refusal
            self.refusals.append(json.dumps(said))
            if self.mind.refuses_in_stream:
                return await self._refuse_in_stream(request, said["error"])
            return web.json_response(said, status=status)
        if found := list(faults(body, self.mind)):
            self.faults += found
            return _refused(400, message="; ".join(found), type="invalid_request_error")
        asked = Request(request.path, dict(request.headers), body)
        self.requests.append(asked)
        if self._answering:
            reply = self._answering(asked)
        elif self.script:
            reply = self.script.pop(0)
        else:
            self.faults.append(f"the script has run out at request {len(self.requests)}")
            return _refused(400, message="the script has run out")
        if reply.status != 200:
            return web.json_response(
                {"error": dict(reply.error)}, status=reply.status, headers=reply.headers
            )
        return await self._stream(request, reply, wire(asked, self.mind))

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, Any] | None:
        """Say what this server in particular refuses."""
        for name in self._unknown:
            if f'"{name}":' not in json.dumps(body):
                continue
            if self._is_pydantic:
                place = {"type": "extra_forbidden", "loc": ["body", name], "input": "x"}
                words = {**place, "msg": "Extra inputs are not permitted"}
                return 422, {"object": "error", "message": {"detail": [words]}, "code": None}
            words = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            return 400, [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}]
        items = body.get("input", ())
        if self._text_outputs and any(isinstance(one.get("output"), list) for one in items):
            return 400, {"error": {"message": "Output of tool call should be 'Input text'"}}
        if self.blind and pictures(body):
            return self.blind[0], {"error": {"message": self.blind[1]}}
        if self._decodes and not all(map(_is_readable, pictures(body))):
            words = "You uploaded an unsupported image. Please make sure your image is valid."
            return 400, {"error": {"message": words, "code": "invalid_image_format"}}
        return self.mind.refusal(body)

    async def _refuse_in_stream(self, request: web.Request, error: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        told = {"id": "resp_1", "status": "in_progress", "output": []}
        await response.write(_sse({"type": "response.created", "response": told}))
        kind = self.mind.refuses_in_stream
        failed = {"response": {**told, "status": "failed", "error": error}}
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
            if wire.last:
                await response.write(wire.last)
        except (ConnectionError, asyncio.CancelledError):
            self._closed.set()
            raise
        return response

    async def _fail(self, request: web.Request, response: Any, fault: str) -> None:
        if fault == "cut":
            assert request.transport
            # Without this, what was written may never leave.
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


def pictures(body: Mapping[str, Any]) -> list[bytes]:
    """Return the pictures of a request, of any protocol, decoded."""
    known = r'(?:data:image/[a-z]+;base64,|"media_type": "image/[a-z]+", "data": ")'
    found = re.findall(rf"{known}([A-Za-z0-9+/=]*)", json.dumps(body))
    return [base64.b64decode(one) for one in found]


def _is_readable(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def _refused(status: int, **error: Any) -> web.Response:
    return web.json_response({"error": {"type": "invalid_request_error", **error}}, status=status)


def _sse(event: Mapping[str, Any]) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


class _ChatWire:
    last = b"data: [DONE]\n\n"

    def __init__(self, request: Request, mind: openai_minds.Mind) -> None:
        self._mind = mind
        self._model = request.body["model"]
        self._counts = request.body.get("stream_options", {}).get("include_usage", False)
        self._number = len(request.messages)

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._frame(), "choices": [choice]}

    def _frame(self) -> dict[str, Any]:
        frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
        return {**frame, "model": "scripted"}

    def body(self, reply: Reply) -> Iterable[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})
        for delta in self._mind.deltas(self._model, self._number):
            yield self._chunk(delta)
        for delta in reply.text:
            yield self._chunk({"content": delta})
        for delta in reply.refusal:
            yield self._chunk({"refusal": delta})
        for index, (name, arguments) in enumerate(reply.calls):
            key = f"call_{self._number}_{index}" if reply.call_id is None else reply.call_id
            place = {"index": index} if reply.has_index else {}
            named = {**place, "type": "function", **({"id": key} if key else {})}
            named |= self._mind.signature(self._model, key, index)
            if not reply.has_index:
                whole = {**named, "function": {"name": name, "arguments": arguments}}
                yield self._chunk({"tool_calls": [whole]})
                continue
            yield self._chunk(
                {"tool_calls": [{**named, "function": {"name": name, "arguments": ""}}]}
            )
            for piece in _pieces(arguments):
                yield self._chunk({"tool_calls": [{**place, "function": {"arguments": piece}}]})

    def end(self, reply: Reply) -> Iterable[dict[str, Any]]:
        if reply.finish:
            yield self._chunk({}, reply.finish)
        if reply.usage and self._counts:
            read, written = reply.usage
            usage = {"prompt_tokens": read, "completion_tokens": written}
            yield {
                **self._frame(),
                "choices": [],
                "usage": {**usage, "total_tokens": 1, **reply.counted},
            }


class _ResponsesWire:
    last = b""

    def __init__(self, request: Request, mind: openai_minds.Mind) -> None:
        self._mind = mind
        self._model = request.body["model"]
        self._seals = "reasoning.encrypted_content" in request.body.get("include", ())
        self._sequence = 0
        self._place = -1
        self._given: list[dict[str, Any]] = []
        self._number = len(request.messages)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence, **fields}

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {"id": "resp_1", "object": "response", "status": status, "output": [], **fields}

    def body(self, reply: Reply) -> Iterable[dict[str, Any]]:
        yield self._event("response.created", response=self._response("in_progress"))
        if reply.text or reply.refusal:
            yield from self._thought(0)
            yield from self._message(reply)
        for index, (name, arguments) in enumerate(reply.calls, start=1):
            yield from self._thought(index)
            key = f"call_{self._number}_{index}"
            item = {"type": "function_call", "id": f"fc_{key}", "call_id": key, "name": name}
            where = {"item_id": f"fc_{key}", "output_index": self._added()}
            pieces = [
                self._event("response.function_call_arguments.delta", delta=piece, **where)
                for piece in _pieces(arguments)
            ]
            kind = "response.function_call_arguments.done"
            pieces.append(self._event(kind, arguments=arguments, name=name, **where))
            yield from self._item({**item, "arguments": arguments}, {"arguments": ""}, pieces)
        self._mind.issued(self._model, self._given)

    def _added(self) -> int:
        return self._place + 1

    def _thought(self, index: int) -> Iterable[dict[str, Any]]:
        item = self._mind.item(self._model, self._number, index, self._seals)
        if item:
            yield from self._item(item, {"encrypted_content": "gAAAunfinished"}, ())

    def _message(self, reply: Reply) -> Iterable[dict[str, Any]]:
        name = f"msg_{self._number}"
        place = {"item_id": name, "output_index": self._added(), "content_index": 0}
        kind = "response.output_text.delta"
        events = [self._event(kind, delta=one, logprobs=[], **place) for one in reply.text]
        kind = "response.refusal.delta"
        events += [self._event(kind, delta=one, **place) for one in reply.refusal]
        part = {"type": "output_text", "text": "".join(reply.text), "annotations": []}
        item = {"type": "message", "id": name, "role": "assistant", "phase": "commentary"}
        yield from self._item({**item, "content": [part]}, {"content": []}, events)

    def _item(
        self, item: dict[str, Any], begun: dict[str, Any], between: Iterable[dict[str, Any]]
    ) -> Iterable[dict[str, Any]]:
        self._place += 1
        began = {**item, **begun, "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=self._place, item=began)
        yield from between
        done = {**item, "status": "completed"}
        yield self._event("response.output_item.done", output_index=self._place, item=done)
        self._given.append(item)

    def end(self, reply: Reply) -> Iterable[dict[str, Any]]:
        if reply.finish is None:
            return
        usage = None
        if reply.usage:
            read, written = reply.usage
            usage = {"input_tokens": read, "output_tokens": written, "total_tokens": 1}
            usage |= reply.counted
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(
            reply.finish
        )
        kind = "incomplete" if reason else "completed"
        details = {"reason": reason} if reason else None
        response = self._response(kind, usage=usage, incomplete_details=details)
        yield self._event(f"response.{kind}", response=response)


def _chat_faults(body: Mapping[str, Any], mind: openai_minds.Mind = _NOBODY) -> Iterable[str]:
    """Say what a server would refuse."""
    yield from (f"unknown parameter {name}" for name in body.keys() - _CHAT)
    if body.get("stream") is not True:
        yield "only streams are scripted"
    yield from _common_faults(body, [tool.get("function", {}) for tool in body.get("tools", [])])
    if any(tool.get("type") != "function" for tool in body.get("tools", [])):
        yield "a tool is no function"
    said = body.get("messages")
    if not isinstance(said, list) or not said:
        yield "no messages"
        return
    pending: set[str] = set()
    for message in said:
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
            yield from _assistant_faults(message, mind)
            pending = {one["id"] for one in message.get("tool_calls") or ()}
        elif not message.get("content"):
            yield f"an empty message of {role}"
        elif isinstance(message["content"], list):
            yield from _part_faults(message["content"], ("text", "image_url"))
    if pending:
        yield f"calls without an answer at the end: {sorted(pending)}"


def _assistant_faults(message: Mapping[str, Any], mind: openai_minds.Mind) -> Iterable[str]:
    calls = message.get("tool_calls")
    yield from (f"unknown field {name}" for name in message.keys() - _ASSISTANT - mind.fields)
    for one in calls or ():
        yield from (f"unknown field {name}" for name in one.keys() - _CALL - mind.call_fields)
    if calls is None and not message.get("content"):
        yield "an assistant's message without content or calls"
    if calls is not None and not calls:
        yield "tool_calls is empty"
    for one in calls or ():
        if not isinstance(one.get("id"), str) or not one["id"]:
            yield "a call without an id"
        yield from _argument_faults(one.get("function", {}))
    ids = [one.get("id") for one in calls or ()]
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
    if not set(names) <= {"type", "image_url", "detail"} or image.get("detail") not in _DETAILS:
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


def _responses_faults(body: Mapping[str, Any], mind: openai_minds.Mind) -> Iterable[str]:
    """Say what a server would refuse."""
    yield from (f"unknown parameter {name}" for name in body.keys() - _RESPONSES)
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
                item.get("id") and all(one["type"] == "output_text" for one in item["content"])
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
