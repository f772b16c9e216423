"""Calls of Slack's Web API: in order per channel, rate-limited, each carried out once.

slack_sdk repeats calls that Slack asks to wait (429). A call whose response was lost may have been
carried out: one that must not happen twice is looked for before it is tried again.
"""

from __future__ import annotations

import asyncio
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
FindEffect: TypeAlias = Callable[[], Awaitable[Answer | None]]
"""Looks for the effect of a call whose response was lost; None if it had none."""

_POSTING_METHODS: Final = frozenset({"chat.postMessage", "files.completeUploadExternal"})
# Methods that may be called twice without harm.
_IDEMPOTENT_METHODS: Final = frozenset(
    {
        *("agents.sessions.setStatus", "assistant.threads.setSuggestedPrompts", "chat.delete"),
        *("chat.update", "conversations.history", "conversations.members", "conversations.open"),
        *("conversations.replies", "files.getUploadURLExternal", "files.info", "users.info"),
        *("usergroups.users.list", "views.publish"),
    }
)
# Beginnings of the methods that read JSON.
_JSON_PREFIXES: Final = ("agents.", "assistant.", "chat.", "views.")
# Methods that a workspace may lack because of its plan, its admins or the app's scopes.
_OPTIONAL_METHODS: Final = frozenset(
    {
        *("agents.sessions.setStatus", "assistant.threads.setSuggestedPrompts", "chat.startStream"),
        "conversations.members",
    }
)
_FEATURE_RETRY_SECONDS: Final = 3600.0
_MAX_BURST_MESSAGES: Final = 3
# A waiting message checks again after this share of the pause between two messages.
_LANE_CHECK_SHARE: Final = 0.02
# Slack has had longer outages; a call without a limit of its own waits this long.
MAX_OUTAGE_SECONDS: Final = 120.0
_FIRST_PAUSE_SECONDS: Final = 0.1
# How often a call that can wait is repeated because of Slack's rate limits.
_MAX_RATE_LIMIT_RETRIES: Final = 20
# How long it waits for them in all, while other calls wait behind it.
_MAX_RATE_LIMIT_SECONDS: Final = 900.0
# If messages wait in more channels than this, one may get a second lane and post faster than Slack
# allows. Its calls then wait for Slack's rate limit.
_MAX_LANES: Final = 4096
_MAX_REMEMBERED_POSTS: Final = 20_000
# Slack may refuse a valid token by mistake, so the call is repeated after these pauses.
_TOKEN_PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 4.0)


class WaitError(api_errors.SlackError):
    """Slack's rate limit lasts longer than the caller can wait."""


class _Lane:
    """Limits messages to one channel to about the rate that Slack accepts; first signs go first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._allowance = float(_MAX_BURST_MESSAGES)
        self._refilled_at = time.monotonic()
        # Each entry: whether it waits behind first signs, and its order of arrival.
        self._waiters: list[tuple[bool, int]] = []
        self._arrival_numbers = itertools.count()

    async def acquire(self, *, is_first_sign: bool) -> None:
        """Wait for permission to post."""
        waiter = (not is_first_sign, next(self._arrival_numbers))
        self._waiters.append(waiter)
        try:
            while True:
                now = time.monotonic()
                self._allowance = min(
                    _MAX_BURST_MESSAGES, self._allowance + (now - self._refilled_at) / self._seconds
                )
                self._refilled_at = now
                if self._allowance >= 1 and waiter == min(self._waiters):
                    self._allowance -= 1
                    return
                missing_share = max(1 - self._allowance, _LANE_CHECK_SHARE)
                await asyncio.sleep(missing_share * self._seconds)
        finally:
            self._waiters.remove(waiter)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Pauses and time limits of the platform.

    Attributes:
        posting_seconds: average time between two messages in a channel; Slack allows one a second.
        streaming_seconds: between two pieces of a streamed answer.
        editing_seconds: between two edits of an answer that cannot be streamed.
        starting_seconds: for a stream to begin; after that, the answer is posted instead.
        max_pause_seconds: between two tries of a call.
        sharing_seconds: until an uploaded file that Slack does not show is sent again.
        ping_seconds: longest silence of the connection before it is replaced.
        drain_seconds: for running answers to finish when the bot stops.
        look_back_seconds: messages that were missed in this time before a start are answered.
    """

    posting_seconds: float = 1.0
    streaming_seconds: float = 1.0
    editing_seconds: float = 3.0
    starting_seconds: float = 3.0
    max_pause_seconds: float = 5.0
    sharing_seconds: float = 12.0
    ping_seconds: float = 5.0
    drain_seconds: float = 10.0
    look_back_seconds: float = 3600.0


TIMING: Final = Timing()
"""The timing that fits Slack's rate limits."""


class WebApi:
    """Calls Slack."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        config: settings.Slack,
        workspaces: installations.InstalledWorkspaces,
        *,
        timing: Timing = TIMING,
        max_rate_limit_seconds: float = _MAX_RATE_LIMIT_SECONDS,
    ) -> None:
        """Call nothing yet.

        Args:
            max_rate_limit_seconds: how long a call that can wait waits for Slack's rate limits.
        """
        self.session: Final = session
        self._max_rate_limit_seconds = max_rate_limit_seconds
        self.config: Final = config
        self.timing: Final = timing
        self._workspaces = workspaces
        self._rate_limits = builtin_async_handlers.AsyncRateLimitErrorRetryHandler(
            _MAX_RATE_LIMIT_RETRIES
        )
        self._locks: weakref.WeakValueDictionary[tuple[str, str, str], asyncio.Lock]
        self._locks = weakref.WeakValueDictionary()
        self._lanes = cachetools.LRUCache[tuple[str, str], _Lane](_MAX_LANES)
        self._posted = cachetools.LRUCache[tuple[str, str], None](_MAX_REMEMBERED_POSTS)
        self._lacking_until: dict[tuple[str, str], float] = {}

    def has_posted(self, channel: str, ts: str) -> bool:
        """Return whether this process posted a message, as far as it remembers."""
        return (channel, ts) in self._posted

    def lacks(self, team: str, feature: str) -> bool:
        """Return whether a workspace is known to lack a method or another feature."""
        return self._lacking_until.get((team, feature), 0.0) > time.monotonic()

    def note_lacking(self, team: str, feature: str, seconds: float) -> None:
        """Record that a workspace lacks a method or feature, for some seconds."""
        self._lacking_until[team, feature] = time.monotonic() + seconds

    async def call(
        self,
        workspace: installations.InstalledWorkspace,
        method: str,
        *,
        find: FindEffect | None = None,
        max_seconds: float = MAX_OUTAGE_SECONDS,
        is_first_sign: bool = False,
        **arguments: Any,
    ) -> Answer:
        """Call a method.

        Args:
            workspace: of the token.
            method: such as `chat.postMessage`.
            find: looks for the effect, if the call must not be repeated; see `FindEffect`.
            max_seconds: how long it is repeated while Slack cannot be reached; if less than the
                default, it does not wait for Slack's rate limits either.
            is_first_sign: it is posted before other messages that wait.
            arguments: of the method; None leaves one out.

        Raises:
            RefusedError: Slack refused the call.
            LostError: Slack could not be reached, or the outcome is unknown.
            WaitError: the rate limit lasts longer than the call waits.
            GoneError: Slack repeatedly refused the token.
        """
        sent_arguments = {name: value for name, value in arguments.items() if value is not None}
        channel = str(sent_arguments.get("channel") or sent_arguments.get("channel_id") or "")
        # Messages of a thread are sent one by one, so that they keep their order. It also lets a
        # stream be found whose response was lost, as all other streams of the thread are known.
        thread = workspace.team, channel, str(sent_arguments.get("thread_ts", ""))
        lock = self._locks.setdefault(thread, asyncio.Lock())
        if method in _POSTING_METHODS and channel:
            async with lock:
                lane = self._lanes.setdefault(
                    (workspace.team, channel), _Lane(self.timing.posting_seconds)
                )
                await lane.acquire(is_first_sign=is_first_sign)
                answer = await self._call(workspace, method, sent_arguments, find, max_seconds)
        elif method == "chat.startStream":
            async with lock:
                answer = await self._call(workspace, method, sent_arguments, find, max_seconds)
                self._note_posted(channel, answer)
        else:
            answer = await self._call(workspace, method, sent_arguments, find, max_seconds)
        if method == "chat.postMessage":
            self._note_posted(channel, answer)
        return answer

    def _note_posted(self, channel: str, answer: Answer) -> None:
        self._posted[channel, str(answer.get("ts"))] = None

    async def _call(
        self,
        workspace: installations.InstalledWorkspace,
        method: str,
        arguments: dict[str, Any],
        find: FindEffect | None,
        max_seconds: float,
    ) -> Answer:
        max_pause = self.timing.max_pause_seconds
        pauses = (min(_FIRST_PAUSE_SECONDS * 2**attempt, max_pause) for attempt in range(1000))
        token_pauses = iter(_TOKEN_PAUSES_SECONDS)
        broken_since: float | None = None
        while True:
            try:
                return await self._call_once(workspace, method, arguments, max_seconds)
            except api_errors.GoneError as error:
                if self._workspaces.is_revoked(workspace.team):
                    raise
                if (token_pause := next(token_pauses, None)) is None:
                    self._workspaces.drop_token(workspace.team, error)
                    raise
                if token_pause > max_seconds:
                    raise
                _log.warning("Slack refused the token; asking again: %s", error)
                await asyncio.sleep(token_pause)
            except _NoResponseError as error:
                broken_since = broken_since or time.monotonic()
                await asyncio.sleep(next(pauses))
                if error.may_have_run and method not in _IDEMPOTENT_METHODS:
                    if find is None:
                        raise api_errors.LostError from error
                    if (answer := await find()) is not None:
                        return answer
                # Only now, so that a message is looked for once more before the call gives up.
                if time.monotonic() - broken_since > max_seconds:
                    raise api_errors.LostError from error

    async def _call_once(
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
        client = self._client(workspace, can_wait=max_seconds >= MAX_OUTAGE_SECONDS)
        is_json = method.startswith(_JSON_PREFIXES)
        deadline = asyncio.timeout(self._max_rate_limit_seconds)
        try:
            async with deadline:
                if is_json:
                    response = await client.api_call(method, json=arguments)
                else:
                    response = await client.api_call(method, data=_form(arguments))
        except sdk_errors.SlackApiError as error:
            raise self._translate(workspace.team, method, error) from error
        except aiohttp.ClientConnectorError as error:
            raise _NoResponseError(may_have_run=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if deadline.expired():
                raise WaitError(slack_words.RATE_LIMITED) from error
            raise _NoResponseError(may_have_run=True) from error
        return dict(response.data) if isinstance(response.data, dict) else {}

    def _translate(self, team: str, method: str, error: sdk_errors.SlackApiError) -> Exception:
        response = error.response
        # If the body was no JSON, this is the response of aiohttp, without data.
        status = int(getattr(response, "status_code", 0) or getattr(response, "status", 200))
        data = getattr(response, "data", None)
        code = str(data.get("error", "")) if isinstance(data, dict) else ""
        if status == 429:
            return WaitError(slack_words.RATE_LIMITED)
        if code in api_errors.RATE_LIMIT_CODES:
            # Without a header that says how long, so slack_sdk does not repeat it.
            return _NoResponseError(may_have_run=False)
        if status >= 500 or code in api_errors.TEMPORARY_CODES or not code:
            return _NoResponseError(may_have_run=True)
        refusal = api_errors.error_of_code(method, code)
        if not isinstance(refusal, api_errors.GoneError):
            _log.info("Slack refused %s: %s", method, code)
        if method in _OPTIONAL_METHODS and code in api_errors.MISSING_FEATURE_CODES:
            # Tried again after a while, as the plan may change, or the app be installed again.
            self.note_lacking(team, method, _FEATURE_RETRY_SECONDS)
        return refusal

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
    """Encode arguments for a form, in which Slack wants 1 and 0 for booleans."""
    return {
        name: int(value) if isinstance(value, bool) else value for name, value in arguments.items()
    }


class _NoResponseError(Exception):
    """No response came, or none of Slack. With `may_have_run` the call may have taken effect."""

    def __init__(self, *, may_have_run: bool) -> None:
        super().__init__("no answer")
        self.may_have_run = may_have_run
