"""Conversations of other platforms, which visitors can read on the page.

A visitor who also has the page's token can continue the conversation in a copy on the page.
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

_DEFAULT_TURNS: Final = 30
_MAX_TURNS: Final = 1000
_NUMBER_PATTERN: Final = re.compile(r"[0-9]{1,9}")


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

    async def send_conversation(self, request: web.Request) -> web.Response:
        """Serve the turns and the list of files of a conversation."""
        visit = request.get(access.VISIT_KEY)
        if visit is None or not await self._service.queries.exists(visit.key):
            raise errors.FileMissingError(page_words.LINK_EXPIRED)
        limit_text = request.query.get("max_turns", "")
        limit = int(limit_text) if _NUMBER_PATTERN.fullmatch(limit_text) else _DEFAULT_TURNS
        limit = min(limit, _MAX_TURNS)
        turns = await self._service.queries.history(visit.key, limit=limit + 1)
        shown_turns = turns[-limit:] if limit else ()
        document = {
            "platform": visit.key.platform.capitalize(),
            "title": _make_title(turns),
            "past": [
                _remove_handles(tab_contents.describe_past_turn(turn)) for turn in shown_turns
            ],
            "has_earlier_turns": len(turns) > limit,
            "files": await command_panels.list_files(self._service, visit.key),
            "expires": visit.expires_at,
            "can_continue": self._gate.has_token(request),
        }
        return web.json_response(document)

    async def copy_to_page(self, request: web.Request) -> web.Response:
        """Copy a visited conversation to the page, for the person who has the page's token."""
        visit = await self._gate.find_visit(request)
        if visit is None:
            raise errors.FileMissingError(page_words.LINK_EXPIRED)
        key = validation.make_key()
        await self._service.branches.fork(visit.key, key, validation.PERSON.id)
        turns = await self._service.queries.history(visit.key, limit=_MAX_TURNS)
        await self._service.rename(key, _make_title(turns))
        self._hub.sessions_changed.set()
        return web.json_response({"thread": key.thread})


def _make_title(turns: tuple[past_turns.PastTurn, ...]) -> str:
    return next(
        (tab_contents.make_title(turn.record.request) for turn in turns if turn.record.request),
        "Conversation",
    )


def _remove_handles(turn: dict[str, Any]) -> dict[str, Any]:
    """Empty the handles of tables, with which a tab could query a live kernel."""
    return turn | {"events": [event | {"handle": ""} for event in turn["events"]]}
