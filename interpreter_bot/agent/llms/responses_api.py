"""The Responses API. The server stores nothing, so each request has the whole transcript."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

import openai

from interpreter_bot import events, settings
from interpreter_bot.agent import chat_messages, model_errors
from interpreter_bot.agent.llms import (
    chat_completions,
    model_reply_assembly,
    reasoning_replay,
    sdk_errors,
    server_quirks,
)


class ResponsesLlm:
    """A model with tool calling over the Responses API."""

    def __init__(self, client: openai.AsyncOpenAI, model: settings.Model) -> None:
        self._client = client
        # The SDK imports this attribute on first access. Access it here, in the thread that opens
        # the model, so that the import does not block the event loop.
        self._responses = client.responses
        self._model = model
        self._quirks = server_quirks.find_quirks(model)
        self._origin = reasoning_replay.make_origin("responses", model)
        # llama.cpp accepts no pictures in tool outputs, and other servers may not either.
        self._accepts_output_pictures = model.base_url.startswith(chat_completions.OFFICIAL_URL)

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        assembler = model_reply_assembly.ModelReplyAssembler(emit, prompt, origin=self._origin)
        parameters = self._build_parameters(prompt)
        if prompt.omits_optional_parameters:
            parameters = server_quirks.drop_optional_parameters(parameters)
        return await self._stream_reply(self._quirks.adapt(parameters), assembler)

    async def _stream_reply(
        self, parameters: dict[str, Any], assembler: model_reply_assembly.ModelReplyAssembler
    ) -> chat_messages.ModelReply:
        with sdk_errors.translate(assembler, api_key=self._client.api_key):
            stream = await server_quirks.send_well_formed(self._open_stream, parameters)
            # A cancellation also closes the connection, so that the server stops at once.
            async with (
                stream,
                contextlib.aclosing(chat_completions.iterate_chunks(stream)) as events,
            ):
                async for event in events:
                    failure = _receive_event(event, assembler)
                    if failure:
                        raise sdk_errors.make_incomplete_reply_error(assembler, fallback=failure)
                    if assembler.exceeds_limit:
                        assembler.finish = chat_messages.Finish.LENGTH
                        break
        if assembler.finish is None:
            raise sdk_errors.make_incomplete_reply_error(
                assembler, fallback=model_errors.MalformedResponseError()
            )
        return assembler.build_reply()

    async def _open_stream(self, parameters: dict[str, Any]) -> openai.AsyncStream[Any]:
        # As `extra_body`, for the reason given in `chat_completions`.
        stream = await self._responses.create(stream=True, extra_body=parameters)
        return cast("openai.AsyncStream[Any]", stream)

    def _build_parameters(self, prompt: chat_messages.Prompt) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "model": self._model.name,
            "instructions": prompt.system,
            "input": list(
                convert_transcript(
                    prompt.messages,
                    self._origin,
                    accepts_output_pictures=self._accepts_output_pictures,
                )
            ),
            "max_output_tokens": prompt.answer_tokens,
            "store": False,
            # The server stores nothing, so it has to send the reasoning, which is sent back later.
            "include": ["reasoning.encrypted_content"],
        }
        if prompt.tools:
            parameters["tools"] = [convert_tool(tool) for tool in prompt.tools]
            parameters["tool_choice"] = "auto" if prompt.may_call else "none"
        if prompt.temperature is not None:
            parameters["temperature"] = prompt.temperature
        if prompt.cache_key:
            parameters["prompt_cache_key"] = prompt.cache_key
        return parameters


def _receive_event(
    event: object, assembler: model_reply_assembly.ModelReplyAssembler
) -> model_errors.ModelError | None:
    """Process one stream event. The SDK does not validate events, so every field is checked."""
    item = getattr(event, "item", None)
    index = getattr(event, "output_index", None)
    key = index if isinstance(index, int) else None
    match getattr(event, "type", None):
        case "response.output_text.delta" | "response.refusal.delta" as kind:
            assembler.add_text(_read_text(event, "delta"))
            if kind == "response.refusal.delta":
                assembler.is_refused = True
        case "response.output_item.added" if _read_text(item, "type") == "function_call":
            assembler.add_call(
                key, call_id=_read_text(item, "call_id"), name=_read_text(item, "name")
            )
        case "response.function_call_arguments.delta":
            assembler.add_call(key, arguments=_read_text(event, "delta"))
        case "response.function_call_arguments.done":
            assembler.set_arguments(key, _read_text(event, "arguments"))
        case "response.output_item.done" if _read_text(item, "type") == "function_call":
            number = assembler.add_call(
                key, call_id=_read_text(item, "call_id"), name=_read_text(item, "name")
            )
            assembler.set_arguments(key, _read_text(item, "arguments"))
            assembler.reasoning.add_item({"call": number, "id": _read_text(item, "id")})
        case "response.output_item.done" if _read_text(item, "type") == "message":
            fields = {name: text for name in ("id", "phase") if (text := _read_text(item, name))}
            assembler.reasoning.add_item({"message": fields})
        case "response.output_item.done" if _read_text(item, "type") == "reasoning":
            if reasoning := _convert_reasoning(item):
                assembler.reasoning.add_item({"reasoning": reasoning})
        case "response.completed" | "response.incomplete":
            _receive_end(getattr(event, "response", None), assembler)
        case "response.failed":
            error = getattr(getattr(event, "response", None), "error", None)
            return sdk_errors.translate_code(
                _read_text(error, "code"), _read_text(error, "message")
            )
        case "error":
            return sdk_errors.translate_code(
                _read_text(event, "code"), _read_text(event, "message")
            )
    return None


def _receive_end(response: object, assembler: model_reply_assembly.ModelReplyAssembler) -> None:
    details = getattr(response, "incomplete_details", None)
    assembler.finish = sdk_errors.read_finish(_read_text(details, "reason") or "stop")
    usage = getattr(response, "usage", None)
    names = ("input_tokens", "output_tokens", "input_tokens_details")
    input_tokens, output_tokens, details = (getattr(usage, name, None) for name in names)
    assembler.usage = sdk_errors.read_usage(input_tokens, output_tokens, details)


def _convert_reasoning(item: object) -> dict[str, Any] | None:
    """Convert a reasoning item to send it back; None if it has only an id, which is not stored."""
    if not isinstance(item, openai.BaseModel):
        return None
    fields = item.to_dict(mode="json", warnings=False)
    reasoning = {
        name: fields[name] for name in ("type", "id", "encrypted_content") if fields.get(name)
    }
    # Readable reasoning is sent back only if there is no encrypted reasoning.
    if "encrypted_content" not in reasoning:
        if not fields.get("content"):
            return None
        reasoning["content"] = fields["content"]
    return {**reasoning, "summary": fields.get("summary") or []}


def _read_text(item: object, name: str) -> str:
    value = getattr(item, name, None)
    return value if isinstance(value, str) else ""


def convert_tool(tool: chat_messages.Tool) -> dict[str, Any]:
    """Convert a tool. It is not strict, because strict tools have no optional arguments."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def convert_transcript(
    transcript: Iterable[chat_messages.Message], origin: str, *, accepts_output_pictures: bool
) -> Iterable[dict[str, Any]]:
    """Convert a transcript to input items.

    Args:
        transcript: the messages.
        origin: the identifier of the receiving model, see `reasoning_replay.make_origin`.
        accepts_output_pictures: pictures are part of their tool output; otherwise they come after
            all outputs of the step.
    """
    pictures: list[chat_messages.Picture] = []
    for message in transcript:
        if pictures and not isinstance(message, chat_messages.ToolResult):
            yield {
                "role": "user",
                "content": _convert_content(chat_completions.OUTPUT_PICTURES_TEXT, tuple(pictures)),
            }
            pictures = []
        match message:
            case chat_messages.UserMessage():
                yield {"role": "user", "content": _convert_content(message.text, message.pictures)}
            case chat_messages.AssistantMessage():
                yield from _convert_assistant_message(
                    message, list(reasoning_replay.read_ordered_parts(message, origin))
                )
            case chat_messages.ToolResult():
                inline_pictures = message.pictures if accepts_output_pictures else ()
                output = _convert_content(message.text, inline_pictures)
                yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
                pictures += () if accepts_output_pictures else message.pictures
    if pictures:
        yield {
            "role": "user",
            "content": _convert_content(chat_completions.OUTPUT_PICTURES_TEXT, tuple(pictures)),
        }


def _convert_assistant_message(
    message: chat_messages.AssistantMessage, ordered_parts: list[Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    """Convert a model's message, with its parts in the original order if that is known."""
    is_text_pending = any("message" in part for part in ordered_parts)
    if message.text and not is_text_pending:
        yield {"role": "assistant", "content": message.text}
    calls = dict(enumerate(message.calls))
    for part in ordered_parts:
        if "reasoning" in part:
            yield part["reasoning"]
        elif "call" in part and part["call"] in calls:
            yield {
                **_convert_call(calls.pop(part["call"])),
                **({"id": part["id"]} if part["id"] else {}),
            }
        elif "message" in part and is_text_pending:
            # The transcript has only the joined text, which takes the place of the first message.
            is_text_pending = False
            yield _convert_text(message.text, part["message"])
    yield from map(_convert_call, calls.values())


def _convert_text(text: str, fields: Mapping[str, str]) -> dict[str, Any]:
    if "id" not in fields:
        return {"role": "assistant", "content": text, **fields}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        **{"type": "message", "role": "assistant", "status": "completed"},
        **{"content": content, **fields},
    }


def _convert_call(call: chat_messages.Call) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": chat_completions.make_sendable(call.arguments),
    }


def _convert_content(
    text: str, pictures: tuple[chat_messages.Picture, ...]
) -> str | list[dict[str, Any]]:
    if not pictures:
        return text
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
    for picture in pictures:
        parts += [
            {"type": "input_text", "text": text} for text in chat_completions.make_captions(picture)
        ]
        url = chat_completions.make_data_url(picture)
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts
