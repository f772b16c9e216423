"""Logging to stderr, one line per record, secrets redacted.

`cli` calls `configure` once; all other modules only ask for a logger. The formatter redacts, not a
filter, because only the formatter knows the text of a traceback.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable

from interpreter_bot import errors, redaction

_log = logging.getLogger(__name__)

_MAX_CAUSES = 5
# At the level debug, these log whole requests, with people's words and pictures.
_VERBOSE_LIBRARIES = ("openai", "anthropic", "httpx2", "httpcore2")
# Errors of these libraries quote data of servers, which may be people's.
_QUOTING_LIBRARIES = ("mcp",)
_MAX_QUOTED_CHARACTERS = 300
# Foreign text in a message must neither forge a second line nor control a terminal.
_CHARACTER_ESCAPES = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
} | {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}

_MAX_SHORT_LIVED_SECRETS = 5_000


class _Secrets:
    """Secrets to be redacted. Tokens are renewed all the time, so old ones are dropped."""

    def __init__(self) -> None:
        self._long_lived: set[str] = set()
        self._short_lived: dict[str, None] = {}
        self._redactor: redaction.Redactor | None = None

    def add(self, secrets: Iterable[str], *, are_short_lived: bool) -> None:
        for secret in secrets:
            if secret in self._long_lived:
                continue
            if secret not in self._short_lived:
                self._redactor = None
            if are_short_lived:
                # Those in use are the last to be dropped.
                self._short_lived.pop(secret, None)
                self._short_lived[secret] = None
            else:
                self._long_lived.add(secret)
        while len(self._short_lived) > _MAX_SHORT_LIVED_SECRETS:
            del self._short_lived[next(iter(self._short_lived))]

    def redact(self, text: str) -> str:
        # Rebuilt only after changes: sorting thousands of secrets takes longer than the search.
        redactor = self._redactor or redaction.Redactor((*self._long_lived, *self._short_lived))
        self._redactor = redactor
        return redactor.redact(text)


_secrets = _Secrets()


def add_secrets(secrets: Iterable[str], *, are_short_lived: bool = False) -> None:
    """Redact these strings from the log from now on, message and traceback alike.

    Args:
        secrets: in the form in which they would appear in the text.
        are_short_lived: they are renewed every few hours, so the oldest of thousands are dropped.
    """
    _secrets.add(secrets, are_short_lived=are_short_lived)


def configure(level: str) -> None:
    """Send the records of every logger to stderr; a second call replaces the first.

    Args:
        level: name of the lowest level that is shown, such as `info`.

    Raises:
        ValueError: there is no such level.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _VERBOSE_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))


class _LineFormatter(logging.Formatter):
    """`2030-01-31T12:00:00.000+00:00 INFO interpreter_bot.app: message`, newlines escaped."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_format_time(record)} {record.levelname} {record.name}: {_format_message(record)}"
        trace = self._format_trace(record)
        return (f"{text}\n{trace}" if trace else text).translate(_CHARACTER_ESCAPES)

    def _format_trace(self, record: logging.LogRecord) -> str:
        """Return the error and the stack, if the record carries them.

        An error with a sentence for people was foreseen, so its causes are named and the traceback
        is left to the level debug.
        """
        parts = []
        if record.exc_info:
            error = record.exc_info[1]
            if _is_quoting(record):
                return type(error).__name__
            is_foreseen = isinstance(error, errors.BotError) and not _log.isEnabledFor(
                logging.DEBUG
            )
            parts.append(
                _format_causes(error) if is_foreseen else self.formatException(record.exc_info)
            )
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return _redact("\n".join(parts))


def _format_causes(error: BaseException | None) -> str:
    """Return an error and its causes in one line, the error first."""
    parts: list[str] = []
    while error is not None and len(parts) < _MAX_CAUSES:
        parts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " <- ".join(parts)


def _format_time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC)
    return moment.isoformat(timespec="milliseconds")


def _format_message(record: logging.LogRecord) -> str:
    text = record.getMessage().rstrip()
    return _redact(text[:_MAX_QUOTED_CHARACTERS] if _is_quoting(record) else text)


def _is_quoting(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _QUOTING_LIBRARIES and not _log.isEnabledFor(
        logging.DEBUG
    )


def _redact(text: str) -> str:
    return _secrets.redact(text)
