"""Actions of tabs on whole sessions (reset, fork, undo, delete, rename, mark, search), and their
requests to a live kernel: pages of tables, and completions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pydantic

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import (
    notebook_progress,
    tab_contents,
    tab_hub,
    tab_messages,
    validation,
)
from interpreter_bot.sessions import live_data_views, session_service
from interpreter_bot.wording import page_words, session_words

SessionMessage: TypeAlias = (
    tab_messages.Reset
    | tab_messages.Fork
    | tab_messages.Undo
    | tab_messages.Delete
    | tab_messages.Rename
    | tab_messages.Mark
    | tab_messages.Choose
    | tab_messages.Search
)
"""A message of a tab on a whole session."""


class SessionActions:
    """Carries out the actions of tabs on whole sessions."""

    def __init__(self, service: session_service.SessionService, hub: tab_hub.Hub) -> None:
        self._service = service
        self._hub = hub

    async def act(self, tab: tab_hub.Tab, message: SessionMessage) -> None:
        """Carry out a tab's message."""
        match message:
            case tab_messages.Reset():
                await self._reset(message)
            case tab_messages.Fork():
                await self._fork(tab, message.key)
            case tab_messages.Undo():
                await self._undo(tab, message.key)
            case tab_messages.Delete():
                await self._delete(message.key)
            case tab_messages.Rename():
                await self._rename(message.key, message.title.strip())
            case tab_messages.Mark():
                # A session and its branches are one in the list.
                for key in await self._service.branches.tree(message.key):
                    await self._service.mark(key, message.mark)
                self._hub.is_changed.set()
            case tab_messages.Choose():
                await self._choose(message)
            case tab_messages.Search():
                matches = await tab_contents.search(self._service, message.text)
                tab.send(tab_hub.encoded_message("found", matches))

    async def _reset(self, message: tab_messages.Reset) -> None:
        key = message.key
        await self._service.reset(key, files=message.files)
        self._hub.forget(key.thread)
        self._hub.send_message("reset", {}, thread=key.thread)
        self._hub.is_changed.set()

    async def _fork(self, tab: tab_hub.Tab, key: values.SessionKey) -> None:
        """Copy a session, and switch the tab to the copy."""
        new_key = validation.new_key()
        await self._service.branches.fork(key, new_key, validation.PERSON.id)
        tab.send(tab_hub.encoded_message("forked", {"to": new_key.thread}))
        self._hub.is_changed.set()

    async def _undo(self, tab: tab_hub.Tab, key: values.SessionKey) -> None:
        """Undo the last turn; the tab puts its question back into the input field."""
        undone = await self._service.branches.undo(key)
        tab.send(tab_hub.encoded_message("undone", {}, thread=key.thread))
        self._hub.forget(key.thread)
        self._hub.send_message("reset", {}, thread=key.thread)
        self._hub.notify(
            key.thread,
            session_words.answer_undone(undone.request, undone.missed_runs, undone.files_notice),
        )

    async def _delete(self, session: values.SessionKey) -> None:
        for key in await self._service.branches.tree(session):
            await self._service.delete(key)
            await notebook_progress.save(self._service, key, None)
            self._hub.forget(key.thread)
            self._hub.send_message("deleted", {}, thread=key.thread)
        self._hub.is_changed.set()

    async def _rename(self, session: values.SessionKey, title: str) -> None:
        if not title:
            raise errors.BotError(page_words.NO_NAME)
        for key in await self._service.branches.tree(session):
            await self._service.rename(key, title)
        self._hub.is_changed.set()

    async def _choose(self, message: tab_messages.Choose) -> None:
        key = message.key
        await self._service.choose_model(key, message.model or None)
        self._hub.send_message(
            "model", {"model": await self._service.queries.model(key)}, thread=key.thread
        )


def read_live_data(
    service: session_service.SessionService, tab: tab_hub.Tab, message: tab_messages.Look
) -> Callable[[], Awaitable[None]]:
    """Read a question; what is given asks it, and sends the tab the answer.

    Raises:
        BotError: it is none.
    """
    view = live_data_views.read_question(message.wanted) if message.code is None else None

    async def answer() -> None:
        # If the net catches more.
        content = tab_contents.problem(errors.BotError(page_words.NO_TABLE))
        try:
            result: pydantic.BaseModel
            if view is None:
                result = await service.queries.completions(message.key, message.code or "")
            else:
                result = await service.queries.table(
                    message.key, message.table, view, validation.PERSON
                )
            content = result.model_dump(mode="json")
        except errors.BotError as error:
            content = tab_contents.problem(error)
        finally:
            tab.send(tab_hub.encoded_message("looked", content | {"question": message.question}))

    return answer
