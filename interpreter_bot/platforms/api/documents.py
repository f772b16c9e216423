"""Documents of the HTTP interface: what clients send, and what they get."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from interpreter_bot.sessions import requests

_Text: TypeAlias = Annotated[str, pydantic.Field(max_length=requests.MAX_CHARACTERS)]
_Name: TypeAlias = Annotated[str, pydantic.Field(max_length=200)]


class _Sent(pydantic.BaseModel):
    """A document that is sent to clients."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True)


class _Body(pydantic.BaseModel):
    """A document of a client; a name that is not among its fields is an error."""

    model_config = pydantic.ConfigDict(extra="forbid", use_attribute_docstrings=True)


class NewSession(_Body):
    """A session to begin."""

    title: _Name = ""
    model: _Name = ""
    """One of the models; empty for the default."""


class Message(_Body):
    """What to answer, or to run."""

    text: _Text = ""
    """A question to the model."""
    code: _Text = ""
    """Python to run as it is, in place of a question."""
    files: tuple[_Name, ...] = pydantic.Field((), max_length=100)
    """Names of uploaded files that the question is about."""
    stream: bool = False
    """Answer with server-sent events, one for each event of the turn."""
    attended: bool = False
    """With `stream`: questions, such as `input()`, wait for `answers`. Else they are declined."""


class QuestionAnswer(_Body):
    """The answer to a question that came as an event."""

    id: Annotated[str, pydantic.Field(max_length=64)]
    answer: _Text | None
    """To an approval: yes, no, or one of its choices. null declines."""


class Begun(_Sent):
    """A session was begun."""

    id: str


class Session(_Sent):
    """A session of the client."""

    id: str
    title: str
    model: str
    """Empty for the default."""
    used: datetime.datetime
    is_busy: bool


class Sessions(_Sent):
    """Sessions, the latest used first."""

    sessions: list[Session]


class File(_Sent):
    """A file in /mnt/data."""

    name: str
    size_bytes: int


class Files(_Sent):
    """The files of a session."""

    files: list[File]


class Stored(_Sent):
    """A file was stored."""

    name: str
    """The name that it got: nothing is replaced."""


class Done(_Sent):
    """It was done."""

    done: bool
    """Whether there was anything to do."""


class Usage(_Sent):
    """What an answer used."""

    input_tokens: int
    output_tokens: int
    steps: int
    money: str


class Answer(_Sent):
    """What came of a message."""

    status: Literal["done", "stopped", "failed", "interrupted"]
    text: str
    """The model's last words, Markdown; of code, all that it showed, as plain text."""
    reason: str
    """What went wrong, as a sentence; empty if nothing did."""
    code: list[str]
    """Each piece of code that ran."""
    outputs: list[dict[str, Any]]
    """What the code showed, as the events of `stream` have it."""
    files: list[File]
    """Files that the code made or changed."""
    notices: list[str]
    """Sentences of the bot, such as that variables were lost."""
    usage: Usage
    seconds: float


class Fault(_Sent):
    """What was wrong."""

    message: str
    """A sentence for people."""
    type: str
    code: str | None = None


class Error(_Sent):
    """Why there is no other answer."""

    error: Fault


# OpenAI's.


class _Lenient(pydantic.BaseModel):
    """A document of OpenAI's clients; what is not known is not looked at."""

    model_config = pydantic.ConfigDict(extra="ignore", use_attribute_docstrings=True)


class TextPart(_Lenient):
    """Words."""

    type: Literal["text"]
    text: str


class ImageUrl(_Lenient):
    """Where a picture is."""

    url: str
    """A data URL."""


class ImagePart(_Lenient):
    """A picture."""

    type: Literal["image_url"]
    image_url: ImageUrl


class FileContent(_Lenient):
    """A file."""

    filename: _Name = "file"
    file_data: str
    """A data URL."""


class FilePart(_Lenient):
    """A file, which is put into /mnt/data."""

    type: Literal["file"]
    file: FileContent


Part: TypeAlias = Annotated[TextPart | ImagePart | FilePart, pydantic.Field(discriminator="type")]


class ChatMessage(_Lenient):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None


class StreamOptions(_Lenient):
    """Options of a stream."""

    include_usage: bool = False


class ChatCompletion(_Lenient):
    """A conversation whose last message is answered. Parameters of sampling count for nothing."""

    model: _Name = ""
    messages: Annotated[list[ChatMessage], pydantic.Field(min_length=1, max_length=2000)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: _Name = ""
    """Whose conversation it is, if the client serves several people."""
    n: Literal[1] = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None


class Model(_Sent):
    """A model."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "interpreter-bot"


class Models(_Sent):
    """The models."""

    object: str = "list"
    data: list[Model]


class ChatAnswer(_Sent):
    """An answer; with `stream`, chunks of it as server-sent events."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]
