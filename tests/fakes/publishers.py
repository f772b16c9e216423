"""A server on loopback that has a model's file, and misbehaves in known ways.

`ENGINE` is the process that then serves that file, in place of the real one.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import pathlib

from aiohttp import web

from interpreter_bot.agent.llms.embedded import model_files

ENGINE = pathlib.Path(__file__).with_name("engine_script.py")
CONTENT = b"GGUF{" + b" " * 3_000_000 + b"}"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclasses.dataclass
class Publisher:
    """Serves the file; `script` has one way of doing so for each request, the last for ever."""

    script: list
    asked: list = dataclasses.field(default_factory=list)
    content: bytes = CONTENT
    port: int = 0

    async def serve(self, request):
        self.asked.append(request.headers.get("Range", ""))
        way = self.script[min(len(self.asked), len(self.script)) - 1]
        if isinstance(way, int):
            return web.Response(status=way)
        start = int(self.asked[-1].removeprefix("bytes=").rstrip("-") or 0)
        if way == "whole":
            start = 0
        if way == "redirect":
            self.script.append("ranges")
            raise web.HTTPFound("/elsewhere")
        data = self.content[start:]
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = len(data)
        await response.prepare(request)
        if way == "breaks":
            await response.write(data[:1_000_000])
            # What the other side has not taken up yet is lost with the connection.
            await asyncio.sleep(0.05)
            request.transport.close()
        else:
            await response.write(data)
        return response

    @property
    def wanted(self):
        return model_files.Weights(
            alias="m",
            title="M",
            url=f"http://127.0.0.1:{self.port}/m.gguf",
            size_bytes=len(CONTENT),
            sha256=DIGEST,
            licence="Free.",
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, *script):
        """Serve."""
        one = cls(list(script or ["ranges"]))
        app = web.Application()
        app.router.add_get("/{name}", one.serve)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        one.port = runner.addresses[0][1]
        yield one
        await runner.cleanup()
