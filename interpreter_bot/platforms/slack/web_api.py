"""Calls of Slack's Web API: in order per channel, rate-limited, each carried out once.

A call that is asked to wait (429) is repeated by slack_sdk. A call whose response was lost may have
been carried out: what must not happen twice is looked for before it is tried again.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import aiohttp
import cachetools
from slack_sdk import errors as sdk_errors
from slack_sdk.http_retry import builtin_async_handlers
from slack_sdk.web.async_client import AsyncWebClient

from interpreter_bot import settings
from interpreter_bot.platforms.slack import api_errors, installations
from interpreter_bot.wording import slack_words

_log = logging.getLogger(__name__)

Answer: TypeAlias = dict[str, Any]
Find: TypeAlias = Callable[[], Awaitable[Answer | None]]
"""Looks for the effect of a call whose response was lost; None if it had none."""

_POSTING: Final = frozenset({"chat.postMessage", "files.completeUploadExternal"})
# Methods that are idempotent.
_REPEATABLE: Final = frozenset(
    {
        *("agents.sessions.setStatus", "assistant.threads.setSuggestedPrompts", "chat.delete"),
        *("chat.update", "conversations.history", "conversations.open"),
        *("conversations.replies", "files.info"),
        *("files.getUploadURLExternal", "users.info", "usergroups.users.list", "views.publish"),
    }
)
# Methods that do not read JSON.
_READS_JSON: Final = ("agents.", "assistant.", "chat.", "views.")
# Methods that not every workspace has: its plan, its admins or the app's scopes may leave it out.
_OPTIONAL: Final = frozenset(
    {"agents.sessions.setStatus", "assistant.threads.setSuggestedPrompts", "chat.startStream"}
)
_LACKING_SECONDS: Final = 3600.0
_BURST: Final = 3
# Of the pause between two messages, how long one waits that has others before it.
_LANE_CHECK: Final = 0.02
# Slack was away for longer now and then; a call that is waited for is not given up sooner.
LONGEST_OUTAGE_SECONDS: Final = 120.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
# How often a call that can wait is repeated because of Slack's rates.
_MAX_LIMITED: Final = 20
# How long it waits for them in all, while others wait behind it.
_MAX_LIMITED_SECONDS: Final = 900.0
_MAX_LANES: Final = 4096
_MAX_MADE: Final = 20_000
# A single refusal of the token may be a fault of Slack's, so it is asked again after such pauses.
_TOKEN_PAUSES: Final = (0.5, 1.0, 2.0, 4.0)


class WaitError(api_errors.SlackError):
    """Slack's rate limit lasts longer than the caller can wait."""


class _Lane:
    """Messages to one channel: about as many a second as Slack takes, first signs first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left = float(_BURST)
        self._seen = time.monotonic()
        self._waiting: list[tuple[bool, int]] = []
        self._numbers = itertools.count()

    @property
    def is_used(self) -> bool:
        """Whether anybody waits to post."""
        return bool(self._waiting)

    async def take(self, *, is_first_sign: bool) -> None:
        """Wait for permission to post."""
        place = (not is_first_sign, next(self._numbers))
        self._waiting.append(place)
        try:
            while True:
                now = time.monotonic()
                self._left = min(_BURST, self._left + (now - self._seen) / self._seconds)
                self._seen = now
                if self._left >= 1 and place == min(self._waiting):
                    self._left -= 1
                    return
                missing = max(1 - self._left, _LANE_CHECK)
                await asyncio.sleep(missing * self._seconds)
        finally:
            self._waiting.remove(place)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long the platform waits for what.

    Attributes:
        posting_seconds: average time between two messages in a channel; Slack allows one a second.
        streaming_seconds: between two pieces of a streamed answer.
        editing_seconds: between two edits of an answer that cannot be streamed.
        sharing_seconds: until an uploaded file that Slack does not show is sent again.
        ping_seconds: longest silence of the connection before it is replaced.
        drain_seconds: for running answers to finish when the bot stops.
    """

    posting_seconds: float = 1.0
    streaming_seconds: float = 1.0
    editing_seconds: float = 3.0
    sharing_seconds: float = 12.0
    ping_seconds: float = 5.0
    drain_seconds: float = 10.0


TIMING: Final = Timing()
"""What Slack's own rates ask for."""


class WebApi:
    """Calls Slack."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        config: settings.Slack,
        known: installations.InstalledWorkspaces,
        *,
        timing: Timing = TIMING,
        max_limited_seconds: float = _MAX_LIMITED_SECONDS,
    ) -> None:
        """Call nothing yet.

        Args:
            max_limited_seconds: how long a call that can wait does so because of Slack's rates.
        """
        self.session: Final = session
        self._max_limited_seconds = max_limited_seconds
        self.config: Final = config
        self.timing: Final = timing
        self._workspaces = known
        self._rate_limits = builtin_async_handlers.AsyncRateLimitErrorRetryHandler(_MAX_LIMITED)
        self._locks: weakref.WeakValueDictionary[tuple[str, str, str], asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()
        self._lanes: collections.OrderedDict[tuple[str, str], _Lane] = collections.OrderedDict()
        self._made = cachetools.LRUCache[tuple[str, str], None](_MAX_MADE)
        self._lacking: dict[tuple[str, str], float] = {}

    def has_made(self, channel: str, ts: str) -> bool:
        """Return whether a message is one that this process posted and knows of."""
        return (channel, ts) in self._made

    def lacks(self, team: str, feature: str) -> bool:
        """Return whether a workspace is known to lack a method or another feature."""
        return self._lacking.get((team, feature), 0.0) > time.monotonic()

    def note_lacking(self, team: str, feature: str, seconds: float) -> None:
        """Record that, for a while."""
        self._lacking[team, feature] = time.monotonic() + seconds

    async def call(
        self,
        workspace: installations.InstalledWorkspace,
        method: str,
        *,
        find: Find | None = None,
        max_seconds: float = LONGEST_OUTAGE_SECONDS,
        is_first_sign: bool = False,
        **arguments: Any,
    ) -> Answer:
        """Call a method.

        Args:
            workspace: whose token is used.
            method: such as `chat.postMessage`.
            find: for what must not be done twice, see `Find`.
            max_seconds: how long it is tried again while Slack cannot be reached; less than
                usual, it does not wait for Slack's rates either.
            is_first_sign: it is posted before messages that wait for their turn.
            arguments: of the method; None leaves one out.

        Raises:
            RefusedError: Slack said no.
            LostError: it could not be reached, or whether it did it is not known.
            WaitError: it is limited for longer than it waits.
            GoneError: it does not accept the token, also not when asked again.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        channel = str(given.get("channel") or given.get("channel_id") or "")
        # One message after the other in a thread: they keep their order, and a stream that is found
        # after its answer was lost is surely the lost one when every other one is known.
        lock = self._lock((workspace.team, channel, str(given.get("thread_ts", ""))))
        if method in _POSTING and channel:
            async with lock:
                lane = self._lane(workspace.team, channel)
                await lane.take(is_first_sign=is_first_sign)
                answer = await self._call(workspace, method, given, find, max_seconds)
        elif method == "chat.startStream":
            async with lock:
                answer = await self._call(workspace, method, given, find, max_seconds)
                self._remember(channel, answer)
        else:
            answer = await self._call(workspace, method, given, find, max_seconds)
        if method == "chat.postMessage":
            self._remember(channel, answer)
        return answer

    def _remember(self, channel: str, answer: Answer) -> None:
        self._made[channel, str(answer.get("ts"))] = None

    def _lock(self, thread: tuple[str, str, str]) -> asyncio.Lock:
        lock = self._locks.get(thread) or asyncio.Lock()
        self._locks[thread] = lock
        return lock

    def _lane(self, team: str, channel: str) -> _Lane:
        key = (team, channel)
        lane = self._lanes.pop(key, None) or _Lane(self.timing.posting_seconds)
        self._lanes[key] = lane
        while len(self._lanes) > _MAX_LANES:
            oldest = next(iter(self._lanes))
            if self._lanes[oldest].is_used:
                break
            del self._lanes[oldest]
        return lane

    async def _call(
        self,
        workspace: installations.InstalledWorkspace,
        method: str,
        arguments: dict[str, Any],
        find: Find | None,
        max_seconds: float,
    ) -> Answer:
        pauses = (min(_FIRST_PAUSE_SECONDS * 2**n, _LONGEST_PAUSE_SECONDS) for n in range(1000))
        token_pauses = iter(_TOKEN_PAUSES)
        broken: float | None = None
        while True:
            try:
                return await self._once(workspace, method, arguments, max_seconds)
            except api_errors.GoneError as error:
                if self._workspaces.is_revoked(workspace.team):
                    raise
                if (token_pause := next(token_pauses, None)) is None:
                    self._workspaces.leave(workspace.team, error)
                    raise
                if token_pause > max_seconds:
                    raise
                _log.warning("Slack refused the token; asking again: %s", error)
                await asyncio.sleep(token_pause)
            except _BrokenError as error:
                broken = broken or time.monotonic()
                await asyncio.sleep(next(pauses))
                if error.may_be_done and method not in _REPEATABLE:
                    if find is None:
                        raise api_errors.LostError from error
                    if (answer := await find()) is not None:
                        return answer
                # Only now: what was done is not to be left behind unknown.
                if time.monotonic() - broken > max_seconds:
                    raise api_errors.LostError from error

    async def _once(
        self,
        workspace: installations.InstalledWorkspace,
        method: str,
        arguments: dict[str, Any],
        max_seconds: float,
    ) -> Answer:
        if self._workspaces.is_revoked(workspace.team):
            raise api_errors.GoneError(method, "token_revoked")
        if self.lacks(workspace.team, method):
            raise api_errors.RefusedError(method, "feature_not_enabled")
        client = self._client(workspace, can_wait=max_seconds >= LONGEST_OUTAGE_SECONDS)
        is_json = method.startswith(_READS_JSON)
        deadline = asyncio.timeout(self._max_limited_seconds)
        try:
            async with deadline:
                if is_json:
                    response = await client.api_call(method, json=arguments)
                else:
                    response = await client.api_call(method, data=_form(arguments))
        except sdk_errors.SlackApiError as error:
            raise self._translated(workspace.team, method, error) from error
        except aiohttp.ClientConnectorError as error:
            raise _BrokenError(may_be_done=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if deadline.expired():
                raise WaitError(slack_words.RATE_LIMITED) from error
            raise _BrokenError(may_be_done=True) from error
        return dict(response.data) if isinstance(response.data, dict) else {}

    def _translated(self, team: str, method: str, error: sdk_errors.SlackApiError) -> Exception:
        response = error.response
        # Where the body was no JSON, what is there is the response of aiohttp.
        status = int(getattr(response, "status_code", 0) or getattr(response, "status", 200))
        data = getattr(response, "data", None)
        code = str(data.get("error", "")) if isinstance(data, dict) else ""
        if status == 429:
            return WaitError(slack_words.RATE_LIMITED)
        if code in api_errors.LIMITED:
            # Without how long, so slack_sdk does not repeat it.
            return _BrokenError(may_be_done=False)
        if status >= 500 or code in api_errors.PASSING or not code:
            return _BrokenError(may_be_done=True)
        refused = api_errors.refused(method, code)
        if not isinstance(refused, api_errors.GoneError):
            _log.info("Slack refused %s: %s", method, code)
        if method in _OPTIONAL and code in api_errors.LACKING:
            # Asked anew in a while: the plan may change, or the app be installed again.
            self.note_lacking(team, method, _LACKING_SECONDS)
        return refused

    def _client(
        self, workspace: installations.InstalledWorkspace, *, can_wait: bool
    ) -> AsyncWebClient:
        return AsyncWebClient(
            token=workspace.token,
            base_url=self.config.api_base_url,
            session=self.session,
            retry_handlers=[self._rate_limits] if can_wait else [],
        )


def _form(arguments: dict[str, Any]) -> dict[str, Any]:
    """Write arguments as Slack reads forms, where `True` would be a word."""
    return {n: int(v) if isinstance(v, bool) else v for n, v in arguments.items()}


class _BrokenError(Exception):
    """No answer came, or none of Slack's. `may_be_done` says that it may have been done."""

    def __init__(self, *, may_be_done: bool) -> None:
        super().__init__("no answer")
        self.may_be_done = may_be_done
