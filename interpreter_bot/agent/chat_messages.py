"""Messages to and from a model, independent of the wire protocol: frozen values.

A transcript is a sequence of `UserMessage`, `AssistantMessage` and `ToolResult`. The calls of an
`AssistantMessage` are followed by their results; servers refuse other transcripts.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

from interpreter_bot import values


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """An image in a message.

    Attributes:
        mime: image/png or image/jpeg.
        data: empty if the picture is too old to be sent again.
        name: the file's name; empty if there is no file.
        sha256: hex digest of the original `data`, even if `data` is empty now.
    """

    mime: str
    data: bytes = dataclasses.field(repr=False)
    name: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        """Compute the digest if it is not given."""
        if not self.sha256:
            object.__setattr__(self, "sha256", hashlib.sha256(self.data).hexdigest())


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a model. `arguments` is what the model wrote, which should be JSON."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's thoughts, or their signature, which its provider wants back with the message.

    Never shown and never logged; sent back unchanged or not at all.

    Attributes:
        origin: the model and protocol that wrote it; it is sent to no other.
        value: JSON, as the protocol's module wrote it.
    """

    origin: str
    value: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """A text of the bot for a model. Not a string, so that it is not shown to people by mistake."""

    text: str

    def fill(self, **values: object) -> Note:
        """Return the note with its placeholders replaced."""
        return Note(self.text.format(**values))


@dataclasses.dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the model: a person's, or a note of the bot (`is_from_bot`)."""

    text: str
    pictures: tuple[Picture, ...] = ()
    is_from_bot: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message of the model, with the tool calls it made."""

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: Reasoning | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    call_id: str
    text: str
    pictures: tuple[Picture, ...] = ()


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult
"""One entry of a transcript."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The input of one model call.

    Attributes:
        system: the system prompt.
        messages: the transcript, oldest first.
        tools: the tools that the model is offered.
        may_call: False if the model must answer in words.
        answer_tokens: limit of the answer.
        temperature: None leaves it to the server.
        cache_key: the same for all prompts of a session, for the server's cache; identifies no
            person. May be empty.
        omits_optional_parameters: leave out parameters that a server may not know.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    may_call: bool = True
    answer_tokens: int = 4096
    temperature: float | None = None
    cache_key: str = ""
    omits_optional_parameters: bool = False


class Finish(enum.StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    """At its length limit: text and calls may be incomplete."""
    FILTERED = "filtered"
    """The provider's filter or the model itself refused."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One reply of a model.

    Attributes:
        unreadable_call: text that was meant as a call and cannot be read; only without `calls`.
        usage: None if the server reported none.
        reasoning: to be sent back with this reply in later requests.
        is_reasoning_refused: the server refused the reasoning of earlier replies.
        are_pictures_refused: the server refused at least one picture.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    unreadable_call: str = ""
    finish: Finish = Finish.STOP
    usage: values.Usage | None = None
    reasoning: Reasoning | None = None
    is_reasoning_refused: bool = False
    are_pictures_refused: bool = False


def to_dict(message: Message) -> dict[str, Any]:
    """Convert a message to JSON for storage, with digests in place of pictures."""
    match message:
        case UserMessage():
            kind = "remark" if message.is_from_bot else "told"
            return {"kind": kind, "text": message.text, **_picture_fields(message.pictures)}
        case AssistantMessage():
            calls = [dataclasses.asdict(call) for call in message.calls]
            reasoning = dataclasses.asdict(message.reasoning) if message.reasoning else None
            reasoning_fields = {"reasoning": reasoning} if reasoning else {}
            return {"kind": "said", "text": message.text, "calls": calls, **reasoning_fields}
        case ToolResult():
            fields = {"kind": "answered", "call_id": message.call_id, "text": message.text}
            return {**fields, **_picture_fields(message.pictures)}


def _picture_fields(pictures: tuple[Picture, ...]) -> dict[str, Any]:
    entries = [
        {"mime": picture.mime, "name": picture.name, "sha256": picture.sha256}
        for picture in pictures
    ]
    return {"pictures": entries} if entries else {}


def from_dict(stored: Mapping[str, Any]) -> Message:
    """Convert the result of `to_dict` back to a message; its pictures have no content.

    Raises:
        ValueError: `stored` is not a result of `to_dict`.
    """
    try:
        pictures = tuple(Picture(data=b"", **entry) for entry in stored.get("pictures", ()))
        match stored["kind"]:
            case "told" | "remark":
                return UserMessage(stored["text"], pictures, is_from_bot=stored["kind"] == "remark")
            case "said":
                calls = tuple(Call(**call) for call in stored["calls"])
                reasoning = stored.get("reasoning")
                return AssistantMessage(
                    stored["text"], calls, Reasoning(**reasoning) if reasoning else None
                )
            case "answered":
                return ToolResult(stored["call_id"], stored["text"], pictures)
    except (KeyError, TypeError) as error:
        raise ValueError("not a stored message") from error
    raise ValueError("not a stored message")
