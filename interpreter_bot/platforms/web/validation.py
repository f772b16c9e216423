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

PAGE_SCOPE: Final = values.Scope("web", person=PERSON.id)
"""The scope of the choices of that person: all sessions of the page."""

MAX_TEXT_CHARACTERS: Final = 100_000
"""Longest message; longer ones are better sent as a file."""

MAX_NAME_CHARACTERS: Final = 4096
"""Longest name of a file."""

_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_HANDLE_PATTERN: Final = re.compile(r"t[0-9]{1,12}")


class MalformedError(errors.BotError):
    """The page said something that was not understood. Please reload it."""


def check_id(value: object) -> str:
    """Return a value if it has the form of the ids that pages make for sessions and requests.

    Raises:
        MalformedError: the value has another form.
    """
    if not isinstance(value, str) or _ID_PATTERN.fullmatch(value) is None:
        raise MalformedError
    return value


def find_zone(name: str) -> str:
    """Return the name of a browser's time zone; empty if this machine does not know it."""
    try:
        return zoneinfo.ZoneInfo(name).key
    except (KeyError, ValueError, OSError):
        return ""


def parse_key(thread: object) -> values.SessionKey:
    """Return the key of the session with an id that a page made.

    Raises:
        MalformedError: the id has another form.
    """
    return values.SessionKey("web", thread=check_id(thread))


def make_key() -> values.SessionKey:
    """Return the key of a new session."""
    return values.SessionKey("web", thread=secrets.token_urlsafe(16))


def check_handle(value: object) -> str:
    """Return a value if it has the form of a table's handle.

    Raises:
        MalformedError: the value has another form.
    """
    if not isinstance(value, str) or _HANDLE_PATTERN.fullmatch(value) is None:
        raise MalformedError
    return value


def read_text(
    message: Mapping[str, Any], name: str, *, max_characters: int = MAX_TEXT_CHARACTERS
) -> str:
    """Return a text of a message, without lone surrogates; empty if the message has none.

    Raises:
        BotError: the value is no text, or too long.
    """
    value = replace_surrogates(message.get(name, ""))
    if not isinstance(value, str):
        raise MalformedError
    return check_length(value, max_characters)


def replace_surrogates(value: object) -> object:
    """Replace the lone surrogates of a text, which cannot be stored; return other values as is."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def check_length(text: str, max_characters: int) -> str:
    """Return a text if it is not too long.

    Raises:
        BotError: the text is too long.
    """
    if len(text) > max_characters:
        raise errors.BotError(page_words.too_long(len(text), max_characters))
    return text
