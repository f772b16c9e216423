"""What a tab gets on opening: the list of sessions, and past turns as the events of a running
one."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.web import event_json, notebook_progress, tab_hub, validation
from interpreter_bot.sessions import past_turns, requests, session_service
from interpreter_bot.wording import page_words, session_words

_STOPPED: Final = "Stopped."

_log = logging.getLogger(__name__)

_MOST_LISTED: Final = 200
_MOST_LOOKED_AT: Final = 20
_TITLE_CHARACTERS: Final = 60
_BREATH_SECONDS: Final = 0.1


def events_of(turn: past_turns.PastTurn) -> event_json.Event:
    """Convert a past turn to what `live_turns.LiveTurn.with_events` returns."""
    head = heading(
        turn.request, turn.attachments, is_code=turn.is_code, started=turn.started.timestamp()
    )
    return head | {
        "id": f"past-{turn.id}",
        "number": turn.id,
        "request_id": turn.request_id,
        "is_running": turn.status == "running",
        "events": list(_events(turn)),
    }


def heading(
    request: str, files: Iterable[str], *, is_code: bool, started: float
) -> event_json.Event:
    """Convert a request to its heading; `started` in seconds since the epoch."""
    return {"request": request, "files": list(files), "is_code": is_code, "started": started}


async def head_and_events(
    service: session_service.SessionService, request: requests.Request
) -> tuple[event_json.Event, list[event_json.Event]]:
    """Return the heading of a request that no tab has made, and what its turn showed so far.

    Raises:
        StoreError: it cannot be read.
    """
    head = heading(request.text, request.files, is_code=request.is_code, started=time.time())
    past = await service.queries.history(request.key, most=_MOST_LOOKED_AT)
    begun = next((turn for turn in past if turn.id == request.goes_on_with), None)
    if begun is None:
        return head, []
    parts = begun.parts
    if parts and isinstance(parts[-1], past_turns.PastText):
        # The model had not ended this: it is asked again.
        parts = parts[:-1]
    return head, list(_events(dataclasses.replace(begun, parts=parts)))


def title(request: str) -> str:
    """Make a title of the first words of a request."""
    line = " ".join(request[:1000].split())
    if len(line) <= _TITLE_CHARACTERS:
        return line
    return line[:_TITLE_CHARACTERS].rpartition(" ")[0].rstrip(",.;:") + "…"


def _events(turn: past_turns.PastTurn) -> Iterator[event_json.Event]:
    yield event_json.to_json(events.Started())
    yield from _of_parts(turn.parts)
    for artifact in turn.artifacts:
        yield event_json.to_json(events.FileMade(0, artifact))
    if turn.spent.input_tokens or turn.spent.output_tokens:
        yield event_json.to_json(events.UsageChanged(turn.spent))
    if turn.status != "running":
        yield _over(turn)


def _of_parts(parts: Sequence[past_turns.Past]) -> Iterator[event_json.Event]:
    step = 0
    for part in parts:
        match part:
            case past_turns.PastText():
                step += 1
                yield event_json.to_json(events.StepStarted(step))
                yield event_json.to_json(events.TextAdded(part.text))
            case past_turns.PastCode():
                yield event_json.to_json(events.CodeStarted(part.cell, part.code))
            case past_turns.PastOutput():
                yield _output(part)
            case past_turns.PastFinished():
                yield event_json.to_json(events.CodeFinished(part.cell, part.finished))
            case past_turns.PastNotice():
                yield event_json.to_json(events.NoticeShown(part.text))


def _output(part: past_turns.PastOutput) -> event_json.Event:
    shown = part.output
    if not isinstance(shown, values.StoredDisplay):
        return event_json.output(part.cell, shown)
    return {
        "kind": "output",
        "cell": part.cell,
        "plain": shown.plain,
        "display": shown.display_id,
        "update": shown.is_update,
    } | event_json.stored_display(shown.mime, shown.sha256)


def _over(turn: past_turns.PastTurn) -> event_json.Event:
    is_last_words = bool(turn.parts) and isinstance(turn.parts[-1], past_turns.PastText)
    seconds = (turn.ended - turn.started).total_seconds() if turn.ended is not None else 0.0
    is_answer = turn.status == "done" or (turn.status == "stopped" and is_last_words)
    sentence = "" if is_answer else turn.answer
    if turn.status == "stopped":
        sentence = _STOPPED
    if turn.status == "interrupted":
        sentence = page_words.INTERRUPTED
    return {
        "kind": "over",
        "status": turn.status,
        "text": turn.answer if is_answer else "",
        "sentence": sentence,
        "seconds": round(seconds, 3),
        "turn": turn.id,
    } | event_json.queries(turn.queries)


def _can_choose_model(service: session_service.SessionService) -> bool:
    models = service.model_choices
    return models is not None and models.is_open and not models.is_chosen


def greeting(service: session_service.SessionService) -> str:
    """Return what is the same for every session."""
    about = {
        "upload_bytes": service.queries.limits.upload_bytes,
        "text_characters": validation.MOST_TEXT_CHARACTERS,
        "execution_seconds": service.queries.limits.execution_seconds,
        "sandbox_level": service.queries.sandbox_level,
        "models": service.queries.models,
        "model_notice": service.model_notice,
        "can_choose_model": _can_choose_model(service),
    }
    return tab_hub.encoded_message("hello", about)


async def listing(service: session_service.SessionService) -> event_json.Event:
    """List the sessions, the one used last first; pinned ones however old they are."""
    pinned = await service.recent("web", mark="pinned", most=_MOST_LISTED)
    recent = await service.recent("web", most=_MOST_LISTED)
    listed = [
        {
            "thread": one.key.thread,
            "title": one.title,
            "used": one.used.timestamp(),
            "mark": one.mark,
            "tree": one.tree,
            "is_busy": one.is_busy,
            "has_python": one.has_kernel,
        }
        for one in (*pinned, *(one for one in recent if one.mark != "pinned"))
    ]
    return {"conversations": listed}


async def search(service: session_service.SessionService, text: str) -> event_json.Event:
    """List the sessions in which something was said."""
    listed = [
        {"thread": one.key.thread, "title": one.title, "excerpt": one.excerpt}
        for one in await service.queries.search("web", "", text)
    ]
    return {"text": text, "conversations": listed}


async def keep_listed(service: session_service.SessionService, hub: tab_hub.Hub) -> None:
    """Send the list to every tab whenever it changes. Ends only by being cancelled."""
    while True:
        await hub.is_changed.wait()
        # Changes come in bursts.
        await asyncio.sleep(_BREATH_SECONDS)
        hub.is_changed.clear()
        try:
            hub.tell("conversations", await listing(service))
        except errors.BotError:
            # The next change tries again.
            _log.exception("the conversations could not be listed")


def _rest(
    progress: notebook_progress.NotebookProgress | None, *, is_running: bool
) -> event_json.Event | None:
    """Say what is left of a notebook; None of one whose cells run just now."""
    if progress is None or is_running or progress.begun >= progress.count:
        return None
    return {"name": progress.name, "left": progress.count - progress.begun}


async def show(
    service: session_service.SessionService,
    hub: tab_hub.Hub,
    tab: tab_hub.Tab,
    *,
    key: values.SessionKey,
    most: int,
) -> None:
    """Show a session to a tab, which gets all its events from then on.

    Nothing is sent twice and nothing is left out: between reading the hub and the first event that
    follows, no other task runs.
    """
    model = await service.queries.model(key)
    of_files = await service.queries.notice(key)
    notebook = await notebook_progress.load(service, key)
    while True:
        ended = hub.ended(key.thread)
        past = await service.queries.history(key, most=most + 1)
        alternatives = await service.branches.alternatives(key)
        # A turn that ended while the store was read is in neither; what is read now has it.
        if hub.ended(key.thread) == ended:
            break
    live = hub.of(key.thread)
    # The hub's state of a turn that runs, or whose end is being recorded, is newer than its record.
    known = {turn.id for turn in live}
    # A turn that is about to go on here is shown then.
    recorded = [
        turn
        for turn in past[-most:]
        if turn.request_id not in known and not service.is_expected(key, turn.request_id)
    ]
    # The record of a cut-off turn already says what the bot said about it when it came back.
    is_said = bool(past) and past[-1].status == "interrupted"
    notices = [
        one
        for one in hub.notices(key.thread)
        if not is_said or one != session_words.ANSWER_INTERRUPTED
    ]
    whole = {
        "model": model,
        "past": [events_of(turn) for turn in recorded],
        "live": [turn.with_events() for turn in live],
        "notices": list(dict.fromkeys([*notices, *filter(None, [of_files])])),
        "is_more": len(past) > most,
        "notebook": _rest(notebook, is_running=key.thread in hub.notebooks),
        "alternatives": [
            {"number": one.turn_id, "at": one.at, "threads": [to.thread for to in one.keys]}
            for one in alternatives
        ],
    }
    tab.thread = key.thread
    tab.send(tab_hub.encoded_message("conversation", whole, thread=key.thread))
