"""Validation of the page's messages: session ids, names, text. Pure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.sessions import requests
from interpreter_bot.wording import page_words

PERSON: Final = requests.Person("web", "you")
"""The person with the token. There is only one."""

HERE: Final = values.Scope("web", person=PERSON.id)
"""The scope of their choices: all sessions of the page."""

MOST_TEXT_CHARACTERS: Final = 100_000
"""Longest message; longer ones are better sent as a file."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_HANDLE: Final = re.compile(r"t[0-9]{1,12}")
_MOST_FILES: Final = 200
_MOST_NAME_CHARACTERS: Final = 4096


class MalformedError(errors.BotError):
    """The page said something that was not understood. Please reload it."""


def key(thread: object) -> values.SessionKey:
    """Return the key of a session whose id the page made up.

    Raises:
        MalformedError: it is no such id.
    """
    if not isinstance(thread, str) or _ID.fullmatch(thread) is None:
        raise MalformedError
    return values.SessionKey("web", thread=thread)


def new_key() -> values.SessionKey:
    """Make up the key of a session, as the page does."""
    return values.SessionKey("web", thread=secrets.token_urlsafe(16))


def turn_id(value: object) -> str:
    """Return the id that the page made up for a request.

    Raises:
        MalformedError: it is no such id.
    """
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise MalformedError
    return value


def handle(value: object) -> str:
    """Return the handle of a table.

    Raises:
        MalformedError: it is none.
    """
    if not isinstance(value, str) or _HANDLE.fullmatch(value) is None:
        raise MalformedError
    return value


def text(message: Mapping[str, Any], name: str, *, most: int = MOST_TEXT_CHARACTERS) -> str:
    """Return a text of a message. Lone surrogates, which nothing can store, are replaced.

    Raises:
        BotError: it is none, or has more than so many characters.
    """
    value = message.get(name, "")
    if not isinstance(value, str):
        raise MalformedError
    if len(value) > most:
        raise errors.BotError(page_words.too_long(len(value), most))
    return value.encode("utf-8", "replace").decode()


def whole_number(message: Mapping[str, Any], name: str) -> int:
    """Return a number of a message, not negative.

    Raises:
        MalformedError: it is none.
    """
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise MalformedError
    return value


def files(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of files that a message is about.

    Raises:
        MalformedError: they are none, or too many.
    """
    names = message.get("files", [])
    if not isinstance(names, list) or len(names) > _MOST_FILES:
        raise MalformedError
    return tuple(text({"name": name}, "name", most=_MOST_NAME_CHARACTERS) for name in names)
