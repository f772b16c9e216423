"""What tabs do with whole sessions: begin anew, copy, take back, delete, name, mark, find; and
what they ask of a live kernel: parts of tables, and how code may go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import (
    event_json,
    notebook_progress,
    tab_contents,
    tab_hub,
    validation,
)
from interpreter_bot.sessions import live_completions, live_data_views, session_service
from interpreter_bot.wording import page_words, session_words

Message: TypeAlias = Mapping[str, Any]
"""What a tab said."""

Action: TypeAlias = Callable[[tab_hub.Tab, Message], Awaitable[None]]
"""Does what a tab said."""

_MOST_TITLE_CHARACTERS: Final = 200


class SessionActions:
    """What tabs do with sessions as a whole."""

    def __init__(self, service: session_service.SessionService, hub: tab_hub.Hub) -> None:
        self._service = service
        self._hub = hub

    def by_name(self) -> Mapping[str, Action]:
        """Return the actions, by what a message says is to be done."""
        return {
            "reset": self._reset,
            "fork": self._fork,
            "undo": self._undo,
            "delete": self._delete,
            "rename": self._rename,
            "mark": self._mark,
            "search": self._search,
            "choose": self._choose,
        }

    async def _tree(self, message: Message) -> tuple[values.SessionKey, ...]:
        """Return the keys of a session and its branches, which are one in the list."""
        return await self._service.branches.tree(validation.key(message.get("thread")))

    async def _reset(self, _: tab_hub.Tab, message: Message) -> None:
        key = validation.key(message.get("thread"))
        await self._service.reset(key, files=message.get("files") is True)
        self._hub.forget(key.thread)
        self._hub.tell("reset", {}, thread=key.thread)
        self._hub.is_changed.set()

    async def _fork(self, tab: tab_hub.Tab, message: Message) -> None:
        """Copy a session, and let the tab go there."""
        key, new_key = validation.key(message.get("thread")), validation.new_key()
        await self._service.branches.fork(key, new_key, validation.PERSON.id)
        tab.send(tab_hub.encoded_message("forked", {"to": new_key.thread}))
        self._hub.is_changed.set()

    async def _undo(self, tab: tab_hub.Tab, message: Message) -> None:
        """Take the last turn back; the tab that asks lets its question be written anew."""
        key = validation.key(message.get("thread"))
        undone = await self._service.branches.undo(key)
        tab.send(tab_hub.encoded_message("undone", {}, thread=key.thread))
        self._hub.forget(key.thread)
        self._hub.tell("reset", {}, thread=key.thread)
        self._hub.notify(
            key.thread, session_words.undone(undone.request, undone.missed_runs, undone.files_flaw)
        )

    async def _delete(self, _: tab_hub.Tab, message: Message) -> None:
        for key in await self._tree(message):
            await self._service.delete(key)
            await notebook_progress.save(self._service, key, None)
            self._hub.forget(key.thread)
            self._hub.tell("deleted", {}, thread=key.thread)
        self._hub.is_changed.set()

    async def _rename(self, _: tab_hub.Tab, message: Message) -> None:
        title = validation.text(message, "title", most=_MOST_TITLE_CHARACTERS).strip()
        if not title:
            raise errors.BotError(page_words.NO_NAME)
        for key in await self._tree(message):
            await self._service.rename(key, title)
        self._hub.is_changed.set()

    async def _mark(self, _: tab_hub.Tab, message: Message) -> None:
        """Pin or archive a session, or take that back."""
        mark = message.get("mark")
        if mark not in ("", "pinned", "archived"):
            raise validation.MalformedError
        for key in await self._tree(message):
            await self._service.mark(key, mark)
        self._hub.is_changed.set()

    async def _search(self, tab: tab_hub.Tab, message: Message) -> None:
        text = validation.text(message, "text", most=_MOST_TITLE_CHARACTERS)
        tab.send(tab_hub.encoded_message("found", await tab_contents.search(self._service, text)))

    async def _choose(self, _: tab_hub.Tab, message: Message) -> None:
        key = validation.key(message.get("thread"))
        title = validation.text(message, "model", most=_MOST_TITLE_CHARACTERS)
        await self._service.choose_model(key, title or None)
        self._hub.tell(
            "model", {"model": await self._service.queries.model(key)}, thread=key.thread
        )


def look(
    service: session_service.SessionService, tab: tab_hub.Tab, message: Message
) -> Callable[[], Awaitable[None]]:
    """Read a question; what is given asks it, and sends the tab the answer.

    Raises:
        BotError: it is none.
    """
    key = validation.key(message.get("thread"))
    question = validation.whole_number(message, "question")
    ask = _completions if "code" in message else _table
    asked = ask(service, key, message)

    async def answer() -> None:
        told = event_json.problem(errors.BotError(page_words.NO_TABLE))  # If the net catches more.
        try:
            told = await asked()
        except errors.BotError as error:
            told = event_json.problem(error)
        finally:
            tab.send(tab_hub.encoded_message("looked", told | {"question": question}))

    return answer


def _table(
    service: session_service.SessionService, key: values.SessionKey, message: Message
) -> Callable[[], Awaitable[dict[str, Any]]]:
    handle = validation.handle(message.get("table"))
    wanted = live_data_views.read_question(message.get("wanted"))

    async def ask() -> dict[str, Any]:
        found = await service.queries.table(key, handle, wanted, validation.PERSON)
        return found.model_dump(mode="json")

    return ask


def _completions(
    service: session_service.SessionService, key: values.SessionKey, message: Message
) -> Callable[[], Awaitable[dict[str, Any]]]:
    code = validation.text(message, "code", most=live_completions.MOST_CHARACTERS)

    async def ask() -> dict[str, Any]:
        return (await service.queries.completions(key, code)).model_dump(mode="json")

    return ask
