"""What goes to a model and comes back, in no protocol's terms: frozen values.

A transcript is a sequence of `UserMessage`, `AssistantMessage` and `ToolResult`. Every call of a
`AssistantMessage` is answered before anything else follows: servers refuse a transcript where one
is not.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """An image for a model's eyes.

    Attributes:
        mime: image/png or image/jpeg.
        data: empty where it is too old to be looked at once more.
        name: of the file that it is of; empty where it is of none.
        sha256: of what `data` is or was; lower-case hex digest.
    """

    mime: str
    data: bytes = dataclasses.field(repr=False)
    name: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        """Find the digest out where it is not known."""
        if not self.sha256:
            object.__setattr__(self, "sha256", hashlib.sha256(self.data).hexdigest())


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A model's wish to use a tool. `arguments` is what it wrote: JSON, if all is well."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reasoning:
    """What a provider wants to see again beside what its model said: thoughts, or their signature.

    It is nobody's to read: never shown, never logged, given back unchanged or not at all.

    Attributes:
        origin: which model, over which protocol; no other is given it.
        value: JSON, as the protocol's own module wrote it.
    """

    origin: str
    value: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class UserMessage:
    """Something the model is told; `is_ours` marks the bot's own remarks among a person's words."""

    text: str
    pictures: tuple[Picture, ...] = ()
    is_ours: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AssistantMessage:
    """Something the model said, and the calls it made."""

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: Reasoning | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call."""

    call_id: str
    text: str
    pictures: tuple[Picture, ...] = ()


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult
"""One entry of a transcript."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """What a model may call; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One question to a model.

    Attributes:
        system: who it is and what the rules are.
        messages: the transcript, oldest first.
        tools: what it may know of.
        may_call: False where it shall answer in words now.
        answer_tokens: the longest answer that is paid for.
        temperature: None leaves it to the server.
        cache_key: the same for all prompts of a conversation, so that a server finds its cache
            of them again; says nothing about anybody. May be empty.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    may_call: bool = True
    answer_tokens: int = 4096
    temperature: float | None = None
    cache_key: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written.

    Attributes:
        is_estimated: the server did not count them for us.
        cached_tokens: those of the input that the server had in its cache.
        cache_write_tokens: those of the input that it put there, where that has a price.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    is_estimated: bool = False
    cached_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.is_estimated or other.is_estimated,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


class Finish(enum.StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    """At the limit of its length: text and calls may be incomplete."""
    FILTERED = "filtered"
    """The provider's filter, or the model itself, refused."""


class Sampling(enum.StrEnum):
    """How a reply's calls were made."""

    NATIVE = "native"
    JSON = "json"
    """As text that names a tool."""
    PYTHON = "python"
    """As a block of code in text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a model.

    Attributes:
        usage: None where the server did not count.
        reasoning: what is to be given back with this.
        is_reasoning_refused: what was given back of earlier replies was refused, and is of no use.
        are_pictures_refused: so were pictures, one of which at least cannot be read.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    manner: Sampling = Sampling.NATIVE
    finish: Finish = Finish.STOP
    usage: Usage | None = None
    is_second_try: bool = False
    reasoning: Reasoning | None = None
    is_reasoning_refused: bool = False
    are_pictures_refused: bool = False


def to_dict(message: Message) -> dict[str, Any]:
    """Make JSON of a message, to be stored; of pictures their digests, but not what they show."""
    match message:
        case UserMessage():
            kind = "remark" if message.is_ours else "told"
            return {"kind": kind, "text": message.text, **_listed(message.pictures)}
        case AssistantMessage():
            calls = [dataclasses.asdict(call) for call in message.calls]
            kept = dataclasses.asdict(message.reasoning) if message.reasoning else None
            more = {"reasoning": kept} if kept else {}
            return {"kind": "said", "text": message.text, "calls": calls, **more}
        case ToolResult():
            answered = {"kind": "answered", "call_id": message.call_id, "text": message.text}
            return {**answered, **_listed(message.pictures)}


def _listed(pictures: tuple[Picture, ...]) -> dict[str, Any]:
    listed = [{"mime": one.mime, "name": one.name, "sha256": one.sha256} for one in pictures]
    return {"pictures": listed} if listed else {}


def from_dict(stored: Mapping[str, Any]) -> Message:
    """Make a message of what `to_dict` made; its pictures have no content.

    Raises:
        ValueError: it is nothing that `to_dict` makes.
    """
    try:
        pictures = tuple(Picture(data=b"", **one) for one in stored.get("pictures", ()))
        match stored["kind"]:
            case "told" | "remark":
                return UserMessage(stored["text"], pictures, is_ours=stored["kind"] == "remark")
            case "said":
                calls = tuple(Call(**call) for call in stored["calls"])
                kept = stored.get("reasoning")
                return AssistantMessage(stored["text"], calls, Reasoning(**kept) if kept else None)
            case "answered":
                return ToolResult(stored["call_id"], stored["text"], pictures)
    except (KeyError, TypeError) as error:
        raise ValueError("not a stored message") from error
    raise ValueError("not a stored message")
