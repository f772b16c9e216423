"""A language model that takes no time: each question contains its own answer.

The last question of the transcript is JSON: the model calls for each of its `codes`, then writes
its `answer`. It runs as a process of its own (`python -m bench.scripted_model`), like a real model,
and prints its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from interpreter_bot import settings


def make_question(codes: list[str], answer: str) -> str:
    """Make a question that lets the model run the codes, then write the answer."""
    return json.dumps({"codes": codes, "answer": answer})


@contextlib.asynccontextmanager
async def run_server() -> AsyncIterator[settings.Model]:
    """Run the model's process; yield the settings for it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.scripted_model"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        yield settings.Model(name="scripted", base_url=address, protocol="chat")
    finally:
        process.terminate()
        await process.wait()


async def _complete(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    messages = body["messages"]
    # Pictures that code showed are user messages with a list as content; questions are strings.
    question_index = max(
        index
        for index, message in enumerate(messages)
        if message["role"] == "user" and isinstance(message["content"], str)
    )
    script = json.loads(messages[question_index]["content"])
    call_count = sum(message["role"] == "tool" for message in messages[question_index:])
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if call_count < len(script["codes"]):
        arguments = json.dumps({"code": script["codes"][call_count]})
        function = {"name": "run_code", "arguments": arguments}
        call = {"index": 0, "id": f"call_{call_count}", "type": "function", "function": function}
        await _send(response, {"tool_calls": [call]}, None)
        await _send(response, {}, "tool_calls")
    else:
        for word in script["answer"].split(" "):
            await _send(response, {"content": word + " "}, None)
        await _send(response, {}, "stop")
    await response.write(b"data: [DONE]\n\n")
    return response


async def _list_models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})


async def _send(
    response: web.StreamResponse, delta: dict[str, Any], finish_reason: str | None
) -> None:
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    await response.write(f"data: {json.dumps(chunk)}\n\n".encode())


async def _serve() -> None:
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/v1/chat/completions", _complete)
    application.router.add_get("/v1/models", _list_models)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    # The parent process may be killed, which closes the pipe and so ends this process.
    await asyncio.to_thread(os.read, 0, 1)


if __name__ == "__main__":
    asyncio.run(_serve())
