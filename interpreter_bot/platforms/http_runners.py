"""Runners of HTTP servers that strangers can reach: their time limits, and their log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

from aiohttp import http_exceptions, web

from interpreter_bot.wording import page_words

_SILENT_SECONDS: Final = 20.0
"""How long a connection may have no complete request, and how long a body may take."""
_T = TypeVar("_T")


class _InvalidRequestFilter(logging.Filter):
    """Logs an invalid HTTP request in one line, without the traceback of the library."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback, which says nothing about this program."""
        if record.exc_info and isinstance(record.exc_info[1], http_exceptions.HttpProcessingError):
            record.exc_info = None
            record.levelno, record.levelname = logging.INFO, "INFO"
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


_log = logging.getLogger(__name__)
_log.addFilter(_InvalidRequestFilter())


def make_runner(application: web.Application, *, closing_seconds: float) -> web.AppRunner:
    """Return the runner of an application; an access log would contain secrets, so there is none.

    Args:
        closing_seconds: how long running requests may take once the server closes.
    """
    return web.AppRunner(
        application,
        access_log=None,
        logger=_log,
        keepalive_timeout=_SILENT_SECONDS,
        shutdown_timeout=closing_seconds,
    )


async def read_body(body: Awaitable[_T]) -> _T:
    """Read the body of a request that anybody may send.

    Raises:
        HTTPRequestTimeout: it does not arrive in time.
    """
    try:
        async with asyncio.timeout(_SILENT_SECONDS):
            return await body
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text=page_words.REQUEST_CUT_OFF) from error
