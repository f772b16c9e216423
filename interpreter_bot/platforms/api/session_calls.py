"""Calls on sessions: begin, list, ask, run, answer, stop, delete, and their files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator

from aiohttp import web

from interpreter_bot import errors, events
from interpreter_bot.platforms import http_files, program_turns
from interpreter_bot.platforms.api import calls, documents
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.sessions import requests, turn_log
from interpreter_bot.wording import api_words

_MAX_LISTED_SESSIONS = 200


async def begin_session(call: calls.Call) -> web.Response:
    """Begin a session."""
    body: documents.NewSession = call.body
    limit = call.limits.client_sessions
    if await call.service.queries.count(calls.PLATFORM, call.client) >= limit:
        raise errors.BotError(api_words.too_many_sessions(limit))
    if body.model:
        call.service.queries.check_model(body.model)
    key = call.make_key()
    await call.service.create_session(key)
    if body.title:
        await call.service.rename(key, body.title)
    if body.model:
        await call.service.choose_model(key, body.model)
    return calls.make_response(documents.CreatedSession(id=key.thread), status=201)


async def list_sessions(call: calls.Call) -> web.Response:
    """List the client's sessions."""
    recent = await call.service.recent(
        calls.PLATFORM, channel=call.client, limit=_MAX_LISTED_SESSIONS
    )
    sessions = [
        documents.Session(
            id=session.record.key.thread,
            title=session.record.title,
            model=session.record.model or "",
            used=session.record.used,
            is_busy=session.is_busy,
        )
        for session in recent
    ]
    return calls.make_response(documents.SessionList(sessions=sessions))


async def delete_session(call: calls.Call) -> web.Response:
    """Delete a session."""
    await call.service.delete(await call.find_session())
    return calls.make_response(documents.Outcome())


async def stop_turn(call: calls.Call) -> web.Response:
    """Stop the running turn."""
    return calls.make_response(
        documents.Outcome(done=await call.service.stop(await call.find_session()))
    )


async def send_message(call: calls.Call) -> web.StreamResponse:
    """Ask the model or run code, and return the answer."""
    body: documents.Message = call.body
    key = await call.find_session()
    if bool(body.code) and bool(body.text):
        raise errors.BotError(api_words.TEXT_OR_CODE)
    request = call.make_request(
        key,
        body.code or body.text,
        is_code=bool(body.code),
        files=body.files,
        is_attended=body.attended and body.stream,
    )
    if body.stream:
        return await call.send_events(_encode_events(call, request), {})
    return calls.make_response(_make_answer(await call.log(request)))


async def _encode_events(
    call: calls.Call, request: requests.Request
) -> AsyncGenerator[bytes | None, None]:
    async with contextlib.aclosing(call.events(request)) as turn:
        async for event in turn:
            if event is None:
                yield None
            else:
                fields = calls.describe_event(event)
                yield f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()


def _make_answer(log: turn_log.TurnLog) -> documents.Answer:
    answer = program_turns.Answer.of(log)
    shown_events = [
        events.OutputShown(cell.number, output)
        for cell in log.cells
        for output in cell.screen.outputs
    ]
    usage = event_json.to_json(events.UsageChanged(answer.usage))
    return documents.Answer(
        status=answer.status,
        text=answer.text,
        reason=answer.sentence,
        code=answer.code,
        outputs=[calls.describe_event(event) for event in shown_events],
        files=[documents.File.model_validate(file) for file in answer.files],
        notices=answer.notices,
        usage={name: value for name, value in usage.items() if name != "type"},
        seconds=answer.seconds,
    )


async def answer_question(call: calls.Call) -> web.Response:
    """Answer a question of a turn."""
    body: documents.QuestionAnswer = call.body
    key = await call.find_session()
    question = call.service.questions.require_answerable(body.id, call.client)
    if question.session != key:
        raise errors.AnswerRefusedError
    answer = program_turns.parse_answer(question, body.answer)
    await call.service.questions.answer(body.id, answer, person=call.client)
    return calls.make_response(documents.Outcome())


async def list_files(call: calls.Call) -> web.Response:
    """List the files of a session."""
    infos = await call.service.queries.files(await call.find_session())
    files = [documents.File.model_validate(info) for info in infos]
    return calls.make_response(documents.FileList(files=files))


async def upload_file(call: calls.Call) -> web.Response:
    """Put the request's body into /mnt/data."""
    key = await call.find_session()
    limit = call.service.queries.limits.upload_bytes
    attachment = requests.Attachment(
        call.path["name"],
        lambda: http_files.read_pieces(call.http, limit),
        size_bytes=call.http.content_length,
    )
    name = await call.service.put_file(key, attachment)
    return calls.make_response(documents.StoredFile(name=name), status=201)


async def download_file(call: calls.Call) -> web.StreamResponse:
    """Send a file of a session, as a download."""
    open_file = call.service.queries.open_file(await call.find_session(), call.path["name"])
    async with open_file as (info, pieces):
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": http_files.content_disposition(info.name),
        }
        return await http_files.stream_file(call.http, info, pieces, headers=headers)


async def delete_file(call: calls.Call) -> web.Response:
    """Delete a file of a session."""
    await call.service.files.delete(await call.find_session(), call.path["name"])
    return calls.make_response(documents.Outcome())
