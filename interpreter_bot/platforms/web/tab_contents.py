"""Contents of a tab: the list of sessions, and a session with its past and live turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.rendering import event_json
from interpreter_bot.platforms.web import tab_hub, validation
from interpreter_bot.sessions import live_data_views, past_turns, schedule_texts, session_service
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

_MAX_LISTED: Final = 200
_TITLE_CHARACTERS: Final = 60
_LISTING_DELAY_SECONDS: Final = 0.1


def describe_past_turn(turn: past_turns.PastTurn) -> dict[str, Any]:
    """Return a past turn in the form of `live_turns.LiveTurn.describe`."""
    heading = make_heading(
        turn.record.request,
        turn.record.attachments,
        is_code=turn.is_code,
        started_at=turn.record.started.timestamp(),
    )
    return heading | {
        "id": f"past-{turn.record.id}",
        "turn_id": turn.record.id,
        "request_id": turn.record.request_id,
        "is_running": turn.record.status == "running",
        "events": [event_json.to_json(event) for event in turn.events],
    }


def make_heading(
    request: str, files: Iterable[str], *, is_code: bool, started_at: float
) -> dict[str, Any]:
    """Return the heading of a turn; `started` is in seconds since the epoch."""
    # A schedule runs in place of code, but its text is a command.
    is_code = is_code and schedule_texts.parse_command(request) is None
    return {"request": request, "files": list(files), "is_code": is_code, "started": started_at}


def describe_problem(error: errors.BotError) -> dict[str, Any]:
    """Describe why a live table cannot be read, and whether to try again later."""
    return {
        "problem": str(error),
        "is_busy": isinstance(error, live_data_views.PythonBusyError),
        "is_gone": isinstance(error, live_data_views.TableGoneError),
    }


def make_title(request: str) -> str:
    """Make a title of the first words of a request."""
    line = " ".join(request[:1000].split())
    if len(line) <= _TITLE_CHARACTERS:
        return line
    return line[:_TITLE_CHARACTERS].rpartition(" ")[0].rstrip(",.;:") + "…"


def _can_choose_model(service: session_service.SessionService) -> bool:
    models = service.model_setup
    return models is not None and models.is_open and not models.is_chosen


def make_greeting(service: session_service.SessionService) -> str:
    """Return the first message to a tab, with what all sessions share."""
    fields = {
        "upload_bytes": service.queries.limits.upload_bytes,
        "text_characters": validation.MAX_TEXT_CHARACTERS,
        "execution_seconds": service.queries.limits.execution_seconds,
        "sandbox_level": service.queries.sandbox_level,
        "models": service.queries.models,
        "model_notice": service.model_notice,
        "can_choose_model": _can_choose_model(service),
    }
    return tab_hub.encode_message("hello", fields)


async def list_sessions(service: session_service.SessionService) -> dict[str, Any]:
    """List all pinned and the recent sessions, the last used first."""
    pinned = await service.recent("web", mark="pinned", limit=_MAX_LISTED)
    recent = await service.recent("web", limit=_MAX_LISTED)
    conversations = [
        {
            "thread": session.record.key.thread,
            "title": session.record.title,
            "used": session.record.used.timestamp(),
            "mark": session.record.mark,
            "tree": session.record.root_id,
            "is_busy": session.is_busy,
            "has_python": session.has_kernel,
        }
        for session in (
            *pinned,
            *(session for session in recent if session.record.mark != "pinned"),
        )
    ]
    return {"conversations": conversations}


async def search_sessions(service: session_service.SessionService, text: str) -> dict[str, Any]:
    """List the sessions that match a search."""
    conversations = [
        {"thread": match.key.thread, "title": match.title, "excerpt": match.excerpt}
        for match in await service.queries.search("web", "", text)
    ]
    return {"text": text, "conversations": conversations}


async def send_listings(service: session_service.SessionService, hub: tab_hub.Hub) -> None:
    """Send the list to every tab whenever it changes. Ends only by being cancelled."""
    while True:
        await hub.sessions_changed.wait()
        # Changes come in bursts.
        await asyncio.sleep(_LISTING_DELAY_SECONDS)
        hub.sessions_changed.clear()
        try:
            hub.send_message("conversations", await list_sessions(service))
        except Exception:
            # Any error, as it would end the page and all its turns. The next change tries again.
            _log.exception("the conversations could not be listed")


async def show_session(
    service: session_service.SessionService,
    hub: tab_hub.Hub,
    tab: tab_hub.Tab,
    *,
    key: values.SessionKey,
    limit: int,
) -> None:
    """Show a session to a tab, which gets all its events from then on.

    No other task runs between reading the hub and registering the tab, so no event is sent twice or
    left out.
    """
    model = await service.queries.find_model_title(key)
    files_notice = await service.queries.load_file_notice(key)
    while True:
        end_count = hub.end_count(key.thread)
        past_turns = await service.queries.history(key, limit=limit + 1)
        alternatives = await service.branches.list_alternatives(key)
        # A turn that ended during the read may be in neither the hub nor the result: read again.
        if hub.end_count(key.thread) == end_count:
            break
    live_turns = hub.list_turns(key.thread)
    # For running turns the hub is newer than the store.
    live_request_ids = {turn.id for turn in live_turns}
    # A turn that this bot is about to resume is shown once it resumes.
    shown_turns = [
        turn
        for turn in past_turns[-limit:]
        if turn.record.request_id not in live_request_ids
        and not service.is_expected(key, turn.record.request_id)
    ]
    # The record of an interrupted turn already has the notice on its interruption.
    is_already_shown = bool(past_turns) and past_turns[-1].record.status == "interrupted"
    notices = [
        notice
        for notice in hub.list_notices(key.thread)
        if not is_already_shown or notice != session_words.ANSWER_INTERRUPTED
    ]
    contents = {
        "model": model,
        "past": [describe_past_turn(turn) for turn in shown_turns],
        "live": [turn.describe() for turn in live_turns],
        "notices": list(dict.fromkeys([*notices, *filter(None, [files_notice])])),
        "has_earlier_turns": len(past_turns) > limit,
        "alternatives": [
            {
                "turn_id": alternative.turn_id,
                "position": alternative.index,
                "threads": [branch.thread for branch in alternative.keys],
            }
            for alternative in alternatives
        ],
    }
    tab.thread = key.thread
    tab.send(tab_hub.encode_message("conversation", contents, thread=key.thread))
