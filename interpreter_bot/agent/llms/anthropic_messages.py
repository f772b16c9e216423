"""Anthropic's Messages API. Every request carries the transcript; what does not change is cached.

Imported only where a model needs it: its SDK takes seconds of a processor.
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
# The statuses of errors that come inside a stream, whose own status is 200.
_STATUSES: Final[Mapping[str, int]] = {
    **{"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402},
    **{"permission_error": 403, "not_found_error": 404, "request_too_large": 413},
    **{"rate_limit_error": 429, "overloaded_error": 529, "timeout_error": 504},
}
_CACHE_CONTROL: Final[Mapping[str, Any]] = {"cache_control": {"type": "ephemeral"}}
# One is a fallback for the other: a step of many blocks is more than the server looks back.
_CACHED_MESSAGE_COUNT: Final = 2


def client(
    base_url: str, api_key: str, timeout: httpx2.Timeout | float
) -> anthropic.AsyncAnthropic:
    """Open a connection pool; takes from the environment only proxies and authorities.

    Args:
        base_url: with or without the `/v1` that its paths begin with.
        api_key: empty if the server needs none; the SDK does.
        timeout: of connections and silence.
    """
    return anthropic.AsyncAnthropic(
        api_key=api_key or "none",
        base_url=base_url.rstrip("/").removesuffix("/v1"),
        max_retries=0,
        timeout=timeout,
        open_telemetry=False,
        # No redirects: keys and people's words go to the address that was set, and to no other.
        http_client=anthropic.DefaultAsyncHttpxClient(
            timeout=timeout, verify=tls_contexts.shared_context(), follow_redirects=False
        ),
    )


class MessagesLlm:
    """A model with tool calling over the Messages API."""

    def __init__(self, client: anthropic.AsyncAnthropic, model: settings.Model) -> None:
        self._client = client
        # The SDK imports it when it is first read: here, in the thread that opens the model.
        self._messages = client.messages
        self._model = model
        self._origin = reasoning_replay.origin("anthropic", model)
        self._quirks = server_quirks.find_quirks(model)
        self._max_answer_tokens: int | None = None

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        assembler = model_reply_assembly.ModelReplyAssembler(emit, prompt, origin=self._origin)
        stream_events = anthropic_blocks.StreamEvents(assembler)
        parameters = self._parameters(prompt)
        if prompt.omits_optional_parameters:
            parameters = server_quirks.drop_optional_parameters(parameters)
        parameters = self._quirks.adapt(parameters)
        with _translate_errors(assembler, api_key=self._client.api_key or ""):
            stream = await server_quirks.send_well_formed(self._open, parameters)
            # Closes the connection also on cancellation, so that the server stops at once.
            async with (
                stream,
                contextlib.aclosing(chat_completions.chunks(stream)) as stream_chunks,
            ):
                async for event in stream_chunks:
                    stream_events.receive(event)
                    if assembler.exceeds_limit:
                        assembler.finish = chat_messages.Finish.LENGTH
                        break
        if assembler.finish is None:
            raise sdk_errors.make_incomplete_reply_error(
                assembler, fallback=model_errors.MalformedResponseError()
            )
        return assembler.reply()

    async def _open(self, parameters: dict[str, Any]) -> anthropic.AsyncStream[Any]:
        """Send a request, with a longest answer that the model can write."""
        limit, requested_tokens = self._max_answer_tokens, parameters["max_tokens"]
        try:
            return await self._send(
                parameters | {"max_tokens": min(requested_tokens, limit or requested_tokens)}
            )
        except anthropic.BadRequestError:
            if limit is None:
                limit = self._max_answer_tokens = await self._fetch_answer_limit()
                if limit is not None and limit < requested_tokens:
                    return await self._send(parameters | {"max_tokens": limit})
            raise

    async def _fetch_answer_limit(self) -> int | None:
        """Return the longest answer of the model as its server describes it; None if unknown."""
        with contextlib.suppress(*_SDK_ERRORS):
            limit: object = (await self._client.models.retrieve(self._model.name)).max_tokens
            if isinstance(limit, int) and limit > 0:
                return limit
        return None

    async def _send(self, parameters: dict[str, Any]) -> anthropic.AsyncStream[Any]:
        stream = await self._messages.create(
            model=self._model.name,
            max_tokens=parameters["max_tokens"],
            messages=[],
            stream=True,
            # Not by name, for the reason given in `chat_completions`.
            extra_body=parameters,
        )
        return cast("anthropic.AsyncStream[Any]", stream)

    def _parameters(self, prompt: chat_messages.Prompt) -> dict[str, Any]:
        # Only what is sent again is worth the higher price of writing it into a cache.
        cached = _CACHE_CONTROL if prompt.cache_key else {}
        messages = anthropic_blocks.wire_messages(prompt.messages, self._origin)
        if prompt.cache_key and prompt.may_call:
            # Without leave to call, what follows the tools is another prompt to the server.
            for message in [candidate for candidate in messages if candidate["role"] == "user"][
                -_CACHED_MESSAGE_COUNT:
            ]:
                message["content"][-1] |= cached
        parameters: dict[str, Any] = {
            "model": self._model.name,
            "max_tokens": prompt.answer_tokens,
            # It stands behind the tools: with it, they are cached too.
            "system": [{"type": "text", "text": prompt.system, **cached}],
            "messages": messages,
            # Its text would be seen by nobody; the signature is what counts.
            "thinking": {"type": "adaptive", "display": "omitted"}
            if self._model.thinks
            else {"type": "disabled"},
        }
        if prompt.tools:
            parameters["tools"] = [anthropic_blocks.wire_tool(tool) for tool in prompt.tools]
            parameters["tool_choice"] = {"type": "auto" if prompt.may_call else "none"}
        # No temperature: since version 2026-10-21, any is refused.
        return parameters


@contextlib.contextmanager
def _translate_errors(
    assembler: model_reply_assembly.ModelReplyAssembler, *, api_key: str
) -> Iterator[None]:
    """Translate exceptions raised inside; see `sdk_errors.translate`."""
    try:
        yield
    except _SDK_ERRORS as error:
        failure = _failure(error, has_pictures=assembler.has_pictures)
        sdk_errors.raise_translated(error, failure, assembler, api_key=api_key)


def _failure(error: Exception, *, has_pictures: bool) -> model_errors.ModelError:
    match error:
        case anthropic.APITimeoutError() | httpx2.TimeoutException():
            return model_errors.ResponseTimeoutError()
        case anthropic.APIConnectionError() | httpx2.HTTPError():
            return model_errors.UnreachableError()
        case anthropic.APIStatusError():
            status = error.status_code
            if status < 300:
                status = _STATUSES.get(error.type or "", 500)
            text = f"{error.type} {error.message}"
            return sdk_errors.translate_status(
                status, text, error.response.headers, has_pictures=has_pictures
            )
        case anthropic.APIResponseValidationError() | sdk_errors.MalformedEventError():
            return model_errors.MalformedResponseError()
        case _:
            return model_errors.RequestRefusedError()
