"""Column types that make text storable, times unambiguous and documents exact.

PostgreSQL refuses NUL in text, and no database accepts lone surrogates. Kernels, models and people
send both, so they are replaced here, and SQLite and PostgreSQL store the same text.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy
from sqlalchemy import types

from interpreter_bot import values

MAX_NAME_CHARACTERS: Final = 128
"""Five of these, in UTF-8, fit into one index entry of PostgreSQL (2,704 bytes)."""
MAX_TEXT_CHARACTERS: Final = 4_000_000
"""Longer text is cut, and a note is appended."""

_UNSTORABLE_PATTERN = re.compile("[\x00\ud800-\udfff]")
_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
_DIGEST_CHARACTERS = 64
_OUTPUT_KINDS: Final[Mapping[str, type[Any]]] = {
    "text": values.Text,
    "error": values.Error,
    "table": values.Table,
    "latex": values.Latex,
    "json": values.Json,
    "result": values.Result,
    "clear": values.Clear,
    "notice": values.Notice,
    "kept": values.StoredDisplay,
}
_OUTPUT_NAMES: Final = {kind: name for name, kind in _OUTPUT_KINDS.items()}


def make_storable(text: str) -> str:
    """Replace characters that no database accepts, each by U+FFFD."""
    return _UNSTORABLE_PATTERN.sub("\ufffd", text)


def shorten(text: str) -> str:
    """Cut text that is too long, and append a note."""
    excess_count = len(text) - MAX_TEXT_CHARACTERS
    if excess_count <= 0:
        return text
    return f"{text[:MAX_TEXT_CHARACTERS]}\n… [{excess_count:,} more characters were not kept]"


def make_name_storable(name: str) -> str:
    """Make a name storable; different names stay different.

    All real names are short and have no such characters, and are unchanged. Others are cut, and end
    in a digest.
    """
    if len(name) <= MAX_NAME_CHARACTERS and not _UNSTORABLE_PATTERN.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    head = make_storable(name)[: MAX_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]
    return f"{head}~{digest}"


def serialize(value: object) -> str:
    """Serialize a value as compact JSON; NUL and lone surrogates are escaped, and not replaced."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # In JSON, surrogates occur only in strings, and the escape means the same. `dumps` escapes NUL.
    return _SURROGATE_PATTERN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def serialize_output(output: values.StoredOutput) -> str:
    """Serialize an output."""
    fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    # Previews are bytes, which JSON cannot hold. They are made again from the original.
    fields = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
    return serialize({"type": _OUTPUT_NAMES[type(output)], **fields})


class Name(types.TypeDecorator[str]):
    """Identifier from outside, which is compared and indexed; see `make_name_storable`."""

    impl = sqlalchemy.String(MAX_NAME_CHARACTERS)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sqlalchemy.Dialect) -> str | None:
        """Make it storable."""
        return None if value is None else make_name_storable(value)


class Prose(types.TypeDecorator[str]):
    """Text that people read; it is made storable, and cut if it is too long."""

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sqlalchemy.Dialect) -> str | None:
        """Make it storable."""
        return None if value is None else make_storable(shorten(value))


class Document(types.TypeDecorator[Any]):
    """JSON document. It is text in both databases, as PostgreSQL's JSON types refuse NUL.

    None means no document (NULL), so a JSON `null` cannot be stored.
    """

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: sqlalchemy.Dialect) -> str | None:
        """Serialize it as JSON."""
        return None if value is None else serialize(value)

    def process_result_value(
        self,
        value: Any,  # noqa: ANN401
        dialect: sqlalchemy.Dialect,
    ) -> Any:  # noqa: ANN401
        """Parse the JSON."""
        return None if value is None else json.loads(value)


class Texts(types.TypeDecorator[tuple[str, ...]]):
    """Several short texts."""

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(
        self, value: tuple[str, ...] | None, dialect: sqlalchemy.Dialect
    ) -> str | None:
        """Serialize them as JSON."""
        return None if value is None else serialize([make_storable(text) for text in value])

    def process_result_value(
        self, value: str | None, dialect: sqlalchemy.Dialect
    ) -> tuple[str, ...] | None:
        """Parse the JSON."""
        return None if value is None else tuple(json.loads(value))


class Output(types.TypeDecorator[values.StoredOutput]):
    """Output of code."""

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(
        self, value: values.StoredOutput | None, dialect: sqlalchemy.Dialect
    ) -> str | None:
        """Serialize it as JSON."""
        return None if value is None else serialize_output(value)

    def process_result_value(
        self, value: str | None, dialect: sqlalchemy.Dialect
    ) -> values.StoredOutput | None:
        """Parse the JSON."""
        if value is None:
            return None
        fields = json.loads(value)
        kind = _OUTPUT_KINDS[fields.pop("type")]
        output: values.StoredOutput = kind(**{name: _freeze(fields[name]) for name in fields})
        return output


class Moment(types.TypeDecorator[datetime.datetime]):
    """Time in UTC. SQLite forgets the zone, so it is put back."""

    impl = sqlalchemy.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(
        self, value: datetime.datetime | None, dialect: sqlalchemy.Dialect
    ) -> datetime.datetime | None:
        """Convert it to UTC; a time without a zone is an error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        return value.astimezone(datetime.UTC)

    def process_result_value(
        self, value: datetime.datetime | None, dialect: sqlalchemy.Dialect
    ) -> datetime.datetime | None:
        """Put UTC back."""
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=datetime.UTC)
        return value.astimezone(datetime.UTC)


def _freeze(value: object) -> object:
    """Convert JSON lists to the tuples of frozen values."""
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def now() -> datetime.datetime:
    """Return the present time, in UTC."""
    return datetime.datetime.now(datetime.UTC)
