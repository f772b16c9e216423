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

NAME_CHARACTERS: Final = 128
"""Five of these, in UTF-8, fit into one index entry of PostgreSQL (2,704 bytes)."""
TEXT_CHARACTERS: Final = 4_000_000
"""Longer text is cut, and a note is appended."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
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


def storable(text: str) -> str:
    """Replace characters that no database accepts, each by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def shortened(text: str) -> str:
    """Cut text that is too long, and append a note."""
    excess = len(text) - TEXT_CHARACTERS
    if excess <= 0:
        return text
    return f"{text[:TEXT_CHARACTERS]}\n… [{excess:,} more characters were not kept]"


def storable_name(name: str) -> str:
    """Make a name storable such that different names stay different.

    Short names without such characters, as all real ones are, are unchanged; others end in a
    digest.
    """
    if len(name) <= NAME_CHARACTERS and not _UNSTORABLE.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    head = storable(name)[: NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]
    return f"{head}~{digest}"


def document(value: object) -> str:
    """Serialize a value as compact JSON; NUL and lone surrogates are escaped, so kept exactly."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # In JSON, surrogates can only be in a string, where the escape means the same. NUL is escaped
    # already.
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def output_document(output: values.StoredOutput) -> str:
    """Serialize an output."""
    fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    # Previews are not stored: the original is, and JSON holds no bytes.
    fields = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
    return document({"type": _OUTPUT_NAMES[type(output)], **fields})


class Name(types.TypeDecorator[str]):
    """Identifier from outside, which is compared and indexed; see `storable_name`."""

    impl = sqlalchemy.String(NAME_CHARACTERS)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sqlalchemy.Dialect) -> str | None:
        """Make it storable."""
        return None if value is None else storable_name(value)


class Prose(types.TypeDecorator[str]):
    """Text that people read; it is made storable, and cut if it is too long."""

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sqlalchemy.Dialect) -> str | None:
        """Make it storable."""
        return None if value is None else storable(shortened(value))


class Document(types.TypeDecorator[Any]):
    """JSON document. It is text in both databases, as PostgreSQL's JSON types refuse NUL.

    None is no document (NULL), so a JSON `null` cannot be told from it.
    """

    impl = sqlalchemy.Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: sqlalchemy.Dialect) -> str | None:
        """Serialize it as JSON."""
        return None if value is None else document(value)

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
        return None if value is None else document([storable(text) for text in value])

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
        return None if value is None else output_document(value)

    def process_result_value(
        self, value: str | None, dialect: sqlalchemy.Dialect
    ) -> values.StoredOutput | None:
        """Parse the JSON."""
        if value is None:
            return None
        fields = json.loads(value)
        kind = _OUTPUT_KINDS[fields.pop("type")]
        output: values.StoredOutput = kind(**{name: _frozen(fields[name]) for name in fields})
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


def _frozen(value: object) -> object:
    """Convert JSON lists to the tuples of frozen values."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def now() -> datetime.datetime:
    """Return the present time, in UTC."""
    return datetime.datetime.now(datetime.UTC)
