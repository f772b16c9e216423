"""Messages of tabs: what a page sends over its websocket, one model a message."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import pydantic

from interpreter_bot import values
from interpreter_bot.platforms.web import validation
from interpreter_bot.sessions import live_completions

_MAX_TITLE_CHARACTERS: Final = 200
_MAX_ANSWER_CHARACTERS: Final = 64 * 1024
_MAX_FILES: Final = 200
_MAX_TURNS: Final = 1000


def _limit_turns(count: int) -> int:
    return min(max(count, 1), _MAX_TURNS)


def _max_length(max_characters: int) -> pydantic.AfterValidator:
    return pydantic.AfterValidator(lambda text: validation.check_length(text, max_characters))


# Replaces unstorable characters first; pydantic would refuse them.
_Storable: TypeAlias = Annotated[str, pydantic.BeforeValidator(validation.replace_surrogates)]
_Id: TypeAlias = Annotated[str, pydantic.AfterValidator(validation.check_id)]
_Number: TypeAlias = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
_Text: TypeAlias = Annotated[_Storable, _max_length(validation.MAX_TEXT_CHARACTERS)]
_Title: TypeAlias = Annotated[_Storable, _max_length(_MAX_TITLE_CHARACTERS)]
_Zone: TypeAlias = Annotated[_Storable, pydantic.AfterValidator(validation.find_zone)]
_Files: TypeAlias = Annotated[
    tuple[Annotated[_Storable, _max_length(validation.MAX_NAME_CHARACTERS)], ...],
    pydantic.Field(max_length=_MAX_FILES, strict=False),
]


class Message(pydantic.BaseModel):
    """A message about a session; unknown fields are ignored."""

    model_config: ClassVar = pydantic.ConfigDict(strict=True, frozen=True)

    thread: _Id

    @property
    def key(self) -> values.SessionKey:
        """The key of the session."""
        return values.SessionKey("web", thread=self.thread)


class Watch(Message):
    """Show a session, with its latest turns, and send its events from now on."""

    do: Literal["watch"] = "watch"
    max_turns: Annotated[_Number, pydantic.AfterValidator(_limit_turns)]


class SendRequest(Message):
    """Carry out a request; `id` is made by the page, `zone` is the browser's time zone."""

    do: Literal["send"] = "send"
    id: _Id
    text: _Text = ""
    is_code: bool = False
    files: _Files = ()
    zone: _Zone = ""


class BranchOff(Message):
    """Carry out a request in a new branch, in place of the request of an earlier turn."""

    do: Literal["branch"] = "branch"
    id: _Id
    turn_id: _Number
    text: _Text = ""
    is_code: bool = False
    files: _Files = ()


class Stop(Message):
    """Stop what runs."""

    do: Literal["stop"] = "stop"


class Withdraw(Message):
    """Withdraw a request that waits."""

    do: Literal["withdraw"] = "withdraw"
    id: _Id


class AnswerQuestion(Message):
    """Answer a question of a turn; `text` None declines."""

    do: Literal["answer"] = "answer"
    question: _Title
    text: Annotated[_Storable, _max_length(_MAX_ANSWER_CHARACTERS)] | None = None


class SetApprovalPolicy(Message):
    """Choose when a person is asked before code runs."""

    do: Literal["set_approval"] = "set_approval"
    approval: _Title


class ShowPanel(Message):
    """Show a panel, named as the command that shows it, with the command's argument."""

    do: Literal["show"] = "show"
    panel: _Title
    argument: _Text = ""
    is_renewal: bool = False


class SubmitForm(Message):
    """Submit the form of a panel; see `ShowPanel`."""

    do: Literal["submit"] = "submit"
    panel: _Title
    argument: _Title = ""
    fields: Annotated[dict[_Title, _Text], pydantic.Field(max_length=20)]


class ReadData(Message):
    """Ask a live kernel for a part of a table, or for completions of code."""

    do: Literal["read_data"] = "read_data"
    query_id: _Number
    table: Annotated[str, pydantic.AfterValidator(validation.check_handle)] = ""
    view: Any = None
    code: Annotated[_Storable, _max_length(live_completions.MAX_CHARACTERS)] | None = None


class Reset(Message):
    """Forget variables and history, with `files` also the files."""

    do: Literal["reset"] = "reset"
    files: bool = False


class Fork(Message):
    """Copy the session, and show the copy."""

    do: Literal["fork"] = "fork"


class Undo(Message):
    """Undo the last turn."""

    do: Literal["undo"] = "undo"


class Delete(Message):
    """Delete the session and its branches."""

    do: Literal["delete"] = "delete"


class Rename(Message):
    """Set the title."""

    do: Literal["rename"] = "rename"
    title: _Title


class Mark(Message):
    """Pin or archive the session, or remove that mark."""

    do: Literal["mark"] = "mark"
    mark: Literal["", "pinned", "archived"]


class ChooseModel(Message):
    """Choose the model; an empty title is the default."""

    do: Literal["choose_model"] = "choose_model"
    model: _Title = ""


class Search(pydantic.BaseModel):
    """Find sessions by their titles and words."""

    model_config: ClassVar = pydantic.ConfigDict(strict=True, frozen=True)

    do: Literal["search"] = "search"
    text: _Title


TabMessage: TypeAlias = (
    Watch
    | SendRequest
    | BranchOff
    | Stop
    | Withdraw
    | AnswerQuestion
    | SetApprovalPolicy
    | ShowPanel
    | SubmitForm
    | ReadData
    | Reset
    | Fork
    | Undo
    | Delete
    | Rename
    | Mark
    | ChooseModel
    | Search
)

_ADAPTER: Final = pydantic.TypeAdapter[TabMessage](
    Annotated[TabMessage, pydantic.Field(discriminator="do")]
)


def decode(data: str) -> object:
    """Decode JSON; return None if it is invalid."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def parse(message: object) -> TabMessage:
    """Validate decoded JSON as a tab's message.

    Raises:
        MalformedError: it is none, or too long.
    """
    try:
        return _ADAPTER.validate_python(message)
    except pydantic.ValidationError as error:
        raise validation.MalformedError from error
