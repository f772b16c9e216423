"""Actions of tabs on whole sessions (reset, fork, undo, delete, rename, mark, search), and their
requests to a live kernel: pages of tables, and completions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pydantic

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import (
    tab_contents,
    tab_hub,
    tab_messages,
    validation,
)
from interpreter_bot.sessions import live_data_views, session_service
from interpreter_bot.wording import page_words, session_words


class SessionActions:
    """Carries out the actions of tabs on whole sessions."""

    def __init__(self, service: session_service.SessionService, hub: tab_hub.Hub) -> None:
        self._service = service
        self._hub = hub

    async def act(self, tab: tab_hub.Tab, message: tab_messages.TabMessage) -> None:
        """Carry out a tab's message on a whole session."""
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
                # The list shows a session and its branches as one entry.
                for key in await self._service.branches.list_branches(message.key):
                    await self._service.mark(key, message.mark)
                self._hub.sessions_changed.set()
            case tab_messages.ChooseModel():
                await self._choose_model(message)
            case tab_messages.Search():
                matches = await tab_contents.search_sessions(self._service, message.text)
                tab.send(tab_hub.encode_message("search_results", matches))

    async def _reset(self, message: tab_messages.Reset) -> None:
        key = message.key
        await self._service.reset(key, files=message.files)
        self._hub.forget_finished_turns(key.thread)
        self._hub.send_message("reset", {}, thread=key.thread)
        self._hub.sessions_changed.set()

    async def _fork(self, tab: tab_hub.Tab, key: values.SessionKey) -> None:
        """Copy a session, and switch the tab to the copy."""
        new_key = validation.make_key()
        await self._service.branches.fork(key, new_key, validation.PERSON.id)
        tab.send(tab_hub.encode_message("forked", {"to": new_key.thread}))
        self._hub.sessions_changed.set()

    async def _undo(self, tab: tab_hub.Tab, key: values.SessionKey) -> None:
        """Undo the last turn; the tab puts its question back into the input field."""
        undo_result = await self._service.branches.undo(key)
        tab.send(tab_hub.encode_message("undone", {}, thread=key.thread))
        self._hub.forget_finished_turns(key.thread)
        self._hub.send_message("reset", {}, thread=key.thread)
        self._hub.notify(
            key.thread,
            session_words.answer_undone(
                undo_result.request, undo_result.missed_runs, undo_result.files_notice
            ),
        )

    async def _delete(self, session: values.SessionKey) -> None:
        for key in await self._service.branches.list_branches(session):
            await self._service.delete(key)
            self._hub.forget_finished_turns(key.thread)
            self._hub.send_message("deleted", {}, thread=key.thread)
        self._hub.sessions_changed.set()

    async def _rename(self, session: values.SessionKey, title: str) -> None:
        if not title:
            raise errors.BotError(page_words.NO_NAME)
        for key in await self._service.branches.list_branches(session):
            await self._service.rename(key, title)
        self._hub.sessions_changed.set()

    async def _choose_model(self, message: tab_messages.ChooseModel) -> None:
        key = message.key
        await self._service.choose_model(key, message.model or None)
        self._hub.send_message(
            "model", {"model": await self._service.queries.find_model_title(key)}, thread=key.thread
        )


def prepare_read(
    service: session_service.SessionService, tab: tab_hub.Tab, message: tab_messages.ReadData
) -> Callable[[], Awaitable[None]]:
    """Check a request for data; return a function that reads the data and sends it to the tab.

    Raises:
        BotError: the request is malformed.
    """
    table_request = live_data_views.parse_request(message.view) if message.code is None else None

    async def read() -> None:
        # Sent if the read raises an unexpected error.
        content = tab_contents.describe_problem(errors.BotError(page_words.NO_TABLE))
        try:
            result: pydantic.BaseModel
            if table_request is None:
                result = await service.queries.complete_code(message.key, message.code or "")
            else:
                result = await service.queries.read_table(
                    message.key, message.table, table_request, validation.PERSON
                )
            content = result.model_dump(mode="json")
        except errors.BotError as error:
            content = tab_contents.describe_problem(error)
        finally:
            tab.send(tab_hub.encode_message("data_read", content | {"query_id": message.query_id}))

    return read
