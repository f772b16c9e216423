"""Validation of what the page sends: session ids, names, text. Pure."""

from __future__ import annotations

import re
import secrets
import zoneinfo
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot import errors, values
from interpreter_bot.sessions import requests
from interpreter_bot.wording import page_words

PERSON: Final = requests.Person("web", "you")
"""The person with the token. There is only one."""

HERE: Final = values.Scope("web", person=PERSON.id)
"""The scope of their choices: all sessions of the page."""

MAX_TEXT_CHARACTERS: Final = 100_000
"""Longest message; longer ones are better sent as a file."""

MAX_NAME_CHARACTERS: Final = 4096
"""Longest name of a file."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_HANDLE: Final = re.compile(r"t[0-9]{1,12}")


class MalformedError(errors.BotError):
    """The page said something that was not understood. Please reload it."""


def made_up_id(value: object) -> str:
    """Return the id that the page made up for a session or a request.

    Raises:
        MalformedError: it is no such id.
    """
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise MalformedError
    return value


def known_zone(name: str) -> str:
    """Return the name of a browser's time zone, or "" if there is none of that name here."""
    try:
        return zoneinfo.ZoneInfo(name).key
    except (KeyError, ValueError, OSError):
        return ""


def key(thread: object) -> values.SessionKey:
    """Return the key of a session whose id the page made up.

    Raises:
        MalformedError: it is no such id.
    """
    return values.SessionKey("web", thread=made_up_id(thread))


def new_key() -> values.SessionKey:
    """Make up the key of a session, as the page does."""
    return values.SessionKey("web", thread=secrets.token_urlsafe(16))


def handle(value: object) -> str:
    """Return the handle of a table.

    Raises:
        MalformedError: it is none.
    """
    if not isinstance(value, str) or _HANDLE.fullmatch(value) is None:
        raise MalformedError
    return value


def text(
    message: Mapping[str, Any], name: str, *, max_characters: int = MAX_TEXT_CHARACTERS
) -> str:
    """Return a text of a message, as it can be stored.

    Raises:
        BotError: it is none, or too long.
    """
    value = storable(message.get(name, ""))
    if not isinstance(value, str):
        raise MalformedError
    return bounded(value, max_characters)


def storable(value: object) -> object:
    """Replace lone surrogates in a text, which nothing can store."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def bounded(text: str, max_characters: int) -> str:
    """Return a text that is not too long.

    Raises:
        BotError: it is.
    """
    if len(text) > max_characters:
        raise errors.BotError(page_words.too_long(len(text), max_characters))
    return text
