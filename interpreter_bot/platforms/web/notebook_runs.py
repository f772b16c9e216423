"""Notebooks that a person brings: their code cells run one after the other, as if typed.

A cell that fails, is stopped or withdrawn ends the run, as does a restart of the bot.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pathlib
import secrets
from typing import Final

from aiohttp import web

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.web import (
    files,
    validation,
    websocket_actions,
)
from interpreter_bot.sessions import past_turns, requests, session_service
from interpreter_bot.text import notebook_cells
from interpreter_bot.wording import page_words

_MAX_NOTEBOOK_BYTES: Final = 20 * 1024 * 1024
_MAX_CELLS: Final = 300
_MAX_TURNS_SEARCHED: Final = 5


class NotebookRuns:
    """The route that runs notebooks."""

    def __init__(
        self,
        service: session_service.SessionService,
        tabs: websocket_actions.TabConnections,
    ) -> None:
        self._service = service
        self._tabs = tabs
        self._running_threads: set[str] = set()

    async def begin(self, request: web.Request) -> web.Response:
        """Begin to run the cells of a file in a session; the response has their number.

        Raises:
            BotError: the file is no notebook, or too large.
        """
        key = validation.parse_key(request.query.get("to"))
        if key.thread in self._running_threads:
            raise errors.BotError(page_words.NOTEBOOK_RUNS)
        # Added before any await, so that a second request is refused while this one is checked.
        self._running_threads.add(key.thread)
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._running_threads.discard, key.thread)
            source, name = files.parse_session_and_name(request)
            cells = await self._read_cells(source, name)
            await self._service.rename(key, pathlib.PurePath(name).stem)
            cleanup.pop_all()
        work = functools.partial(self._run_cells, key, cells)
        self._tabs.start_task(work, f"web: notebook {key.thread}")
        return web.json_response({"cells": len(cells)})

    async def _read_cells(self, source: values.SessionKey, name: str) -> list[str]:
        async with self._service.queries.open_file(source, name) as (info, pieces):
            if info.size_bytes > _MAX_NOTEBOOK_BYTES:
                raise errors.FileTooLargeError(page_words.too_large(_MAX_NOTEBOOK_BYTES))
            data = b"".join([piece async for piece in pieces])
        cells = await asyncio.to_thread(notebook_cells.read, data, name)
        if not cells:
            raise errors.BotError(page_words.no_code(name=name))
        if len(cells) > _MAX_CELLS:
            raise errors.BotError(page_words.too_many_cells(name, len(cells), _MAX_CELLS))
        return cells

    async def _run_cells(self, key: values.SessionKey, cells: list[str]) -> None:
        try:
            for number, code in enumerate(cells, 1):
                request = requests.Request(
                    key=key,
                    person=validation.PERSON,
                    text=code,
                    is_code=True,
                    id=secrets.token_urlsafe(16),
                )
                await self._tabs.run_request(request)
                turn = await self._find_turn(key, request.id)
                if turn is None or not _has_succeeded(turn):
                    # A withdrawn cell has no turn, and was not run either.
                    skipped_count = len(cells) - number + (turn is None)
                    if skipped_count and await self._service.queries.exists(key):
                        sentence = page_words.cells_skipped(skipped_count, len(cells))
                        await self._service.notify(key, sentence)
                    return
        finally:
            self._running_threads.discard(key.thread)

    async def _find_turn(
        self, key: values.SessionKey, request_id: str
    ) -> past_turns.PastTurn | None:
        """Return the turn of a cell; None if it never began, or its session is gone."""
        # Another turn may have begun meanwhile, so the cell's turn need not be the last.
        recent_turns = await self._service.queries.history(key, limit=_MAX_TURNS_SEARCHED)
        return next((turn for turn in recent_turns if turn.record.request_id == request_id), None)


def _has_succeeded(turn: past_turns.PastTurn) -> bool:
    """Whether a cell ran to its end without an error."""
    ends = [event.finished for event in turn.events if isinstance(event, events.CodeFinished)]
    is_done = turn.record.status is values.TurnStatus.DONE
    return is_done and all(finished.ending is values.Ending.OK for finished in ends)
