"""Translate exceptions of SDKs, and what servers say, into `agent.model_errors`."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeGuard

import openai

from interpreter_bot import redaction, values
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import model_reply_assembly

_log = logging.getLogger(__name__)

_CONTEXT_WORDS: Final = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|too many tokens|prompt is too long"
    r"|exceeds? the (?:available|model'?s) context|input is too long|max_prompt_tokens",
    re.IGNORECASE,
)
_FILTER_WORDS: Final = re.compile(r"content_filter|content_policy|content management policy|safety")
_QUOTA_WORDS: Final = re.compile(
    r"insufficient_quota|billing|exceeded your current quota|credit balance is too low"
)
_REASONING_REFUSED_CODE: Final = "invalid_encrypted_content"
_SECRET: Final = re.compile(r"\bsk-[\w\-*.]{4,}|\bBearer\s+\S+", re.IGNORECASE)
_MAX_DETAIL_CHARACTERS: Final = 500
# Pictures and reasoning that a server quotes do not belong in a log.
_LONG_BASE64: Final = re.compile(r"[A-Za-z0-9+/_=\-]{160,}")
# No model reads or writes more tokens at once, so a larger count is an error of the server.
_MAX_TOKENS: Final = 10**9


class MalformedEventError(Exception):
    """An event of a stream is not JSON."""


@contextlib.contextmanager
def translate(
    assembler: model_reply_assembly.ModelReplyAssembler, *, api_key: str
) -> Iterator[None]:
    """Translate exceptions of the `openai` SDK raised inside.

    Args:
        assembler: has the part of the reply that was received.
        api_key: removed from the text of errors.
    """
    try:
        yield
    except (openai.OpenAIError, MalformedEventError) as error:
        failure = _translate_error(error, has_pictures=assembler.has_pictures)
        raise_translated(error, failure, assembler, api_key=api_key)


def raise_translated(
    error: Exception,
    failure: model_errors.ModelError,
    assembler: model_reply_assembly.ModelReplyAssembler,
    *,
    api_key: str,
) -> None:
    """Log an SDK's exception without the bot's key, and raise its translation.

    If the reply was complete before the connection failed, nothing is raised.

    Args:
        error: the exception.
        failure: the translation to raise if no part of a reply was received.
        assembler: see `translate`.
        api_key: see `translate`.
    """
    _redact_key(error, api_key)
    _log.warning("a model failed: %s: %s", type(failure).__name__, _describe_for_log(error))
    if assembler.finish is None:
        raise make_incomplete_reply_error(assembler, fallback=failure) from error


def make_incomplete_reply_error(
    assembler: model_reply_assembly.ModelReplyAssembler, *, fallback: model_errors.ModelError
) -> model_errors.ModelError:
    """Make an `IncompleteReplyError` with the partial reply; `fallback` if none was received."""
    if not assembler.has_received or isinstance(fallback, model_errors.RefusedError):
        return fallback
    return model_errors.IncompleteReplyError(assembler.build_reply(is_whole=False))


def _translate_error(error: Exception, *, has_pictures: bool) -> model_errors.ModelError:
    match error:
        case openai.APITimeoutError():
            return model_errors.ResponseTimeoutError()
        case openai.APIConnectionError():
            return model_errors.UnreachableError()
        case openai.APIStatusError():
            text = f"{error.code} {error.type} {error.message}"
            headers = error.response.headers
            return translate_status(error.status_code, text, headers, has_pictures=has_pictures)
        case openai.APIResponseValidationError() | MalformedEventError():
            return model_errors.MalformedResponseError()
        case openai.APIError():
            return translate_code(str(error.code or error.type or ""), error.message)
        case _:
            return model_errors.RequestRefusedError()


def translate_status(
    status_code: int, text: str, headers: Mapping[str, str], *, has_pictures: bool
) -> model_errors.ModelError:
    """Translate a refused request to an error.

    Args:
        status_code: the HTTP status.
        text: the codes and the message of the refusal.
        headers: the response's headers, which may name a time to wait.
        has_pictures: the request contained pictures.
    """
    wait = read_retry_after_seconds(headers)
    match status_code:
        case 401 | 403:
            return model_errors.KeyRefusedError()
        case 404 | 500 | 501 if has_pictures:
            # Servers also refuse pictures with these statuses. The request is repeated without
            # pictures, and any other reason then shows.
            return model_errors.RequestRefusedError()
        case 404:
            return model_errors.UnknownModelError()
        case 301 | 302 | 303 | 307 | 308:
            return model_errors.MovedError()
        case 402:
            return model_errors.QuotaError()
        case 413:
            return model_errors.ContextTooLongError()
        case 429 if _QUOTA_WORDS.search(text):
            return model_errors.QuotaError()
        case 429:
            return model_errors.RateLimitedError(retry_after_seconds=wait)
        case 408 | 409:
            return model_errors.OverloadedError(retry_after_seconds=wait)
        case status if status >= 500 and not _CONTEXT_WORDS.search(text):
            return model_errors.OverloadedError(retry_after_seconds=wait)
    return _translate_words(text) or model_errors.RequestRefusedError()


def _translate_words(text: str) -> model_errors.ModelError | None:
    """Translate the words of a message, because servers have no common codes."""
    if _QUOTA_WORDS.search(text):
        return model_errors.QuotaError()
    if _CONTEXT_WORDS.search(text):
        return model_errors.ContextTooLongError()
    if _FILTER_WORDS.search(text):
        return model_errors.RefusedError()
    return None


def translate_code(code: str, message: str) -> model_errors.ModelError:
    """Translate an error code that was received in a stream."""
    text = f"{code} {message}"
    if "rate_limit" in text and not _QUOTA_WORDS.search(text):
        return model_errors.RateLimitedError()
    if _REASONING_REFUSED_CODE in text:
        return model_errors.RequestRefusedError()
    return _translate_words(text) or model_errors.OverloadedError()


def read_retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a server asks for, in milliseconds, in seconds, or as a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(KeyError, ValueError):
            seconds = float(headers[name]) * unit
            return max(seconds, 0.0) if math.isfinite(seconds) else None
    with contextlib.suppress(KeyError, ValueError, TypeError):
        until = email.utils.parsedate_to_datetime(headers["retry-after"])
        if until.tzinfo is None:
            until = until.replace(tzinfo=datetime.UTC)
        return max((until - datetime.datetime.now(datetime.UTC)).total_seconds(), 0.0)
    return None


def _redact_key(error: Exception, api_key: str) -> None:
    """Remove the bot's key from an error, because servers may quote it."""

    def redact(value: str) -> str:
        return _SECRET.sub(redaction.REDACTED, redaction.redact(value, [api_key]))

    error.args = tuple(redact(str(arg)) for arg in error.args)
    # The attributes of both SDKs' errors.
    attributes = vars(error)
    if "message" in attributes:
        attributes["message"] = redact(str(attributes["message"]))
    if "body" in attributes:
        with contextlib.suppress(ValueError):
            attributes["body"] = json.loads(redact(json.dumps(attributes["body"], default=str)))


def _describe_for_log(error: Exception) -> str:
    status = getattr(error, "status_code", "")
    text = _LONG_BASE64.sub("[…]", str(error))[:_MAX_DETAIL_CHARACTERS]
    return f"{type(error).__name__} {status} {text}".replace("\n", " ")


def read_usage(
    input_tokens: object, output_tokens: object, details: object, other_cached: object = None
) -> values.Usage | None:
    """Read a server's token counts; None if they are missing or impossible.

    Args:
        input_tokens: the count of the whole input, including cached tokens.
        output_tokens: the count of the output.
        details: has `cached_tokens` and `cache_write_tokens`.
        other_cached: the cached tokens, if the server reports them under another name.
    """
    if not _is_count(input_tokens) or not _is_count(output_tokens):
        return None
    cache_reads = getattr(details, "cached_tokens", None)
    cache_reads = cache_reads if _is_count(cache_reads) else other_cached
    cache_reads = min(cache_reads, input_tokens) if _is_count(cache_reads) else 0
    cache_writes = getattr(details, "cache_write_tokens", None)
    cache_writes = min(cache_writes, input_tokens - cache_reads) if _is_count(cache_writes) else 0
    return values.Usage(
        input_tokens, output_tokens, cached_tokens=cache_reads, cache_write_tokens=cache_writes
    )


def _is_count(value: object) -> TypeGuard[int]:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value <= _MAX_TOKENS


def read_finish(reason: object) -> chat_messages.Finish | None:
    """Read why a reply ended; None if the server does not say."""
    match reason:
        case "length" | "max_tokens" | "max_output_tokens" | "model_context_window_exceeded":
            return chat_messages.Finish.LENGTH
        case "content_filter" | "refusal" | "safety":
            return chat_messages.Finish.FILTERED
        case str() if reason:
            # stop, tool_calls, function_call, and other servers' names for them.
            return chat_messages.Finish.STOP
    return None
