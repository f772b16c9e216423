"""Anthropic's Messages API. Each request has the whole transcript; the server caches its beginning.

Imported only if a model needs it, because importing the SDK takes seconds of processor time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import anthropic
import httpx2

from interpreter_bot import events, settings
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import (
    anthropic_blocks,
    chat_completions,
    model_reply_assembly,
    reasoning_replay,
    sdk_errors,
    server_quirks,
    tls_contexts,
)

_SDK_ERRORS: Final = (anthropic.AnthropicError, httpx2.HTTPError, sdk_errors.MalformedEventError)
# The HTTP statuses that correspond to errors in a stream; the stream itself has status 200.
_STATUS_BY_ERROR_TYPE: Final[Mapping[str, int]] = {
    **{"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402},
    **{"permission_error": 403, "not_found_error": 404, "request_too_large": 413},
    **{"rate_limit_error": 429, "overloaded_error": 529, "timeout_error": 504},
}
_CACHE_CONTROL: Final[Mapping[str, Any]] = {"cache_control": {"type": "ephemeral"}}
# The earlier message is a fallback: after a step of many blocks, the server does not search back
# far enough to find the later one in its cache.
_CACHED_MESSAGE_COUNT: Final = 2


def open_client(
    base_url: str, api_key: str, timeout: httpx2.Timeout | float
) -> anthropic.AsyncAnthropic:
    """Open a connection pool, which takes proxies and certificate authorities from the environment.

    Args:
        base_url: the server's URL, with or without `/v1`.
        api_key: empty if the server needs none.
        timeout: the limits for connecting and for each read.
    """
    return anthropic.AsyncAnthropic(
        # Some servers need no key, but the SDK does.
        api_key=api_key or "none",
        base_url=base_url.rstrip("/").removesuffix("/v1"),
        max_retries=0,
        timeout=timeout,
        open_telemetry=False,
        # No redirects: keys and people's words are sent only to the configured address.
        http_client=anthropic.DefaultAsyncHttpxClient(
            timeout=timeout, verify=tls_contexts.shared_context(), follow_redirects=False
        ),
    )


class MessagesLlm:
    """A model with tool calling over the Messages API."""

    def __init__(self, client: anthropic.AsyncAnthropic, model: settings.Model) -> None:
        self._client = client
        # The SDK imports this attribute on first access. Access it here, in the thread that opens
        # the model, so that the import does not block the event loop.
        self._messages = client.messages
        self._model = model
        self._origin = reasoning_replay.make_origin("anthropic", model)
        self._quirks = server_quirks.find_quirks(model)

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        assembler = model_reply_assembly.ModelReplyAssembler(emit, prompt, origin=self._origin)
        reader = anthropic_blocks.StreamReader(assembler)
        parameters = self._build_parameters(prompt)
        if prompt.omits_optional_parameters:
            parameters = server_quirks.drop_optional_parameters(parameters)
        parameters = self._quirks.adapt(parameters)
        with _translate_errors(assembler, api_key=self._client.api_key or ""):
            stream = await server_quirks.send_well_formed(self._open_stream, parameters)
            # A cancellation also closes the connection, so that the server stops at once.
            async with (
                stream,
                contextlib.aclosing(chat_completions.iterate_chunks(stream)) as stream_chunks,
            ):
                async for event in stream_chunks:
                    reader.receive(event)
                    if assembler.exceeds_limit:
                        assembler.finish = chat_messages.Finish.LENGTH
                        break
        if assembler.finish is None:
            raise sdk_errors.make_incomplete_reply_error(
                assembler, fallback=model_errors.MalformedResponseError()
            )
        return assembler.build_reply()

    async def _open_stream(self, parameters: dict[str, Any]) -> anthropic.AsyncStream[Any]:
        stream = await self._messages.create(
            model=self._model.name,
            max_tokens=parameters["max_tokens"],
            messages=[],
            stream=True,
            # As `extra_body`, for the reason given in `chat_completions`.
            extra_body=parameters,
        )
        return cast("anthropic.AsyncStream[Any]", stream)

    def _build_parameters(self, prompt: chat_messages.Prompt) -> dict[str, Any]:
        # Writing to the cache costs more, so only a prompt that will be sent again is cached.
        cache_control = _CACHE_CONTROL if prompt.cache_key else {}
        messages = anthropic_blocks.convert_transcript(prompt.messages, self._origin)
        if prompt.cache_key and prompt.may_call:
            # Messages of a prompt that forbids calls are not cached, because the server does not
            # find them again when calls are allowed.
            for message in [candidate for candidate in messages if candidate["role"] == "user"][
                -_CACHED_MESSAGE_COUNT:
            ]:
                message["content"][-1] |= cache_control
        parameters: dict[str, Any] = {
            "model": self._model.name,
            "max_tokens": prompt.answer_tokens,
            # The tools come before the system prompt, so they are cached with it.
            "system": [{"type": "text", "text": prompt.system, **cache_control}],
            "messages": messages,
            # Nobody sees the text of thoughts. Only the signature is needed.
            "thinking": {"type": "adaptive", "display": "omitted"}
            if self._model.thinks
            else {"type": "disabled"},
        }
        if prompt.tools:
            parameters["tools"] = [anthropic_blocks.convert_tool(tool) for tool in prompt.tools]
            parameters["tool_choice"] = {"type": "auto" if prompt.may_call else "none"}
        # No temperature, because the server refuses it since version 2026-10-21.
        return parameters


@contextlib.contextmanager
def _translate_errors(
    assembler: model_reply_assembly.ModelReplyAssembler, *, api_key: str
) -> Iterator[None]:
    """Translate exceptions raised inside; see `sdk_errors.translate`."""
    try:
        yield
    except _SDK_ERRORS as error:
        failure = _translate_error(error, has_pictures=assembler.has_pictures)
        sdk_errors.raise_translated(error, failure, assembler, api_key=api_key)


def _translate_error(error: Exception, *, has_pictures: bool) -> model_errors.ModelError:
    match error:
        case anthropic.APITimeoutError() | httpx2.TimeoutException():
            return model_errors.ResponseTimeoutError()
        case anthropic.APIConnectionError() | httpx2.HTTPError():
            return model_errors.UnreachableError()
        case anthropic.APIStatusError():
            status = error.status_code
            if status < 300:
                status = _STATUS_BY_ERROR_TYPE.get(error.type or "", 500)
            text = f"{error.type} {error.message}"
            return sdk_errors.translate_status(
                status, text, error.response.headers, has_pictures=has_pictures
            )
        case anthropic.APIResponseValidationError() | sdk_errors.MalformedEventError():
            return model_errors.MalformedResponseError()
        case _:
            return model_errors.RequestRefusedError()
