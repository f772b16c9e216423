"""What a tab asks of a live kernel beside its turns: parts of tables, and how code may go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.platforms.web import event_json, tab_hub, validation
from interpreter_bot.sessions import live_completions, live_data_views, session_service

_UNLOOKED: Final = "The table could not be looked at."


def look(
    service: session_service.SessionService, tab: tab_hub.Tab, message: Mapping[str, Any]
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
        told = event_json.problem(errors.BotError(_UNLOOKED))  # If the net catches more.
        try:
            told = await asked()
        except errors.BotError as error:
            told = event_json.problem(error)
        finally:
            tab.send(tab_hub.encoded_message("looked", told | {"question": question}))

    return answer


def _table(
    service: session_service.SessionService, key: values.SessionKey, message: Mapping[str, Any]
) -> Callable[[], Awaitable[dict[str, Any]]]:
    handle = validation.handle(message.get("table"))
    wanted = live_data_views.read_question(message.get("wanted"))

    async def ask() -> dict[str, Any]:
        return (await service.queries.table(key, handle, wanted)).model_dump(mode="json")

    return ask


def _completions(
    service: session_service.SessionService, key: values.SessionKey, message: Mapping[str, Any]
) -> Callable[[], Awaitable[dict[str, Any]]]:
    code = validation.text(message, "code", most=live_completions.MOST_CHARACTERS)

    async def ask() -> dict[str, Any]:
        return (await service.queries.completions(key, code)).model_dump(mode="json")

    return ask
