"""The requests of the HTTP interface: which there are, whose they are, what is wrong with them."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import re
from collections.abc import Callable
from typing import Final

import pydantic
from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms import client_tokens, http_runners
from interpreter_bot.platforms.api import (
    calls,
    chat_completions,
    documents,
    openapi,
    request_limits,
    session_calls,
)
from interpreter_bot.sessions import session_service
from interpreter_bot.wording import api_words

_log = logging.getLogger(__name__)

_SCHEME: Final = "bearer "
_CONVERSATION_BYTES: Final = 32 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
# Of a document. Millions of them take gigabytes, and nothing else goes on while they are read.
_MAX_JSON_VALUES: Final = 500_000
# What an object of Python takes, at least.
_JSON_VALUE_BYTES: Final = 64
_Route: Final = openapi.Route
_STATUSES: Final[dict[type[Exception], int]] = {
    web.HTTPRequestTimeout: 408,
    calls.StrangerError: 401,
    calls.TurnFailedError: 422,
    calls.UnknownError: 404,
    request_limits.ClientBusyError: 429,
    request_limits.ServerBusyError: 503,
    errors.FileMissingError: 404,
    errors.FileTooLargeError: 413,
    errors.BotError: 400,
}
_SESSION: Final = "/v1/sessions/{session}"
_FILE: Final = f"{_SESSION}/files/{{name}}"


async def _describe(call: calls.Call) -> web.Response:
    """Describe all requests (OpenAPI)."""
    return web.json_response(openapi.describe(ROUTES))


ROUTES: Final = (
    _Route("POST", "/v1/sessions", session_calls.begin, documents.NewSession, documents.Begun),
    _Route("GET", "/v1/sessions", session_calls.list_sessions, answer=documents.Sessions),
    _Route("DELETE", _SESSION, session_calls.delete, answer=documents.Done),
    _Route("POST", f"{_SESSION}/messages", session_calls.send, documents.Message, documents.Answer),
    _Route(
        "POST",
        f"{_SESSION}/answers",
        session_calls.answer_question,
        documents.QuestionAnswer,
        documents.Done,
    ),
    _Route("POST", f"{_SESSION}/stop", session_calls.stop, answer=documents.Done),
    _Route("GET", f"{_SESSION}/files", session_calls.list_files, answer=documents.Files),
    _Route("PUT", _FILE, session_calls.upload, answer=documents.Stored),
    _Route("GET", _FILE, session_calls.download),
    _Route("DELETE", _FILE, session_calls.delete_file, answer=documents.Done),
    _Route("GET", "/v1/models", chat_completions.list_models, answer=documents.OfOpenAi),
    _Route(
        "POST",
        "/v1/chat/completions",
        chat_completions.complete,
        documents.ChatCompletion,
        documents.OfOpenAi,
        max_bytes=_CONVERSATION_BYTES,
    ),
    _Route("GET", "/v1/openapi.json", _describe),
)


def _pattern(route: openapi.Route) -> re.Pattern[str]:
    """Return the pattern of a path; the name of a file may have slashes."""
    parts = re.escape(route.path).replace(r"\{session\}", "(?P<session>[^/]+)")
    return re.compile(parts.replace(r"\{name\}", "(?P<name>.+)"))


_PATTERNS: Final = tuple((_pattern(route), route) for route in ROUTES)


class Api:
    """The interface: one for all clients.

    Args:
        service: the conversations.
        data: the directory with the file of clients.
        limits: on what clients may make the bot hold.
    """

    def __init__(
        self,
        service: session_service.SessionService,
        data: pathlib.Path,
        limits: request_limits.Limits = request_limits.DEFAULT_LIMITS,
    ) -> None:
        self._service = service
        self._limits = limits
        self._body_memory = request_limits.BodyMemory(limits)
        self._tokens = client_tokens.ClientTokens(data / client_tokens.API_FILE)

        async def notify(key: values.SessionKey, text: str) -> None:
            """Say nothing: a client hears of its session with its next call."""

        service.notify_through(calls.PLATFORM, notify)

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer a request, or say in a sentence why not; its last net."""
        try:
            return await self._answer(http)
        except ConnectionError:
            if not calls.is_gone(http):
                raise
            # Nobody reads it; an error would fill the log.
            return web.Response()
        except Exception as error:
            if not isinstance(error, errors.BotError | web.HTTPException):
                _log.exception("a request of a client ended in an error")
            if http.writer.output_size:
                raise ConnectionError("a response that has begun can only break off") from error
            statuses = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
            return calls.answer(calls.fault(error), status=next(statuses, 500))

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        header = http.headers.get("Authorization", "")
        token = header[len(_SCHEME) :] if header.lower().startswith(_SCHEME) else ""
        client = self._tokens.find_client(token)
        if client is None:
            raise calls.StrangerError(api_words.NO_TOKEN)
        matches = ((pattern.fullmatch(http.path), route) for pattern, route in _PATTERNS)
        for match, route in matches:
            if match is not None and route.method == http.method:
                # Until the answer: the turn holds the body's pictures and files.
                with self._body_memory.open_account(client) as charge:
                    body = await _body(http, route, charge)
                    call = calls.Call(
                        http, self._service, client, match.groupdict(), body, self._limits
                    )
                    return await route.handle(call)
        raise calls.UnknownError(api_words.NO_SUCH_ADDRESS)


async def _body(
    http: web.Request, route: openapi.Route, charge: Callable[[int], None]
) -> pydantic.BaseModel | None:
    """Read the document that comes with a request.

    Args:
        http: the request.
        route: the limit and the fields of the document.
        charge: receives the number of bytes that the document takes, before they are kept.

    Raises:
        BotError: it is too large, or wrong, or has to wait.
    """
    if route.body is None:
        return None
    data = await http_runners.read_body(_read(http, route.max_bytes, charge))
    value_count = sum(map(data.count, (b"{", b"[", b",")))
    if value_count > _MAX_JSON_VALUES:
        raise errors.FileTooLargeError(api_words.TOO_MANY_VALUES)
    charge(value_count * _JSON_VALUE_BYTES)
    try:
        # In a thread, as it may be large.
        return await asyncio.to_thread(route.body.model_validate_json, data or b"{}")
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        raise errors.BotError(api_words.wrong_request(api_words.fault_phrases(details))) from error


async def _read(http: web.Request, max_bytes: int, charge: Callable[[int], None]) -> bytearray:
    if (http.content_length or 0) > max_bytes:
        raise errors.FileTooLargeError(api_words.too_large(max_bytes))
    data = bytearray()
    async for piece in http.content.iter_chunked(_PIECE_BYTES):
        if len(data) + len(piece) > max_bytes:
            raise errors.FileTooLargeError(api_words.too_large(max_bytes))
        charge(len(piece))
        data += piece
    return data
