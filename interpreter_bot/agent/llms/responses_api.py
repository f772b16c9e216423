"""The Responses API. Nothing is stored at the server: every request carries the transcript."""

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
        # The SDK imports it when it is first read: here, in the thread that opens the model.
        self._responses = client.responses
        self._model = model
        self._quirks = server_quirks.find_quirks(model)
        self._origin = reasoning_replay.origin("responses", model)
        # llama.cpp accepts no pictures in tool outputs, and others may do as it does.
        self._shows_outputs = model.base_url.startswith(chat_completions.OFFICIAL_URL)

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        assembler = model_reply_assembly.ModelReplyAssembler(emit, prompt, origin=self._origin)
        parameters = self._parameters(prompt)
        if prompt.omits_optional_parameters:
            parameters = server_quirks.drop_optional_parameters(parameters)
        return await self._stream_reply(self._quirks.adapt(parameters), assembler)

    async def _stream_reply(
        self, parameters: dict[str, Any], assembler: model_reply_assembly.ModelReplyAssembler
    ) -> chat_messages.ModelReply:
        with sdk_errors.translate(assembler, api_key=self._client.api_key):
            stream = await server_quirks.send_well_formed(self._open, parameters)
            # Closes the connection also on cancellation, so that the server stops at once.
            async with stream, contextlib.aclosing(chat_completions.chunks(stream)) as events:
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
        return assembler.reply()

    async def _open(self, parameters: dict[str, Any]) -> openai.AsyncStream[Any]:
        # Passed this way for the reason given in `chat_completions`.
        stream = await self._responses.create(stream=True, extra_body=parameters)
        return cast("openai.AsyncStream[Any]", stream)

    def _parameters(self, prompt: chat_messages.Prompt) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "model": self._model.name,
            "instructions": prompt.system,
            "input": list(
                wire_items(prompt.messages, self._origin, shows_outputs=self._shows_outputs)
            ),
            "max_output_tokens": prompt.answer_tokens,
            "store": False,
            # Nothing is stored there, so the reasoning has to come to us to be given back.
            "include": ["reasoning.encrypted_content"],
        }
        if prompt.tools:
            parameters["tools"] = [wire_tool(tool) for tool in prompt.tools]
            parameters["tool_choice"] = "auto" if prompt.may_call else "none"
        if prompt.temperature is not None:
            parameters["temperature"] = prompt.temperature
        if prompt.cache_key:
            parameters["prompt_cache_key"] = prompt.cache_key
        return parameters


def _receive_event(
    event: object, assembler: model_reply_assembly.ModelReplyAssembler
) -> model_errors.ModelError | None:
    """Process one stream event. The SDK checks no shapes, so nothing is taken for granted."""
    item = getattr(event, "item", None)
    key = getattr(event, "output_index", None)
    match getattr(event, "type", None):
        case "response.output_text.delta" | "response.refusal.delta" as kind:
            assembler.add_text(_text_attribute(event, "delta"))
            if kind == "response.refusal.delta":
                assembler.is_refused = True
        case "response.output_item.added" if _text_attribute(item, "type") == "function_call":
            assembler.add_call(
                key, call_id=_text_attribute(item, "call_id"), name=_text_attribute(item, "name")
            )
        case "response.function_call_arguments.delta":
            assembler.add_call(key, arguments=_text_attribute(event, "delta"))
        case "response.function_call_arguments.done":
            assembler.set_arguments(key, _text_attribute(event, "arguments"))
        case "response.output_item.done" if _text_attribute(item, "type") == "function_call":
            number = assembler.add_call(
                key, call_id=_text_attribute(item, "call_id"), name=_text_attribute(item, "name")
            )
            assembler.set_arguments(key, _text_attribute(item, "arguments"))
            assembler.reasoning.add_item({"call": number, "id": _text_attribute(item, "id")})
        case "response.output_item.done" if _text_attribute(item, "type") == "message":
            fields = {
                name: text for name in ("id", "phase") if (text := _text_attribute(item, name))
            }
            assembler.reasoning.add_item({"message": fields})
        case "response.output_item.done" if _text_attribute(item, "type") == "reasoning":
            if thought := _convert_reasoning(item):
                assembler.reasoning.add_item({"reasoning": thought})
        case "response.completed" | "response.incomplete":
            _receive_end(getattr(event, "response", None), assembler)
        case "response.failed":
            error = getattr(getattr(event, "response", None), "error", None)
            return sdk_errors.translate_code(
                _text_attribute(error, "code"), _text_attribute(error, "message")
            )
        case "error":
            return sdk_errors.translate_code(
                _text_attribute(event, "code"), _text_attribute(event, "message")
            )
    return None


def _receive_end(response: object, assembler: model_reply_assembly.ModelReplyAssembler) -> None:
    details = getattr(response, "incomplete_details", None)
    assembler.finish = sdk_errors.read_finish(_text_attribute(details, "reason") or "stop")
    usage = getattr(response, "usage", None)
    names = ("input_tokens", "output_tokens", "input_tokens_details")
    input_tokens, output_tokens, details = (getattr(usage, name, None) for name in names)
    assembler.usage = sdk_errors.read_usage(input_tokens, output_tokens, details)


def _convert_reasoning(item: object) -> dict[str, Any] | None:
    """Convert an item of reasoning to be given back; None if only its server could find it."""
    if not isinstance(item, openai.BaseModel):
        return None
    fields = item.to_dict(mode="json", warnings=False)
    reasoning = {
        name: fields[name] for name in ("type", "id", "encrypted_content") if fields.get(name)
    }
    # Open reasoning is given back only if it did not come sealed as well.
    if "encrypted_content" not in reasoning:
        if not fields.get("content"):
            return None
        reasoning["content"] = fields["content"]
    return {**reasoning, "summary": fields.get("summary") or []}


def _text_attribute(thing: object, name: str) -> str:
    value = getattr(thing, name, None)
    return value if isinstance(value, str) else ""


def wire_tool(tool: chat_messages.Tool) -> dict[str, Any]:
    """Convert a tool. Not strict: that would forbid optional arguments."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def wire_items(
    transcript: Iterable[chat_messages.Message], origin: str, *, shows_outputs: bool
) -> Iterable[dict[str, Any]]:
    """Convert a transcript to input items.

    Args:
        transcript: the messages.
        origin: the name that `reasoning_replay` gives to the receiving model.
        shows_outputs: pictures may be part of a tool output; if not, they follow all of a step.
    """
    pictures: list[chat_messages.Picture] = []
    for message in transcript:
        if pictures and not isinstance(message, chat_messages.ToolResult):
            yield {
                "role": "user",
                "content": _content(chat_completions.PICTURES_OF_OUTPUT, tuple(pictures)),
            }
            pictures = []
        match message:
            case chat_messages.UserMessage():
                yield {"role": "user", "content": _content(message.text, message.pictures)}
            case chat_messages.AssistantMessage():
                yield from _assistant_items(message, list(reasoning_replay.items(message, origin)))
            case chat_messages.ToolResult():
                own_pictures = message.pictures if shows_outputs else ()
                output = _content(message.text, own_pictures)
                yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
                pictures += () if shows_outputs else message.pictures
    if pictures:
        yield {
            "role": "user",
            "content": _content(chat_completions.PICTURES_OF_OUTPUT, tuple(pictures)),
        }


def _assistant_items(
    message: chat_messages.AssistantMessage, parts_in_order: list[Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    """Convert a model's message; in the order in which its parts came, as far as that is known."""
    has_text_place = any("message" in part for part in parts_in_order)
    if message.text and not has_text_place:
        yield {"role": "assistant", "content": message.text}
    calls = dict(enumerate(message.calls))
    for part in parts_in_order:
        if "reasoning" in part:
            yield part["reasoning"]
        elif "call" in part and part["call"] in calls:
            yield {
                **_call_item(calls.pop(part["call"])),
                **({"id": part["id"]} if part["id"] else {}),
            }
        elif "message" in part and has_text_place:
            # The transcript has one text, which takes the place of the first of several.
            has_text_place = False
            yield _text_item(message.text, part["message"])
    yield from map(_call_item, calls.values())


def _text_item(text: str, fields: Mapping[str, str]) -> dict[str, Any]:
    if "id" not in fields:
        return {"role": "assistant", "content": text, **fields}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        **{"type": "message", "role": "assistant", "status": "completed"},
        **{"content": content, **fields},
    }


def _call_item(call: chat_messages.Call) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": chat_completions.make_sendable(call.arguments),
    }


def _content(text: str, pictures: tuple[chat_messages.Picture, ...]) -> str | list[dict[str, Any]]:
    if not pictures:
        return text
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
    for picture in pictures:
        parts += [
            {"type": "input_text", "text": text} for text in chat_completions.caption(picture)
        ]
        url = chat_completions.data_url(picture)
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts
