"""Rate limits of Discord, read from each response as it arrives.

discord.py waits out every limit, however long: it returns a response that used up a limit only
when the next request would be allowed. Its `max_ratelimit_timeout` is not used, because it raises
for any limit that resets later, even if requests are left. Calls that must not wait that long are
bounded here.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import aiohttp
import cachetools

_Result = TypeVar("_Result")

_MAX_ROUTES: Final = 10_000
_API_PREFIX: Final = re.compile(r"\A/api(?:/v\d+)?")
_MESSAGE_PATH: Final = re.compile(r"/messages/\d+")
_TOO_MANY_REQUESTS: Final = 429
_SUCCESS_STATUSES: Final = range(200, 300)


class RateLimits:
    """Watches the responses of one client.

    Attributes:
        trace: for the HTTP session of the client.
    """

    def __init__(self) -> None:
        self.trace = aiohttp.TraceConfig()
        self.trace.on_request_end.append(self._read_response)
        self._free_at = cachetools.LRUCache[str, float](_MAX_ROUTES)
        self._accepted_calls = cachetools.LRUCache[str, None](_MAX_ROUTES)
        self._global_until = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
        """Start a call that may take longer than its caller waits."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel the calls that still run."""
        for task in tuple(self._tasks):
            await self.cancel(task)

    async def _read_response(
        self, _session: object, _context: object, request: aiohttp.TraceRequestEndParams
    ) -> None:
        headers, status = request.response.headers, request.response.status
        call = f"{request.method} {_API_PREFIX.sub('', request.url.path)}"
        is_limited = status == _TOO_MANY_REQUESTS
        reset_after = headers.get("Retry-After" if is_limited else "X-RateLimit-Reset-After", "")
        free_at = time.monotonic() + _parse_seconds(reset_after)
        if status in _SUCCESS_STATUSES:
            self._accepted_calls[call] = None
        if headers.get("X-RateLimit-Scope") == "global":
            self._global_until = max(self._global_until, free_at)
        elif is_limited or headers.get("X-RateLimit-Remaining") == "0":
            self._free_at[_route(call)] = free_at

    def was_accepted(self, call: str) -> bool:
        """Return whether Discord accepted a call, such as `POST /channels/1/messages`."""
        return call in self._accepted_calls

    def seconds_left(self, call: str) -> float:
        """Return for how long Discord will refuse a call."""
        return max(self._free_at.get(_route(call), 0.0) - time.monotonic(), 0.0)

    async def within(self, seconds: float, call: Coroutine[Any, Any, _Result]) -> _Result:
        """Await a call for at most `seconds`.

        Raises:
            TimeoutError: it took longer, and was cancelled.
        """
        task = self.spawn(call, "bounded call of Discord")
        try:
            await asyncio.wait((task,), timeout=seconds)
            if task.done():
                return task.result()
            raise TimeoutError
        finally:
            await self.cancel(task)

    async def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a call.

        Waits for the end of a global limit first: a call that is cancelled during one never wakes
        the others (discord.py 2.7).
        """
        while not task.done() and (seconds_left := self._global_until - time.monotonic()) > 0:
            await asyncio.wait((task,), timeout=seconds_left)
        task.cancel()
        await asyncio.wait((task,))


def _route(call: str) -> str:
    """Return the key of the limit that a call counts against."""
    return _MESSAGE_PATH.sub("/messages/*", call)


def _parse_seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 24 * 3600.0)
    except ValueError:
        return 0.0
