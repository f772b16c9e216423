"""OpenAI's chat completions, with this bot as the model, for any client of OpenAI's interface.

Clients send the whole conversation each time. It goes on in the session that a header names, or in
the session whose last turn answered the earlier messages: the id of a request is a digest of all
its messages. If no session is certain, a new one begins, whose model gets the earlier messages.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import mimetypes
import re
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any, Final

from aiohttp import web

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.api import calls, documents
from interpreter_bot.sessions import requests
from interpreter_bot.text import quantities
from interpreter_bot.wording import api_words, session_words

_log = logging.getLogger(__name__)

_MODEL_NAME: Final = "interpreter-bot"
_SESSION_HEADER: Final = "X-Session-Id"
# The second is Open WebUI's.
_SESSION_HEADERS: Final = (_SESSION_HEADER, "X-OpenWebUI-Chat-Id")
_MAX_PICTURE_BYTES: Final = 1024 * 1024
_MAX_ALT_CHARACTERS: Final = 80
_MAX_FILES: Final = 100
_COMPARED_CHARACTERS: Final = 60
_DATA_URL_PATTERN: Final = re.compile(
    r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*;base64,(.*)", re.DOTALL
)
# Pictures of our answers, which clients send back. No part of a match may begin another match:
# hostile text would take minutes.
_PICTURE_PATTERN: Final = re.compile(r"!\[([^\[\]]{0,80})\]\(data:[\w+/=;,.-]*\)")
_FAILED_STATUSES: Final = (values.TurnStatus.FAILED, values.TurnStatus.INTERRUPTED)


async def list_models(call: calls.Call) -> web.Response:
    """List the bot, alone and with each of its models."""
    names = [_MODEL_NAME, *(f"{_MODEL_NAME}/{title}" for title in call.service.queries.models)]
    common_fields = {"object": "model", "created": 0, "owned_by": _MODEL_NAME}
    return web.json_response(
        {"object": "list", "data": [{"id": name} | common_fields for name in names]}
    )


async def complete(call: calls.Call) -> web.StreamResponse:
    """Answer a conversation."""
    body: documents.ChatCompletion = call.body
    if body.tools or body.functions:
        raise errors.BotError(api_words.TAKES_NO_TOOLS)
    if (body.response_format or {}).get("type", "text") != "text":
        raise errors.BotError(api_words.ONLY_TEXT)
    name, _, title = body.model.partition("/")
    if name not in ("", _MODEL_NAME):
        raise calls.NotFoundError(api_words.no_model(_MODEL_NAME))
    if title:
        call.service.queries.check_model(title)
    conversation = await asyncio.to_thread(_Conversation.of, body)
    key, is_known = await _find_session(call, conversation, body.user)
    new_messages = (
        *(() if is_known else conversation.earlier_messages),
        *conversation.question_messages,
    )
    request = call.make_request(
        key,
        "\n\n".join(filter(None, map(_extract_text, conversation.question_messages))),
        id=conversation.id,
        model=title,
        recent=tuple(
            requests.RecentMessage(speaker=message.role, text=_extract_text(message))
            for message in (() if is_known else conversation.earlier_messages)
        ),
        context="" if is_known else conversation.system,
        attachments=await asyncio.to_thread(lambda: tuple(_read_attachments(new_messages))),
        is_attended=False,
    )
    base_fields: dict[str, Any] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": body.model or _MODEL_NAME,
    }
    headers = {_SESSION_HEADER: key.thread}
    if body.stream:
        has_usage = bool((body.stream_options or {}).get("include_usage"))
        return await call.send_events(
            _encode_chunks(call, request, base_fields, has_usage=has_usage), headers
        )
    log = await call.log(request)
    if log.end is None or log.end.status in _FAILED_STATUSES:
        raise calls.TurnFailedError(log.end.sentence if log.end is not None else None)
    message = {"role": "assistant", "content": "".join(map(_MarkdownWriter().write, log.events()))}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    base_fields |= {
        "object": "chat.completion",
        "choices": [choice],
        "usage": _describe_usage(log.usage),
    }
    return web.json_response(base_fields, headers=headers)


async def _encode_chunks(
    call: calls.Call, request: requests.Request, base_fields: dict[str, Any], *, has_usage: bool
) -> AsyncGenerator[bytes | None, None]:
    """Yield the chunks of an answer while the model writes it."""
    writer, usage, failure = _MarkdownWriter(), None, ""

    def chunk(*deltas: dict[str, Any], finish: str | None = None, **fields: object) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish} for delta in deltas]
        document = base_fields | {"object": "chat.completion.chunk", "choices": choices} | fields
        return _encode_event(document)

    yield chunk({"role": "assistant", "content": ""})
    async with contextlib.aclosing(call.events(request)) as turn:
        async for event in turn:
            if event is None:
                yield None
                continue
            if isinstance(event, events.UsageChanged):
                usage = event.usage
            elif isinstance(event, events.TurnEnded) and event.status in _FAILED_STATUSES:
                failure = event.sentence
            if text := writer.write(event):
                yield chunk({"content": text})
    if failure:
        yield _encode_event(calls.describe_error(calls.TurnFailedError(failure)).model_dump())
    else:
        yield chunk({}, finish="stop")
        if has_usage:
            yield chunk(usage=_describe_usage(usage))
    yield b"data: [DONE]\n\n"


def _encode_event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def _describe_usage(usage: values.Usage | None) -> dict[str, int]:
    usage = usage or values.Usage()
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
    }


class _MarkdownWriter:
    """Writes an answer as Markdown: text, pictures as data URLs, notices, and names of files."""

    def __init__(self) -> None:
        self._has_text = False
        self._is_new_paragraph = False
        self._remaining_picture_bytes = _MAX_PICTURE_BYTES
        self._files: dict[str, None] = {}

    def write(self, event: events.RecordedEvent) -> str:
        """Return the text that an event adds, which is often empty."""
        match event:
            case events.StepStarted():
                self._is_new_paragraph = True
            case events.TextAdded(text=text) if text:
                is_new, self._is_new_paragraph = self._is_new_paragraph, False
                return self._start_paragraph(text) if is_new else self._append(text)
            case events.OutputShown(output=values.Image(is_update=False) as image):
                if len(image.data) <= self._remaining_picture_bytes:
                    self._remaining_picture_bytes -= len(image.data)
                    return self._write_block(_draw_picture(image))
            case events.NoticeShown(text=text):
                return self._write_block(f"> {text}")
            case events.FileMade(artifact=artifact) if not artifact.is_shown:
                self._files[artifact.name.replace("`", "'")] = None
            case events.TurnEnded(status=status, sentence=sentence) if (
                status not in _FAILED_STATUSES
            ):
                files = [api_words.files_made(list(self._files))] if self._files else []
                return "".join(map(self._write_block, filter(None, [*files, sentence])))
        return ""

    def _write_block(self, text: str) -> str:
        self._is_new_paragraph = True
        return self._start_paragraph(text)

    def _start_paragraph(self, text: str) -> str:
        return self._append(f"\n\n{text}" if self._has_text else text)

    def _append(self, text: str) -> str:
        self._has_text = True
        return text


def _draw_picture(image: values.Image) -> str:
    alt = re.sub(r"[\[\]]", "", quantities.one_line(image.plain, _MAX_ALT_CHARACTERS))
    return f"![{alt}](data:{image.mime};base64,{base64.b64encode(image.data).decode()})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Conversation:
    """The conversation that a client sent.

    Attributes:
        system: the system messages, as one text.
        earlier_messages: messages that were answered.
        question_messages: the person's messages since.
        id: digest of all messages and of the person.
        previous_id: that digest of the request that was answered last; empty if there is none.
    """

    system: str
    earlier_messages: list[documents.ChatMessage]
    question_messages: list[documents.ChatMessage]
    id: str
    previous_id: str

    @classmethod
    def of(cls, body: documents.ChatCompletion) -> _Conversation:
        """Read a conversation.

        Raises:
            BotError: nobody asks anything in it.
        """
        messages = [message for message in body.messages if message.role in ("user", "assistant")]
        question_messages = _take_trailing(messages, "user")
        if not question_messages:
            raise errors.BotError(api_words.NO_QUESTION)
        earlier_messages = messages[: -len(question_messages)]
        answer_messages = _take_trailing(earlier_messages, "assistant")
        answered_messages = earlier_messages[: len(earlier_messages) - len(answer_messages)]
        system_messages = [
            message for message in body.messages if message.role not in ("user", "assistant")
        ]
        system = "\n\n".join(map(_extract_text, system_messages))
        if len(system) > requests.MAX_CHARACTERS:
            raise errors.BotError(session_words.message_too_long(requests.MAX_CHARACTERS))
        return cls(
            system=system,
            earlier_messages=earlier_messages,
            question_messages=question_messages,
            id=_compute_digest(body.user, messages),
            previous_id=_compute_digest(body.user, answered_messages) if answered_messages else "",
        )


def _take_trailing(messages: list[documents.ChatMessage], role: str) -> list[documents.ChatMessage]:
    """Return the messages of one role at the end of a conversation."""
    trailing = itertools.takewhile(lambda message: message.role == role, reversed(messages))
    return [*trailing][::-1]


def _compute_digest(user: str, messages: Iterable[documents.ChatMessage]) -> str:
    digest = hashlib.sha256(json.dumps(user).encode())
    for message in messages:
        urls = [url for _, url in _find_urls(message)]
        digest.update(json.dumps([message.role, _extract_text(message), urls]).encode())
    return digest.hexdigest()[:32]


def _find_urls(message: documents.ChatMessage) -> Iterator[tuple[str, str]]:
    """Yield the pictures and files of a message: a name, which may be empty, and a data URL.

    Raises:
        BotError: a part has another shape.
    """
    for part in message.content if isinstance(message.content, list) else ():
        match part:
            case {"type": "image_url", "image_url": {"url": str() as url}}:
                yield "", url
            case {"type": "file", "file": {"file_data": str() as url, **about}}:
                yield str(about.get("filename") or ""), url
            case {"type": "text"}:
                pass
            case _:
                raise errors.BotError(api_words.UNKNOWN_PART)


def _extract_text(message: documents.ChatMessage) -> str:
    """Return the text of a message, without the pictures of our answers."""
    content = message.content or ""
    if not isinstance(content, str):
        content = "\n".join(str(part["text"]) for part in content if "text" in part)
    return _PICTURE_PATTERN.sub(r"![\1]()", content).strip()


def _read_attachments(messages: Iterable[documents.ChatMessage]) -> Iterator[requests.Attachment]:
    """Yield the pictures and files of user messages.

    Raises:
        BotError: a picture or file is not in the request itself.
    """
    user_messages = [message for message in messages if message.role == "user"]
    urls = itertools.chain.from_iterable(map(_find_urls, user_messages))
    for number, (name, url) in enumerate(urls, 1):
        if number > _MAX_FILES:
            raise errors.BotError(api_words.too_many_files(_MAX_FILES))
        match = _DATA_URL_PATTERN.fullmatch(url)
        if match is None:
            raise errors.BotError(api_words.ONLY_DATA_URLS)
        try:
            data = base64.b64decode(match[2], validate=True)
        except binascii.Error as error:
            raise errors.BotError(api_words.ONLY_DATA_URLS) from error
        suffix = mimetypes.guess_extension(match[1] or "") or ""
        yield requests.attachment(name or f"file-{number}{suffix}", data)


async def _find_session(
    call: calls.Call, conversation: _Conversation, user: str
) -> tuple[values.SessionKey, bool]:
    """Return the session of a conversation, and whether it has the earlier messages."""
    queries = call.service.queries
    headers = filter(None, map(call.http.headers.get, _SESSION_HEADERS))
    if name := next(headers, ""):
        key = call.make_key(name)
        if not (name.isascii() and await queries.exists(key)):
            # The client chose the name, perhaps the same name for several people.
            digest = hashlib.sha256(json.dumps([user, name]).encode()).hexdigest()
            key = call.make_key(f"c-{digest[:32]}")
        await _rewind_session(call, key, conversation)
        return key, bool(await queries.latest_requests(key))
    if conversation.previous_id:
        candidates = await queries.find_answers(
            calls.PLATFORM, call.client, conversation.previous_id
        )
        answer = _remove_whitespace(
            "".join(map(_extract_text, _take_trailing(conversation.earlier_messages, "assistant")))
        )
        keys = {
            key
            for key, text in candidates
            if _remove_whitespace(text)[:_COMPARED_CHARACTERS] in answer
        }
        if len(keys) == 1 and await _rewind_session(call, key := keys.pop(), conversation):
            return key, True
    return call.make_key(), False


async def _rewind_session(
    call: calls.Call, key: values.SessionKey, conversation: _Conversation
) -> bool:
    """Return whether a session ends with the answer that comes before the question.

    If the session has one more answer, the person asks again or has edited the question, so that
    answer is undone.
    """
    latest_requests = (None, None, *await call.service.queries.latest_requests(key))
    previous_request, last_request = latest_requests[-2:]
    if last_request is None or not conversation.previous_id:
        return False
    if last_request[1] == conversation.previous_id:
        return True
    if previous_request is None or previous_request[1] != conversation.previous_id:
        return False
    try:
        await call.service.branches.undo(key, turn_id=last_request[0])
    except errors.BotError as error:
        _log.info("an answer that is replaced was not undone", exc_info=error)
        return False
    return True


def _remove_whitespace(text: str) -> str:
    return "".join(text.split())
