"""One request of a client: its client, its body, and the turn that answers it.

A session is found by its id together with its client, so no client can use the id of another one.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import pydantic
from aiohttp import web

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import http_files, program_turns, request_limits
from interpreter_bot.platforms.api import documents
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import requests, session_service, turn_log
from interpreter_bot.wording import page_words, run_words

PLATFORM: Final = "api"

# Each pulse looks whether the client is gone; a comment keeps proxies from closing the connection.
_PULSE_SECONDS: Final = 1.0
_PULSES_PER_COMMENT: Final = 15
_COMMENT: Final = b":\n\n"


class NotFoundError(errors.BotError):
    """There is no such session."""


class UnauthorizedError(errors.BotError):
    """A token is needed."""


class TurnFailedError(errors.BotError):
    """The answer failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A request of a client.

    Attributes:
        client: the name of the client that has the token.
        path: the variable parts of the path, by name.
        body: the validated body; None if the request has none.
    """

    http: web.Request
    service: session_service.SessionService
    client: str
    path: Mapping[str, str]
    body: Any
    limits: request_limits.Limits

    def make_key(self, session_id: str = "") -> values.SessionKey:
        """Return the key of a session of this client; without an id, that of a new session."""
        thread = session_id or f"s-{secrets.token_hex(8)}"
        return values.SessionKey(PLATFORM, channel=self.client, thread=thread)

    async def find_session(self) -> values.SessionKey:
        """Return the key of the session that the path names.

        Raises:
            NotFoundError: the client has no such session.
        """
        key = self.make_key(self.path["session"])
        if not (key.thread.isascii() and await self.service.queries.exists(key)):
            raise NotFoundError
        return key

    def make_request(self, key: values.SessionKey, text: str, **fields: Any) -> requests.Request:
        """Return a request of this client in a session."""
        return requests.Request(key=key, person=requests.Person(self.client), text=text, **fields)

    async def events(
        self, request: requests.Request
    ) -> AsyncGenerator[events.TurnEvent | None, None]:
        """Run a request and yield its events, and None after each second without an event.

        Raises:
            ConnectionError: the client is gone; the turn is stopped.
        """
        turn = program_turns.stream_events(self.service, request, pulse_seconds=_PULSE_SECONDS)
        async with contextlib.aclosing(turn):
            async for event in turn:
                if is_disconnected(self.http):
                    raise ConnectionResetError("the client is gone")
                yield event

    async def log(self, request: requests.Request) -> turn_log.TurnLog:
        """Run a request to its end, and return what happened.

        Raises:
            ConnectionError: the client is gone; the turn is stopped.
        """
        log = turn_log.TurnLog()
        async with contextlib.aclosing(self.events(request)) as turn:
            async for event in turn:
                if event is not None:
                    log.apply(event)
        return log

    async def send_events(
        self, frames: AsyncGenerator[bytes | None, None], headers: dict[str, str]
    ) -> web.StreamResponse:
        """Send server-sent events as fast as the client reads.

        `frames` yields encoded events, and None after each second without an event.
        """
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"} | headers
        response = web.StreamResponse(headers=headers)
        await response.prepare(self.http)
        pulses = 0
        async with contextlib.aclosing(frames):
            async for frame in frames:
                pulses = 0 if frame else pulses + 1
                if frame or pulses % _PULSES_PER_COMMENT == 0:
                    await http_files.write_part(self.http, response, frame or _COMMENT)
        return response


def is_disconnected(http: web.Request) -> bool:
    """Return whether the client of a request has closed its connection."""
    return http.transport is None or http.transport.is_closing()


def make_response(document: pydantic.BaseModel, *, status: int = 200) -> web.Response:
    """Return a document as a response."""
    # Not encoded by pydantic, which refuses lone surrogates: code may show any text.
    return web.json_response(document.model_dump(mode="json"), status=status)


def describe_error(error: Exception) -> documents.ErrorDocument:
    """Return an error as a document for clients."""
    if isinstance(error, web.HTTPException):
        error = errors.BotError(page_words.REQUEST_CUT_OFF)
    kind = type(error).__name__ if isinstance(error, errors.BotError) else "InternalError"
    details = documents.ErrorDetails(message=run_words.error_sentence(error), type=kind)
    return documents.ErrorDocument(error=details)


def describe_event(event: events.TurnEvent) -> event_json.EventJson:
    """Return an event as JSON, with the content of pictures (Base64) and pages."""
    fields = event_json.to_json(event)
    match event:
        case events.OutputShown(output=values.Image(data=data)):
            fields["data"] = base64.b64encode(data).decode()
        case events.OutputShown(output=values.Html(html=html)):
            fields["html"] = html.decode("utf-8", "replace")
    return fields
