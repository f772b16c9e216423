"""OpenAI's chat completions, with this bot as the model: any of their clients can use it.

Clients send the whole conversation each time. It goes on in the session that a header names, or in
the one whose turn answered the same messages before: the id of a request is a digest of all its
messages. Whatever is not certain begins a new session, which is told what was said.
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

_MODEL: Final = "interpreter-bot"
_SESSION_HEADER: Final = "X-Session-Id"
# The second is Open WebUI's.
_SESSION_HEADERS: Final = (_SESSION_HEADER, "X-OpenWebUI-Chat-Id")
_PICTURE_BYTES: Final = 1024 * 1024
_ALT_CHARACTERS: Final = 80
_MAX_FILES: Final = 100
_COMPARED_CHARACTERS: Final = 60
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*;base64,(.*)", re.DOTALL)
# Pictures of ours in what clients send back. No part of a match may begin another one, or else
# hostile text would take minutes.
_PICTURE: Final = re.compile(r"!\[([^\[\]]{0,80})\]\(data:[\w+/=;,.-]*\)")
_FAILED: Final = (values.TurnStatus.FAILED, values.TurnStatus.INTERRUPTED)


async def list_models(call: calls.Call) -> web.Response:
    """List the bot, alone and with each of its models."""
    names = [_MODEL, *(f"{_MODEL}/{title}" for title in call.service.queries.models)]
    about = {"object": "model", "created": 0, "owned_by": _MODEL}
    return web.json_response({"object": "list", "data": [{"id": name} | about for name in names]})


async def complete(call: calls.Call) -> web.StreamResponse:
    """Answer a conversation."""
    body: documents.ChatCompletion = call.body
    if body.tools or body.functions:
        raise errors.BotError(api_words.TAKES_NO_TOOLS)
    if (body.response_format or {}).get("type", "text") != "text":
        raise errors.BotError(api_words.ONLY_TEXT)
    name, _, title = body.model.partition("/")
    if name not in ("", _MODEL):
        raise calls.UnknownError(api_words.no_model(_MODEL))
    if title:
        call.service.queries.check_model(title)
    conversation = await asyncio.to_thread(_Conversation.of, body)
    key, is_known = await _find_session(call, conversation, body.user)
    unseen = (*(() if is_known else conversation.earlier), *conversation.question)
    request = call.request(
        key,
        "\n\n".join(filter(None, map(_text, conversation.question))),
        id=conversation.id,
        model=title,
        recent=tuple(
            requests.RecentMessage(speaker=message.role, text=_text(message))
            for message in (() if is_known else conversation.earlier)
        ),
        context="" if is_known else conversation.system,
        attachments=await asyncio.to_thread(lambda: tuple(_attachments(unseen))),
        is_attended=False,
    )
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": body.model or _MODEL,
    }
    headers = {_SESSION_HEADER: key.thread}
    if body.stream:
        has_usage = bool((body.stream_options or {}).get("include_usage"))
        return await call.stream(_frames(call, request, answer, has_usage=has_usage), headers)
    log = await call.log(request)
    if log.end is None or log.end.status in _FAILED:
        raise calls.TurnFailedError(log.end.sentence if log.end is not None else None)
    message = {"role": "assistant", "content": "".join(map(_Writer().write, log.events()))}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    answer |= {"object": "chat.completion", "choices": [choice], "usage": _usage(log.usage)}
    return web.json_response(answer, headers=headers)


async def _frames(
    call: calls.Call, request: requests.Request, answer: dict[str, Any], *, has_usage: bool
) -> AsyncGenerator[bytes | None, None]:
    """Give the chunks of an answer while it is written."""
    writer, usage, failure = _Writer(), None, ""

    def chunk(*deltas: dict[str, Any], finish: str | None = None, **fields: object) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish} for delta in deltas]
        document = answer | {"object": "chat.completion.chunk", "choices": choices} | fields
        return _frame(document)

    yield chunk({"role": "assistant", "content": ""})
    async with contextlib.aclosing(call.events(request)) as turn:
        async for event in turn:
            if event is None:
                yield None
                continue
            if isinstance(event, events.UsageChanged):
                usage = event.usage
            elif isinstance(event, events.TurnEnded) and event.status in _FAILED:
                failure = event.sentence
            if text := writer.write(event):
                yield chunk({"content": text})
    if failure:
        yield _frame(calls.fault(calls.TurnFailedError(failure)).model_dump())
    else:
        yield chunk({}, finish="stop")
        if has_usage:
            yield chunk(usage=_usage(usage))
    yield b"data: [DONE]\n\n"


def _frame(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def _usage(usage: values.Usage | None) -> dict[str, int]:
    usage = usage or values.Usage()
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
    }


class _Writer:
    """An answer in Markdown: the model's words, pictures as data URLs, notices, names of files."""

    def __init__(self) -> None:
        self._has_text = False
        self._is_new_paragraph = False
        self._left_bytes = _PICTURE_BYTES
        self._files: dict[str, None] = {}

    def write(self, event: events.RecordedEvent) -> str:
        """Return what an event adds; mostly nothing."""
        match event:
            case events.StepStarted():
                self._is_new_paragraph = True
            case events.TextAdded(text=text) if text:
                is_new, self._is_new_paragraph = self._is_new_paragraph, False
                return self._paragraph(text) if is_new else self._added(text)
            case events.OutputShown(output=values.Image(is_update=False) as image):
                if len(image.data) <= self._left_bytes:
                    self._left_bytes -= len(image.data)
                    return self._separate(_picture(image))
            case events.NoticeShown(text=text):
                return self._separate(f"> {text}")
            case events.FileMade(artifact=artifact) if not artifact.is_shown:
                self._files[artifact.name.replace("`", "'")] = None
            case events.TurnEnded(status=status, sentence=sentence) if status not in _FAILED:
                files = [api_words.files_made(list(self._files))] if self._files else []
                return "".join(map(self._separate, filter(None, [*files, sentence])))
        return ""

    def _separate(self, text: str) -> str:
        self._is_new_paragraph = True
        return self._paragraph(text)

    def _paragraph(self, text: str) -> str:
        return self._added(f"\n\n{text}" if self._has_text else text)

    def _added(self, text: str) -> str:
        self._has_text = True
        return text


def _picture(image: values.Image) -> str:
    alt = re.sub(r"[\[\]]", "", quantities.one_line(image.plain, _ALT_CHARACTERS))
    return f"![{alt}](data:{image.mime};base64,{base64.b64encode(image.data).decode()})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Conversation:
    """What a client sent.

    Attributes:
        system: what it tells the model of all.
        earlier: messages that were answered.
        question: the person's messages since.
        id: digest of all messages, and of whose they are; `former_id` is that of the request that
            was answered last, or empty.
    """

    system: str
    earlier: list[documents.ChatMessage]
    question: list[documents.ChatMessage]
    id: str
    former_id: str

    @classmethod
    def of(cls, body: documents.ChatCompletion) -> _Conversation:
        """Read a conversation.

        Raises:
            BotError: nobody asks anything in it.
        """
        said = [message for message in body.messages if message.role in ("user", "assistant")]
        question = _trailing(said, "user")
        if not question:
            raise errors.BotError(api_words.NO_QUESTION)
        earlier = said[: -len(question)]
        answers = _trailing(earlier, "assistant")
        answered = earlier[: len(earlier) - len(answers)]
        others = [message for message in body.messages if message.role not in ("user", "assistant")]
        system = "\n\n".join(map(_text, others))
        if len(system) > requests.MAX_CHARACTERS:
            raise errors.BotError(session_words.message_too_long(requests.MAX_CHARACTERS))
        return cls(
            system=system,
            earlier=earlier,
            question=question,
            id=_digest(body.user, said),
            former_id=_digest(body.user, answered) if answered else "",
        )


def _trailing(messages: list[documents.ChatMessage], role: str) -> list[documents.ChatMessage]:
    """Return the last messages, as far as they are of one role."""
    trailing = itertools.takewhile(lambda message: message.role == role, reversed(messages))
    return [*trailing][::-1]


def _digest(user: str, messages: Iterable[documents.ChatMessage]) -> str:
    digest = hashlib.sha256(json.dumps(user).encode())
    for message in messages:
        urls = [url for _, url in _urls(message)]
        digest.update(json.dumps([message.role, _text(message), urls]).encode())
    return digest.hexdigest()[:32]


def _urls(message: documents.ChatMessage) -> Iterator[tuple[str, str]]:
    """Return the pictures and files of a message: their names, which may be empty, and data URLs.

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


def _text(message: documents.ChatMessage) -> str:
    """Return the words of a message, without pictures of ours."""
    content = message.content or ""
    if not isinstance(content, str):
        content = "\n".join(str(part["text"]) for part in content if "text" in part)
    return _PICTURE.sub(r"![\1]()", content).strip()


def _attachments(messages: Iterable[documents.ChatMessage]) -> Iterator[requests.Attachment]:
    """Return the pictures and files of the person.

    Raises:
        BotError: one is not in the request itself.
    """
    of_person = [message for message in messages if message.role == "user"]
    urls = itertools.chain.from_iterable(map(_urls, of_person))
    for number, (name, url) in enumerate(urls, 1):
        if number > _MAX_FILES:
            raise errors.BotError(api_words.too_many_files(_MAX_FILES))
        match = _DATA_URL.fullmatch(url)
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
    """Return the session in which a conversation goes on, and whether it knows what was said."""
    queries = call.service.queries
    headers = filter(None, map(call.http.headers.get, _SESSION_HEADERS))
    if name := next(headers, ""):
        key = call.key(name)
        if not (name.isascii() and await queries.exists(key)):
            # A name of the client's own, for one of its people.
            digest = hashlib.sha256(json.dumps([user, name]).encode()).hexdigest()
            key = call.key(f"c-{digest[:32]}")
        await _is_next(call, key, conversation)
        return key, bool(await queries.latest_requests(key))
    if conversation.former_id:
        candidates = await queries.answered(calls.PLATFORM, call.client, conversation.former_id)
        answer = _compared("".join(map(_text, _trailing(conversation.earlier, "assistant"))))
        keys = {key for key, text in candidates if _compared(text)[:_COMPARED_CHARACTERS] in answer}
        if len(keys) == 1 and await _is_next(call, key := keys.pop(), conversation):
            return key, True
    return call.key(), False


async def _is_next(call: calls.Call, key: values.SessionKey, conversation: _Conversation) -> bool:
    """Return whether the question follows the last answer of a session.

    An answer that came after that one is undone: the question is asked again, or edited.
    """
    former, last = (None, None, *await call.service.queries.latest_requests(key))[-2:]
    if last is None or not conversation.former_id:
        return False
    if last[1] == conversation.former_id:
        return True
    if former is None or former[1] != conversation.former_id:
        return False
    try:
        await call.service.branches.undo(key, turn_id=last[0])
    except errors.BotError as error:
        _log.info("an answer that is replaced was not undone", exc_info=error)
        return False
    return True


def _compared(text: str) -> str:
    return "".join(text.split())
