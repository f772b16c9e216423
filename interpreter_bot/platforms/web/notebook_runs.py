"""Notebooks that a person brings: their code cells run one after the other, as if typed.

A cell that fails or is stopped ends the run. If the bot restarts meanwhile, or a cell never begins,
the page offers to run the remaining cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import secrets
from typing import Final

from aiohttp import web

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.web import (
    files,
    notebook_progress,
    tab_hub,
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
        hub: tab_hub.Hub,
    ) -> None:
        self._service = service
        self._tabs = tabs
        self._hub = hub
        self._running_threads = hub.notebook_threads

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
            cells, progress = await self._prepare(request, key)
            cleanup.pop_all()
        work = functools.partial(self._run_cells, key, cells, progress)
        self._tabs.start_task(work, f"web: notebook {key.thread}")
        return web.json_response({"cells": len(cells) - progress.begun_count})

    async def _prepare(
        self, request: web.Request, key: values.SessionKey
    ) -> tuple[list[str], notebook_progress.NotebookProgress]:
        progress = await self._find_progress(request, key)
        if is_resumed := bool(progress.sha256):
            data = await self._read_unchanged_file(key, progress)
        else:
            data = await self._read_file(progress)
        cells = await asyncio.to_thread(notebook_cells.read, data, progress.name)
        if not cells:
            raise errors.BotError(page_words.no_code(name=progress.name))
        if len(cells) > _MAX_CELLS:
            raise errors.BotError(page_words.too_many_cells(progress.name, len(cells), _MAX_CELLS))
        if not is_resumed:
            await self._service.rename(key, pathlib.PurePath(progress.name).stem)
        sha256 = hashlib.sha256(data).hexdigest()
        return cells, dataclasses.replace(progress, sha256=sha256, cell_count=len(cells))

    async def _find_progress(
        self, request: web.Request, key: values.SessionKey
    ) -> notebook_progress.NotebookProgress:
        """Return where to begin: at the start of a file, or after an interrupted run."""
        if "remaining" not in request.query:
            source, name = files.parse_session_and_name(request)
            return notebook_progress.NotebookProgress(
                source.thread, name, "", begun_count=0, cell_count=0
            )
        if (progress := await notebook_progress.load(self._service, key)) is None:
            raise errors.BotError(page_words.NO_CELLS_LEFT)
        return progress

    async def _read_unchanged_file(
        self, key: values.SessionKey, progress: notebook_progress.NotebookProgress
    ) -> bytes:
        """Read a notebook to run its remaining cells.

        If the file has changed or cannot be read, its remaining cells are not offered again.
        """
        try:
            data = await self._read_file(progress)
        except (errors.FileMissingError, errors.FileTooLargeError):
            await notebook_progress.save(self._service, key, None)
            raise
        if hashlib.sha256(data).hexdigest() != progress.sha256:
            await notebook_progress.save(self._service, key, None)
            raise errors.BotError(page_words.notebook_changed(name=progress.name))
        return data

    async def _read_file(self, progress: notebook_progress.NotebookProgress) -> bytes:
        source = values.SessionKey("web", thread=progress.thread)
        async with self._service.queries.open_file(source, progress.name) as (info, pieces):
            if info.size_bytes > _MAX_NOTEBOOK_BYTES:
                raise errors.FileTooLargeError(page_words.too_large(_MAX_NOTEBOOK_BYTES))
            return b"".join([piece async for piece in pieces])

    async def _run_cells(
        self,
        key: values.SessionKey,
        cells: list[str],
        progress: notebook_progress.NotebookProgress,
    ) -> None:
        try:
            for number, code in enumerate(cells[progress.begun_count :], progress.begun_count + 1):
                current_progress = dataclasses.replace(progress, begun_count=number)
                await notebook_progress.save(self._service, key, current_progress)
                request = requests.Request(
                    key=key,
                    person=validation.PERSON,
                    text=code,
                    is_code=True,
                    id=secrets.token_urlsafe(16),
                )
                await self._tabs.run_request(request)
                turn = await self._find_turn(key, request.id)
                if turn is None:
                    await self._offer_remaining_cells(
                        key, dataclasses.replace(current_progress, begun_count=number - 1)
                    )
                    return
                if turn.record.status in (values.TurnStatus.INTERRUPTED, values.TurnStatus.RUNNING):
                    # The next bot goes on with it, or says that it was cut short.
                    return
                if not _has_succeeded(turn):
                    await self._end_early(key, cells_left=len(cells) - number, count=len(cells))
                    return
            await notebook_progress.save(self._service, key, None)
        finally:
            self._running_threads.discard(key.thread)

    async def _offer_remaining_cells(
        self, key: values.SessionKey, progress: notebook_progress.NotebookProgress
    ) -> None:
        """Offer the remaining cells after one that never began: withdrawn, or the bot ends."""
        if not await self._service.queries.exists(key):
            return
        await notebook_progress.save(self._service, key, progress)
        self._running_threads.discard(key.thread)
        # Tabs that show the session load it again, with the offer.
        self._hub.send_message("reset", {}, thread=key.thread)

    async def _end_early(self, key: values.SessionKey, *, cells_left: int, count: int) -> None:
        await notebook_progress.save(self._service, key, None)
        if cells_left:
            sentence = page_words.notebook_stopped(cells_left, count)
            await self._service.notify(key, sentence)

    async def _find_turn(
        self, key: values.SessionKey, request_id: str
    ) -> past_turns.PastTurn | None:
        """Return the turn of a cell; None if its session is gone."""
        # Another turn may have begun meanwhile, so the cell's turn need not be the last.
        recent_turns = await self._service.queries.history(key, limit=_MAX_TURNS_SEARCHED)
        return next((turn for turn in recent_turns if turn.record.request_id == request_id), None)


def _has_succeeded(turn: past_turns.PastTurn) -> bool:
    """Whether a cell ran to its end without an error."""
    ends = [event.finished for event in turn.events if isinstance(event, events.CodeFinished)]
    is_done = turn.record.status is values.TurnStatus.DONE
    return is_done and all(finished.ending is values.Ending.OK for finished in ends)
