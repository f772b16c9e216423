"""The requests of the HTTP interface: their routes, tokens, bodies, and errors."""

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
from interpreter_bot.platforms import client_tokens, http_runners, request_limits
from interpreter_bot.platforms.api import (
    calls,
    chat_completions,
    documents,
    openapi,
    session_calls,
)
from interpreter_bot.sessions import session_service
from interpreter_bot.wording import api_words

_log = logging.getLogger(__name__)

_AUTHORIZATION_SCHEME: Final = "bearer "
_MAX_CONVERSATION_BYTES: Final = 32 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
# Of one document. Millions of values take gigabytes, and parsing them blocks all other threads.
_MAX_JSON_VALUES: Final = 500_000
# The least that an object of Python takes.
_JSON_VALUE_BYTES: Final = 64
_Route: Final = openapi.Route
_STATUS_BY_ERROR: Final[dict[type[Exception], int]] = {
    web.HTTPRequestTimeout: 408,
    calls.UnauthorizedError: 401,
    calls.TurnFailedError: 422,
    calls.NotFoundError: 404,
    request_limits.ClientBusyError: 429,
    request_limits.ServerBusyError: 503,
    errors.FileMissingError: 404,
    errors.FileTooLargeError: 413,
    errors.BotError: 400,
}
_SESSION_PATH: Final = "/v1/sessions/{session}"
_FILE_PATH: Final = f"{_SESSION_PATH}/files/{{name}}"


async def _describe_api(call: calls.Call) -> web.Response:
    """Describe all requests (OpenAPI)."""
    return web.json_response(openapi.describe(ROUTES))


ROUTES: Final = (
    _Route(
        "POST",
        "/v1/sessions",
        session_calls.begin_session,
        documents.NewSession,
        documents.CreatedSession,
    ),
    _Route("GET", "/v1/sessions", session_calls.list_sessions, answer=documents.SessionList),
    _Route("DELETE", _SESSION_PATH, session_calls.delete_session, answer=documents.Outcome),
    _Route(
        "POST",
        f"{_SESSION_PATH}/messages",
        session_calls.send_message,
        documents.Message,
        documents.Answer,
    ),
    _Route(
        "POST",
        f"{_SESSION_PATH}/answers",
        session_calls.answer_question,
        documents.QuestionAnswer,
        documents.Outcome,
    ),
    _Route("POST", f"{_SESSION_PATH}/stop", session_calls.stop_turn, answer=documents.Outcome),
    _Route("GET", f"{_SESSION_PATH}/files", session_calls.list_files, answer=documents.FileList),
    _Route("PUT", _FILE_PATH, session_calls.upload_file, answer=documents.StoredFile),
    _Route("GET", _FILE_PATH, session_calls.download_file),
    _Route("DELETE", _FILE_PATH, session_calls.delete_file, answer=documents.Outcome),
    _Route("GET", "/v1/models", chat_completions.list_models, answer=documents.OpenAiDocument),
    _Route(
        "POST",
        "/v1/chat/completions",
        chat_completions.complete,
        documents.ChatCompletion,
        documents.OpenAiDocument,
        max_bytes=_MAX_CONVERSATION_BYTES,
    ),
    _Route("GET", "/v1/openapi.json", _describe_api),
)


def _compile_pattern(route: openapi.Route) -> re.Pattern[str]:
    """Return the pattern of a path; the name of a file may contain slashes."""
    parts = re.escape(route.path).replace(r"\{session\}", "(?P<session>[^/]+)")
    return re.compile(parts.replace(r"\{name\}", "(?P<name>.+)"))


_PATTERNS: Final = tuple((_compile_pattern(route), route) for route in ROUTES)


class Api:
    """The interface: one for all clients, whose file is in the directory `data`."""

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
            """Do nothing: a client learns of its session with its next call."""

        service.notify_through(calls.PLATFORM, notify)

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer a request; any error becomes a response with a sentence."""
        try:
            return await self._answer(http)
        except ConnectionError:
            if not calls.is_disconnected(http):
                raise
            # Nobody reads the response, and raising would log an error for each lost client.
            return web.Response()
        except Exception as error:
            if not isinstance(error, errors.BotError | web.HTTPException):
                _log.exception("a request of a client ended in an error")
            if http.writer.output_size:
                raise ConnectionError("a response that has begun can only break off") from error
            statuses = (
                status for kind, status in _STATUS_BY_ERROR.items() if isinstance(error, kind)
            )
            return calls.make_response(calls.describe_error(error), status=next(statuses, 500))

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        header = http.headers.get("Authorization", "")
        token = (
            header[len(_AUTHORIZATION_SCHEME) :]
            if header.lower().startswith(_AUTHORIZATION_SCHEME)
            else ""
        )
        client = self._tokens.find_client(token)
        if client is None:
            raise calls.UnauthorizedError(api_words.NO_TOKEN)
        matches = ((pattern.fullmatch(http.path), route) for pattern, route in _PATTERNS)
        for match, route in matches:
            if match is not None and route.method == http.method:
                # Charged until the answer, as the turn holds the body's pictures and files.
                with self._body_memory.open_account(client) as charge:
                    body = await _read_body(http, route, charge)
                    call = calls.Call(
                        http, self._service, client, match.groupdict(), body, self._limits
                    )
                    return await route.handle(call)
        raise calls.NotFoundError(api_words.NO_SUCH_ADDRESS)


async def _read_body(
    http: web.Request, route: openapi.Route, charge: Callable[[int], None]
) -> pydantic.BaseModel | None:
    """Read and validate the body of a request; return None if its route has none.

    `charge` is called with the number of bytes that the body takes, before they are kept.

    Raises:
        BotError: the body is too large or malformed, or the client has to wait.
    """
    if route.body is None:
        return None
    data = await http_runners.read_body(_read_bytes(http, route.max_bytes, charge))
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


async def _read_bytes(
    http: web.Request, max_bytes: int, charge: Callable[[int], None]
) -> bytearray:
    if (http.content_length or 0) > max_bytes:
        raise errors.FileTooLargeError(api_words.too_large(max_bytes))
    data = bytearray()
    async for piece in http.content.iter_chunked(_PIECE_BYTES):
        if len(data) + len(piece) > max_bytes:
            raise errors.FileTooLargeError(api_words.too_large(max_bytes))
        charge(len(piece))
        data += piece
    return data
