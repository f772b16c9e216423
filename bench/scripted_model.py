"""A language model that takes no time: it answers what the question itself tells it to.

The last question of the transcript is JSON: `codes` are called for one after the other, then
`answer` is said. Runs in a process of its own (`python -m bench.scripted_model`), as a model does,
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


def question(codes: list[str], answer: str) -> str:
    """Write a question that is answered by running codes, then in words."""
    return json.dumps({"codes": codes, "answer": answer})


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[settings.Model]:
    """Run one, and say how the settings name it."""
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
    told = body["messages"]
    # Pictures of code are shown to it as a person's, in parts; questions are words.
    last = max(
        place
        for place, one in enumerate(told)
        if one["role"] == "user" and isinstance(one["content"], str)
    )
    script = json.loads(told[last]["content"])
    done = sum(one["role"] == "tool" for one in told[last:])
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if done < len(script["codes"]):
        arguments = json.dumps({"code": script["codes"][done]})
        function = {"name": "run_code", "arguments": arguments}
        call = {"index": 0, "id": f"call_{done}", "type": "function", "function": function}
        await _send(response, {"tool_calls": [call]}, None)
        await _send(response, {}, "tool_calls")
    else:
        for word in script["answer"].split(" "):
            await _send(response, {"content": word + " "}, None)
        await _send(response, {}, "stop")
    await response.write(b"data: [DONE]\n\n")
    return response


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})


async def _send(response: web.StreamResponse, delta: dict[str, Any], finish: str | None) -> None:
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    await response.write(f"data: {json.dumps(chunk)}\n\n".encode())


async def _be_model() -> None:
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/v1/chat/completions", _complete)
    application.router.add_get("/v1/models", _models)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    # Whoever started it may be killed; the end of the pipe is the end of it.
    await asyncio.to_thread(os.read, 0, 1)


if __name__ == "__main__":
    asyncio.run(_be_model())
