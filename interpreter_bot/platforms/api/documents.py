"""Documents of the HTTP interface: the bodies of requests and responses."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from interpreter_bot import values
from interpreter_bot.sessions import requests

_Text: TypeAlias = Annotated[str, pydantic.Field(max_length=requests.MAX_CHARACTERS)]
_Name: TypeAlias = Annotated[str, pydantic.Field(max_length=200)]


class _Document(pydantic.BaseModel):
    """A body of a request or a response."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True, from_attributes=True)


class _RequestBody(_Document):
    """A body that a client sends; unknown fields are errors."""

    model_config = pydantic.ConfigDict(extra="forbid")


class _OpenAiBody(_Document):
    """A body that an OpenAI client sends; unknown fields are ignored."""

    model_config = pydantic.ConfigDict(extra="ignore")


class NewSession(_RequestBody):
    """A session to begin."""

    title: _Name = ""
    model: _Name = ""
    """One of the models; empty for the default."""


class Message(_RequestBody):
    """A question to the model, or code to run."""

    text: _Text = ""
    """A question to the model."""
    code: _Text = ""
    """Python to run, in place of a question."""
    files: tuple[_Name, ...] = pydantic.Field((), max_length=100)
    """Names of uploaded files that the question is about."""
    stream: bool = False
    """Answer with server-sent events, one for each event of the turn."""
    attended: bool = False
    """With `stream`: questions, such as `input()`, wait for `answers`. Else they are declined."""


class QuestionAnswer(_RequestBody):
    """The answer to a question that came as an event of a stream."""

    id: Annotated[str, pydantic.Field(max_length=64)]
    answer: _Text | None
    """To an approval: yes, no, or one of its choices. null declines."""


class CreatedSession(_Document):
    """A session that was created."""

    id: str


class Session(_Document):
    """A session of the client; `model` is empty for the default."""

    id: str
    title: str
    model: str
    used: datetime.datetime
    is_busy: bool


class SessionList(_Document):
    """Sessions, the last used first."""

    sessions: list[Session]


class File(_Document):
    """A file in /mnt/data."""

    name: str
    size_bytes: int


class FileList(_Document):
    """The files of a session."""

    files: list[File]


class StoredFile(_Document):
    """The name under which a file was stored, as no file is replaced."""

    name: str


class Outcome(_Document):
    """Whether there was something to do."""

    done: bool = True


class Answer(_Document):
    """The answer to a message."""

    status: values.TurnStatus
    text: str
    """The model's last words, Markdown; of code, all that it showed, as plain text."""
    reason: str
    """What went wrong, as a sentence; empty if nothing did."""
    code: tuple[str, ...]
    """Each piece of code that ran."""
    outputs: list[dict[str, Any]]
    """The outputs of the code, as the events of `stream` describe them."""
    files: list[File]
    """Files that the code made or changed."""
    notices: tuple[str, ...]
    """Sentences of the bot, such as that variables were lost."""
    usage: dict[str, Any]
    seconds: float


class ErrorDetails(_Document):
    """What went wrong: a sentence for people, and the kind of error."""

    message: str
    type: str


class ErrorDocument(_Document):
    """The body of a response with an error."""

    error: ErrorDetails


# Bodies of OpenAI's interface.


class ChatMessage(_OpenAiBody):
    """A message of a conversation, with parts of type `text`, `image_url` and `file`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]] | None = None


class ChatCompletion(_OpenAiBody):
    """A conversation whose last message is to be answered. Sampling parameters are ignored."""

    model: _Name = ""
    messages: Annotated[list[ChatMessage], pydantic.Field(min_length=1, max_length=2000)]
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    user: _Name = ""
    """The person in the conversation, if the client serves several people."""
    n: Literal[1] = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None


class OpenAiDocument(_Document):
    """As OpenAI documents it."""
