"""Documents of the HTTP interface: what clients send, and what they get."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from interpreter_bot import values
from interpreter_bot.sessions import requests

_Text: TypeAlias = Annotated[str, pydantic.Field(max_length=requests.MAX_CHARACTERS)]
_Name: TypeAlias = Annotated[str, pydantic.Field(max_length=200)]


class _Sent(pydantic.BaseModel):
    """A document that is sent to clients."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True, from_attributes=True)


class _Body(_Sent):
    """A document of a client; a name that is not among its fields is an error."""

    model_config = pydantic.ConfigDict(extra="forbid")


class _Lenient(_Sent):
    """A document of OpenAI's clients; what is not known is not looked at."""

    model_config = pydantic.ConfigDict(extra="ignore")


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
    """A session of the client; `model` is empty for the default."""

    id: str
    title: str
    model: str
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
    """A file was stored under this name: nothing is replaced."""

    name: str


class Done(_Sent):
    """Whether there was anything to do."""

    done: bool = True


class Answer(_Sent):
    """What came of a message."""

    status: values.TurnStatus
    text: str
    """The model's last words, Markdown; of code, all that it showed, as plain text."""
    reason: str
    """What went wrong, as a sentence; empty if nothing did."""
    code: tuple[str, ...]
    """Each piece of code that ran."""
    outputs: list[dict[str, Any]]
    """What the code showed, as the events of `stream` have it."""
    files: list[File]
    """Files that the code made or changed."""
    notices: tuple[str, ...]
    """Sentences of the bot, such as that variables were lost."""
    usage: dict[str, Any]
    seconds: float


class Fault(_Sent):
    """What was wrong, as a sentence for people."""

    message: str
    type: str


class Error(_Sent):
    """Why there is no other answer."""

    error: Fault


# OpenAI's.


class ChatMessage(_Lenient):
    """A message of a conversation; its parts are text, `image_url` and `file`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]] | None = None


class ChatCompletion(_Lenient):
    """A conversation whose last message is answered. Parameters of sampling count for nothing."""

    model: _Name = ""
    messages: Annotated[list[ChatMessage], pydantic.Field(min_length=1, max_length=2000)]
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    user: _Name = ""
    """Whose conversation it is, if the client serves several people."""
    n: Literal[1] = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None


class OfOpenAi(_Sent):
    """As OpenAI documents it."""
