"""Conversations of other platforms, which visitors can only read on the page.

A visitor who also has the page's token can continue in a copy, a conversation of the page.
"""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.platforms import http_runners
from interpreter_bot.platforms.web import (
    access,
    command_panels,
    tab_contents,
    tab_hub,
    validation,
)
from interpreter_bot.sessions import past_turns, session_service
from interpreter_bot.wording import page_words

_FIRST_TURNS: Final = 30
_MAX_TURNS: Final = 1000
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class SharedSessions:
    """Routes of visits."""

    def __init__(
        self, service: session_service.SessionService, gate: access.Access, hub: tab_hub.Hub
    ) -> None:
        self._service = service
        self._gate = gate
        self._hub = hub

    async def open_visit(self, request: web.Request) -> web.Response:
        """Exchange the secret of a link, which is the body, for the pass of its visit."""
        link = (await http_runners.read_body(request.read())).decode("ascii", "replace")
        visit, proof = await self._service.visits.enter(link)
        response = web.json_response({"thread": visit.id})
        self._gate.set_visit_cookies(request, response, visit, proof)
        return response

    async def conversation(self, request: web.Request) -> web.Response:
        """Serve the turns and the list of files of a conversation."""
        visit = request.get(access.VISIT)
        if visit is None or not await self._service.queries.exists(visit.key):
            raise errors.FileMissingError(page_words.LINK_EXPIRED)
        limit_text = request.query.get("max_turns", "")
        limit = int(limit_text) if _NUMBER.fullmatch(limit_text) else _FIRST_TURNS
        limit = min(limit, _MAX_TURNS)
        past = await self._service.queries.history(visit.key, limit=limit + 1)
        turns = past[-limit:] if limit else ()
        document = {
            "platform": visit.key.platform.capitalize(),
            "title": _title(past),
            "past": [_without_handles(tab_contents.events_of(turn)) for turn in turns],
            "has_earlier_turns": len(past) > limit,
            "files": await command_panels.list_files(self._service, visit.key),
            "expires": visit.until,
            "can_continue": self._gate.has_token(request),
        }
        return web.json_response(document)

    async def copy_to_page(self, request: web.Request) -> web.Response:
        """Copy a conversation that is visited to the page, for the person who has its token."""
        visit = await self._gate.visit(request)
        if visit is None:
            raise errors.FileMissingError(page_words.LINK_EXPIRED)
        key = validation.new_key()
        await self._service.branches.fork(visit.key, key, validation.PERSON.id)
        past = await self._service.queries.history(visit.key, limit=_MAX_TURNS)
        await self._service.rename(key, _title(past))
        self._hub.is_changed.set()
        return web.json_response({"thread": key.thread})


def _title(past: tuple[past_turns.PastTurn, ...]) -> str:
    return next(
        (tab_contents.title(turn.record.request) for turn in past if turn.record.request),
        "Conversation",
    )


def _without_handles(turn: dict[str, Any]) -> dict[str, Any]:
    """Leave out the handles of tables, by which a tab asks a live kernel."""
    return turn | {"events": [event | {"handle": ""} for event in turn["events"]]}
