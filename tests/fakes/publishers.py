"""A server on loopback that has a model's file, and fails in known ways.

`ENGINE` is a program that serves the downloaded file, in place of the real engine.
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
    """Serves the file; `script` has a behavior for each request, and the last one repeats.

    A behavior is a status, or "ranges", "whole", "redirect" or "breaks". `ranges` has the header
    `Range` of each request.
    """

    script: list
    ranges: list = dataclasses.field(default_factory=list)
    content: bytes = CONTENT
    port: int = 0

    async def serve(self, request):
        self.ranges.append(request.headers.get("Range", ""))
        behavior = self.script[min(len(self.ranges), len(self.script)) - 1]
        if isinstance(behavior, int):
            return web.Response(status=behavior)
        start = int(self.ranges[-1].removeprefix("bytes=").rstrip("-") or 0)
        if behavior == "whole":
            start = 0
        if behavior == "redirect":
            self.script.append("ranges")
            raise web.HTTPFound("/elsewhere")
        data = self.content[start:]
        response = web.StreamResponse(status=206 if start else 200)
        response.content_length = len(data)
        await response.prepare(request)
        if behavior == "breaks":
            await response.write(data[:1_000_000])
            # Data that the client has not read yet is lost with the connection.
            await asyncio.sleep(0.05)
            request.transport.close()
        else:
            await response.write(data)
        return response

    @property
    def weights(self):
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
        publisher = cls(list(script or ["ranges"]))
        app = web.Application()
        app.router.add_get("/{name}", publisher.serve)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        publisher.port = runner.addresses[0][1]
        yield publisher
        await runner.cleanup()
