"""Notebooks that a person brings: their cells run one after the other, as if each had been typed.

What else is in a notebook is passed over. The first cell that fails, or is stopped, is the last.
"""

from __future__ import annotations

import asyncio
import functools
import pathlib
import secrets
from typing import Final

from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import files, validation, websocket_actions
from interpreter_bot.sessions import past_turns, requests, session_service
from interpreter_bot.text import notebook_cells, quantities

_MOST_BYTES: Final = 20 * 1024 * 1024
_MOST_CELLS: Final = 300
_RECENT_TURNS: Final = 5
_EMPTY: Final = "{name} has no code in it."
_LONG: Final = "{name} has {count:,} cells of code, and {most:,} is the most."
_ENDED: Final = "The notebook ended here; not run: {left} of {count}."


class NotebookRuns:
    """The route that begins them."""

    def __init__(
        self, service: session_service.SessionService, tabs: websocket_actions.TabConnection
    ) -> None:
        self._service = service
        self._tabs = tabs

    async def begin(self, request: web.Request) -> web.Response:
        """Begin to run the cells of a file in a session; the response is their number.

        Raises:
            BotError: it is no notebook, or a very large one.
        """
        source, name = files.where(request)
        key = validation.key(request.query.get("to"))
        cells = await asyncio.to_thread(notebook_cells.read, await self._read(source, name), name)
        if not cells:
            raise errors.BotError(_EMPTY.format(name=name))
        if len(cells) > _MOST_CELLS:
            raise errors.BotError(_LONG.format(name=name, count=len(cells), most=_MOST_CELLS))
        await self._service.rename(key, pathlib.PurePath(name).stem)
        self._tabs.start(functools.partial(self._run, key, cells), f"web: notebook {key.thread}")
        return web.json_response({"cells": len(cells)})

    async def _read(self, key: values.SessionKey, name: str) -> bytes:
        async with self._service.queries.reading(key, name) as (info, pieces):
            if info.size_bytes > _MOST_BYTES:
                raise errors.FileTooLargeError(files.too_large(_MOST_BYTES))
            return b"".join([piece async for piece in pieces])

    async def _run(self, key: values.SessionKey, cells: list[str]) -> None:
        for number, code in enumerate(cells, 1):
            request = requests.Request(
                key=key,
                person=validation.PERSON,
                text=code,
                is_code=True,
                id=secrets.token_urlsafe(16),
            )
            await self._tabs.go_on(request)
            if not await self._is_well(key, request.id):
                if left := len(cells) - number:
                    told = _ENDED.format(left=quantities.count(left, "cell"), count=len(cells))
                    await self._service.notify(key, told)
                return

    async def _is_well(self, key: values.SessionKey, request_id: str) -> bool:
        """Whether a cell ran to its end without an error; not if its session is gone."""
        # The next turn may have begun: of what somebody asked meanwhile.
        for turn in reversed(await self._service.queries.history(key, most=_RECENT_TURNS)):
            if turn.request_id != request_id:
                continue
            ends = [part for part in turn.parts if isinstance(part, past_turns.PastFinished)]
            is_done = turn.status is values.TurnStatus.DONE
            return is_done and all(one.finished.ending is values.Ending.OK for one in ends)
        return False
