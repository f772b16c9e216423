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
        self._quirks = server_quirks.of_model(model)
        self._origin = reasoning_replay.origin("responses", model)
        # llama.cpp accepts no pictures in tool outputs, and others may do as it does.
        self._shows_outputs = model.base_url.startswith(chat_completions.OFFICIAL_URL)

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply."""
        assembler = model_reply_assembly.ModelReplyAssembler(emit, prompt, origin=self._origin)
        parameters = self._parameters(prompt)
        if prompt.is_plain:
            parameters = server_quirks.plain(parameters)
        return await self._stream_reply(self._quirks.adapt(parameters), assembler)

    async def _stream_reply(
        self, parameters: dict[str, Any], assembler: model_reply_assembly.ModelReplyAssembler
    ) -> chat_messages.ModelReply:
        with sdk_errors.translate(assembler, api_key=self._client.api_key):
            stream = await server_quirks.send_well_formed(self._open, parameters)
            # Closes the connection also on cancellation, so that the server stops at once.
            async with stream, contextlib.aclosing(chat_completions.chunks(stream)) as events:
                async for event in events:
                    failure = _hear(event, assembler)
                    if failure:
                        raise sdk_errors.cut(assembler, otherwise=failure)
                    if assembler.is_endless:
                        assembler.finish = chat_messages.Finish.LENGTH
                        break
        if assembler.finish is None:
            raise sdk_errors.cut(assembler, otherwise=model_errors.GarbledError())
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


def _hear(
    event: object, assembler: model_reply_assembly.ModelReplyAssembler
) -> model_errors.ModelError | None:
    """Process one stream event. The SDK checks no shapes, so nothing is taken for granted."""
    item = getattr(event, "item", None)
    key = getattr(event, "output_index", None)
    match getattr(event, "type", None):
        case "response.output_text.delta" | "response.refusal.delta" as kind:
            assembler.text(_text(event, "delta"))
            if kind == "response.refusal.delta":
                assembler.is_refused = True
        case "response.output_item.added" if _text(item, "type") == "function_call":
            assembler.call(key, call_id=_text(item, "call_id"), name=_text(item, "name"))
        case "response.function_call_arguments.delta":
            assembler.call(key, arguments=_text(event, "delta"))
        case "response.function_call_arguments.done":
            assembler.complete(key, _text(event, "arguments"))
        case "response.output_item.done" if _text(item, "type") == "function_call":
            number = assembler.call(key, call_id=_text(item, "call_id"), name=_text(item, "name"))
            assembler.complete(key, _text(item, "arguments"))
            assembler.reasoning.item({"call": number, "id": _text(item, "id")})
        case "response.output_item.done" if _text(item, "type") == "message":
            told = {name: text for name in ("id", "phase") if (text := _text(item, name))}
            assembler.reasoning.item({"message": told})
        case "response.output_item.done" if _text(item, "type") == "reasoning":
            if thought := _thought(item):
                assembler.reasoning.item({"reasoning": thought})
        case "response.completed" | "response.incomplete":
            _end(getattr(event, "response", None), assembler)
        case "response.failed":
            error = getattr(getattr(event, "response", None), "error", None)
            return sdk_errors.of_code(_text(error, "code"), _text(error, "message"))
        case "error":
            return sdk_errors.of_code(_text(event, "code"), _text(event, "message"))
    return None


def _end(response: object, assembler: model_reply_assembly.ModelReplyAssembler) -> None:
    details = getattr(response, "incomplete_details", None)
    assembler.finish = sdk_errors.finish(_text(details, "reason") or "stop")
    counted = getattr(response, "usage", None)
    names = ("input_tokens", "output_tokens", "input_tokens_details")
    read, written, details = (getattr(counted, name, None) for name in names)
    assembler.usage = sdk_errors.usage(read, written, details)


def _thought(item: object) -> dict[str, Any] | None:
    """Convert an item of reasoning to be given back; None if only its server could find it."""
    if not isinstance(item, openai.BaseModel):
        return None
    told = item.to_dict(mode="json", warnings=False)
    kept = {name: told[name] for name in ("type", "id", "encrypted_content") if told.get(name)}
    # Open reasoning is given back only if it did not come sealed as well.
    if "encrypted_content" not in kept:
        if not told.get("content"):
            return None
        kept["content"] = told["content"]
    return {**kept, "summary": told.get("summary") or []}


def _text(thing: object, name: str) -> str:
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
    seen: list[chat_messages.Picture] = []
    for message in transcript:
        if seen and not isinstance(message, chat_messages.ToolResult):
            yield {"role": "user", "content": _content(chat_completions.OF_OUTPUTS, tuple(seen))}
            seen = []
        match message:
            case chat_messages.UserMessage():
                yield {"role": "user", "content": _content(message.text, message.pictures)}
            case chat_messages.AssistantMessage():
                yield from _assistant_items(message, list(reasoning_replay.items(message, origin)))
            case chat_messages.ToolResult():
                shown = message.pictures if shows_outputs else ()
                output = _content(message.text, shown)
                yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
                seen += () if shows_outputs else message.pictures
    if seen:
        yield {"role": "user", "content": _content(chat_completions.OF_OUTPUTS, tuple(seen))}


def _assistant_items(
    message: chat_messages.AssistantMessage, order: list[Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    """Convert a model's message; in the order in which its parts came, as far as that is known."""
    is_told = any("message" in one for one in order)
    if message.text and not is_told:
        yield {"role": "assistant", "content": message.text}
    left = dict(enumerate(message.calls))
    for one in order:
        if "reasoning" in one:
            yield one["reasoning"]
        elif "call" in one and one["call"] in left:
            yield {**_call(left.pop(one["call"])), **({"id": one["id"]} if one["id"] else {})}
        elif "message" in one and is_told:
            # Several texts are one to us, and stand where the first did.
            is_told = False
            yield _text_item(message.text, one["message"])
    yield from map(_call, left.values())


def _text_item(text: str, named: Mapping[str, str]) -> dict[str, Any]:
    if "id" not in named:
        return {"role": "assistant", "content": text, **named}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        **{"type": "message", "role": "assistant", "status": "completed"},
        **{"content": content, **named},
    }


def _call(call: chat_messages.Call) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": chat_completions.sendable(call.arguments),
    }


def _content(text: str, pictures: tuple[chat_messages.Picture, ...]) -> str | list[dict[str, Any]]:
    if not pictures:
        return text
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
    for one in pictures:
        parts += [{"type": "input_text", "text": text} for text in chat_completions.caption(one)]
        url = chat_completions.data_url(one)
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts
