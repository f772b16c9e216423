"""HTTP server for the events, commands and actions that Slack sends and signs."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.response import BoltResponse

from interpreter_bot import settings
from interpreter_bot.platforms import http_runners
from interpreter_bot.platforms.slack import api_errors
from interpreter_bot.wording import slack_words

_log = logging.getLogger(__name__)

PATH: Final = "/slack/events"
INSTALL_PATH: Final = "/slack/install"
REDIRECT_PATH: Final = "/slack/oauth_redirect"
_MAX_BYTES: Final = 2 * 1024 * 1024
_SHUTDOWN_SECONDS: Final = 3
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")

Handler = Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]


@contextlib.asynccontextmanager
async def serve(
    app: AsyncApp, config: settings.Slack, flow: AsyncOAuthFlow | None
) -> AsyncIterator[str]:
    """Listen; yield the address.

    Raises:
        SlackError: the address cannot be used.
    """
    server = web.Application(client_max_size=_MAX_BYTES)
    server.router.add_post(PATH, _aiohttp_handler(app.async_dispatch))
    if flow is not None:
        server.router.add_get(INSTALL_PATH, _aiohttp_handler(flow.handle_installation))
        server.router.add_get(REDIRECT_PATH, _aiohttp_handler(flow.handle_callback))
    runner = http_runners.make_runner(server, closing_seconds=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            raise api_errors.SlackError(
                slack_words.no_listener(f"{config.host}:{config.port}", error.strerror)
            ) from error
        host, port = runner.addresses[0][:2]
        address = f"http://{host}:{port}"
        _log.info("listening for Slack on %s", address)
        yield address
    finally:
        await runner.cleanup()


def _aiohttp_handler(handle: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        if not _has_valid_signature_headers(request):
            return web.Response(status=401)
        try:
            bolt_request = await http_runners.read_body(to_bolt_request(request))
        except (ValueError, LookupError, AttributeError, RecursionError):
            # Bolt parses a body before it checks the signature.
            return web.Response(status=400)
        return await to_aiohttp_response(await handle(bolt_request))

    return answer


def _has_valid_signature_headers(request: web.Request) -> bool:
    """Return whether bolt can compare the signature: it fails on others, and does not refuse."""
    timestamp = request.headers.get("X-Slack-Request-Timestamp", "0")
    signature = request.headers.get("X-Slack-Signature", "")
    return bool(_TIMESTAMP.fullmatch(timestamp)) and signature.isascii()
