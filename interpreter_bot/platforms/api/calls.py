"""One request of a client: whose it is, what it sent, and the turn that answers it.

A session is known by its id together with its client, so the id of another client's session names
none.
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
from interpreter_bot.platforms import http_files, program_turns
from interpreter_bot.platforms.api import documents, request_limits
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import requests, session_service, turn_log
from interpreter_bot.wording import page_words, run_words

PLATFORM: Final = "api"

# A client that is gone is noticed, and a connection kept by proxies.
_PULSE_SECONDS: Final = 1.0
_PULSES_PER_COMMENT: Final = 15
_COMMENT: Final = b":\n\n"


class UnknownError(errors.BotError):
    """There is no such session."""


class StrangerError(errors.BotError):
    """A token is needed."""


class TurnFailedError(errors.BotError):
    """The answer failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A request of a client.

    Attributes:
        http: the request itself.
        service: the conversations.
        client: its name, by its token.
        path: the parts of the path that vary, by name.
        body: the document that came along, checked; None if none did.
        limits: on what clients may make the bot hold.
    """

    http: web.Request
    service: session_service.SessionService
    client: str
    path: Mapping[str, str]
    body: Any
    limits: request_limits.Limits

    def key(self, session_id: str = "") -> values.SessionKey:
        """Return the key of a session of this client, without an id that of a new one."""
        thread = session_id or f"s-{secrets.token_hex(8)}"
        return values.SessionKey(PLATFORM, channel=self.client, thread=thread)

    async def session(self) -> values.SessionKey:
        """Return the key of the session that the path names.

        Raises:
            UnknownError: the client has no such session.
        """
        key = self.key(self.path["session"])
        if not (key.thread.isascii() and await self.service.queries.exists(key)):
            raise UnknownError
        return key

    def request(self, key: values.SessionKey, text: str, **fields: Any) -> requests.Request:
        """Return a request of this client in a session."""
        return requests.Request(key=key, person=requests.Person(self.client), text=text, **fields)

    async def events(
        self, request: requests.Request
    ) -> AsyncGenerator[events.TurnEvent | None, None]:
        """Run a request and give its events, None after each second without any.

        Raises:
            ConnectionError: the client is gone; the turn is stopped.
        """
        turn = program_turns.stream_events(self.service, request, pulse_seconds=_PULSE_SECONDS)
        async with contextlib.aclosing(turn):
            async for event in turn:
                if is_gone(self.http):
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

    async def stream(
        self, frames: AsyncGenerator[bytes | None, None], headers: dict[str, str]
    ) -> web.StreamResponse:
        """Send server-sent events as fast as the client reads; None is a second without any."""
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


def is_gone(http: web.Request) -> bool:
    """Return whether the client of a request has closed its connection."""
    return http.transport is None or http.transport.is_closing()


def answer(document: pydantic.BaseModel, *, status: int = 200) -> web.Response:
    """Return a document as a response."""
    # Not by pydantic, which refuses lone surrogates: code may show any text.
    return web.json_response(document.model_dump(mode="json"), status=status)


def fault(error: Exception) -> documents.Error:
    """Return an error as clients get it."""
    if isinstance(error, web.HTTPException):
        error = errors.BotError(page_words.REQUEST_CUT_OFF)
    kind = type(error).__name__ if isinstance(error, errors.BotError) else "InternalError"
    fault = documents.Fault(message=run_words.error_sentence(error), type=kind)
    return documents.Error(error=fault)


def document(event: events.TurnEvent) -> event_json.EventJson:
    """Return an event as JSON, with the content of pictures (Base64) and pages."""
    fields = event_json.to_json(event)
    match event:
        case events.OutputShown(output=values.Image(data=data)):
            fields["data"] = base64.b64encode(data).decode()
        case events.OutputShown(output=values.Html(html=html)):
            fields["html"] = html.decode("utf-8", "replace")
    return fields
