"""Runners of HTTP servers that strangers can reach: their time limits, and their log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

from aiohttp import http_exceptions, web

from interpreter_bot.wording import page_words

_SILENT_SECONDS: Final = 20.0
"""How long a connection may be open without a complete request, and a body may take."""
_T = TypeVar("_T")


class _ClientFaults(logging.Filter):
    """Logs in a line that a stranger sent no HTTP, instead of a traceback of the library."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the traceback away; it says nothing about us."""
        if record.exc_info and isinstance(record.exc_info[1], http_exceptions.HttpProcessingError):
            record.exc_info = None
            record.levelno, record.levelname = logging.INFO, "INFO"
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


_log = logging.getLogger(__name__)
_log.addFilter(_ClientFaults())


def runner(application: web.Application, *, closing_seconds: float) -> web.AppRunner:
    """Return the runner of an application; it has no access log, which would hold secrets.

    Args:
        closing_seconds: how long requests may go on at the end.
    """
    return web.AppRunner(
        application,
        access_log=None,
        logger=_log,
        keepalive_timeout=_SILENT_SECONDS,
        shutdown_timeout=closing_seconds,
    )


async def body(reading: Awaitable[_T]) -> _T:
    """Read the body of a request that anybody may send.

    Raises:
        HTTPRequestTimeout: it does not come.
    """
    try:
        async with asyncio.timeout(_SILENT_SECONDS):
            return await reading
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text=page_words.REQUEST_CUT_OFF) from error
