"""An MCP server on loopback, made with the official SDK; a test can let it change, lie and hang."""

import asyncio
import contextlib
import socket

import mcp_types
import uvicorn
from mcp.server import lowlevel


def make_tool(name, description="", *, required=(), annotations=None, **properties):
    """Define a tool; its parameters are strings unless a schema is given."""
    schemas = {
        key: value if isinstance(value, dict) else {"type": "string", "description": value}
        for key, value in properties.items()
    }
    schema = {"type": "object", "properties": schemas, "required": list(required)}
    return mcp_types.Tool(
        name=name,
        description=description,
        input_schema=schema,
        annotations=annotations and mcp_types.ToolAnnotations(**annotations),
    )


class ToolServer:
    """A server.

    Attributes:
        tools: the tools that it lists.
        calls: names of the called tools, with their arguments.
        headers: headers of the requests.
        begun: set once a call has begun.
        cancelled: set once a call was cancelled.
        answer: makes the result of a call.
        raw: an ASGI application that answers requests in place of the SDK, or None.
    """

    def __init__(self, *tools, instructions=""):
        self.url = ""
        self.tools = list(tools)
        self.calls = []
        self.headers = []
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.raw = None
        self.answer = self.echo
        self.server = lowlevel.Server(
            "test", instructions=instructions, on_list_tools=self._list, on_call_tool=self._call
        )

    async def echo(self, context, name, arguments):
        return f"{name} {arguments}"

    async def _list(self, _, __):
        return mcp_types.ListToolsResult(tools=self.tools)

    async def _call(self, context, request):
        self.calls.append((request.name, request.arguments))
        self.begun.set()
        try:
            result = await self.answer(context, request.name, request.arguments)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if isinstance(result, mcp_types.CallToolResult):
            return result
        structured = None if isinstance(result, str) else result
        text = mcp_types.TextContent(type="text", text=str(result))
        return mcp_types.CallToolResult(content=[text], structured_content=structured)

    async def app(self, scope, receive, send):
        """Serve a request."""
        if scope["type"] == "http":
            self.headers.append({key.decode(): value.decode() for key, value in scope["headers"]})
            if self.raw is not None:
                return await self.raw(scope, receive, send)
        return await self.answer_by_sdk(scope, receive, send)

    async def answer_by_sdk(self, scope, receive, send):
        """Let the SDK answer a request."""
        await self._sdk_app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def serving(self):
        """Serve on loopback."""
        self._sdk_app = self.server.streamable_http_app()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            config = uvicorn.Config(
                self.app, interface="asgi3", log_config=None, timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            server.capture_signals = contextlib.nullcontext
            server_task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                async with asyncio.timeout(30):
                    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it.
                        await asyncio.sleep(0.01)
                yield self
            finally:
                server.should_exit = True
                await server_task


def fixed_response(data, *, status=200, media_type="application/json", **headers):
    """Return an application that gives every request this answer; `data` may be endless chunks."""

    async def app(scope, receive, send):
        fields = {"content-type": media_type} | headers
        header_list = [
            (key.replace("_", "-").encode(), value.encode()) for key, value in fields.items()
        ]
        await send({"type": "http.response.start", "status": status, "headers": header_list})
        if isinstance(data, bytes):
            await send({"type": "http.response.body", "body": data})
            return
        for chunk in data:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(0)

    return app
