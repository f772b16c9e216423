"""The tools that clients can call: names, arguments and descriptions."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import mcp_types
import pydantic

from interpreter_bot import code_activity, errors, settings
from interpreter_bot.text import quantities
from interpreter_bot.wording import api_words, mcp_words

_NEW_SESSION: Final = (
    "Handle of a session, as an earlier call gave it. Leave it out to begin a new one."
)
_KNOWN_SESSION: Final = "Handle of a session, as an earlier call gave it."


class _Arguments(pydantic.BaseModel):
    """Arguments of a tool; unknown names are errors."""

    model_config = pydantic.ConfigDict(extra="forbid")


class RunCode(_Arguments):
    """Run Python in a session, and return what it shows: text, tables, pictures, errors."""

    code: Annotated[str, pydantic.Field(description="Python, with IPython's additions.")]
    session: Annotated[str, pydantic.Field(description=_NEW_SESSION)] = ""


class ListFiles(_Arguments):
    """List the files in /mnt/data of a session."""

    session: Annotated[str, pydantic.Field(description=_KNOWN_SESSION)]


class GetFile(_Arguments):
    """Read a file in /mnt/data of a session: text as text, pictures as such, others as bytes."""

    session: Annotated[str, pydantic.Field(description=_KNOWN_SESSION)]
    name: Annotated[str, pydantic.Field(description="As list_files calls it.")]
    start: Annotated[
        int, pydantic.Field(ge=0, description="First byte that is wanted, to go on reading.")
    ] = 0


class PutFile(_Arguments):
    """Put a file into /mnt/data of a session. Nothing is replaced: it may get another name."""

    name: Annotated[str, pydantic.Field(description="What the file is to be called.")]
    text: Annotated[str | None, pydantic.Field(description="Its content, if that is text.")] = None
    base64: Annotated[
        str | None, pydantic.Field(description="Its content in Base64, if it is not text.")
    ] = None
    session: Annotated[str, pydantic.Field(description=_NEW_SESSION)] = ""


class Reset(_Arguments):
    """Start a session anew: what runs is stopped, and its variables are gone."""

    session: Annotated[str, pydantic.Field(description=_KNOWN_SESSION)]
    files: Annotated[bool, pydantic.Field(description="Delete its files as well.")] = False


ToolRequest: TypeAlias = RunCode | ListFiles | GetFile | PutFile | Reset
"""A call with validated arguments."""

_TOOLS: Final[dict[str, type[ToolRequest]]] = {
    "run_code": RunCode,
    "list_files": ListFiles,
    "get_file": GetFile,
    "put_file": PutFile,
    "reset": Reset,
}
_ANNOTATIONS: Final = {
    # Code has no effects outside of the sandbox.
    "run_code": mcp_types.ToolAnnotations(open_world_hint=False),
    "list_files": mcp_types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "get_file": mcp_types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "put_file": mcp_types.ToolAnnotations(destructive_hint=False, open_world_hint=False),
    "reset": mcp_types.ToolAnnotations(destructive_hint=True, open_world_hint=False),
}


def describe_tools() -> list[mcp_types.Tool]:
    """Return the descriptions of all tools."""
    return [
        mcp_types.Tool(
            name=name,
            description=" ".join((model.__doc__ or "").split()),
            input_schema=model.model_json_schema(),
            annotations=_ANNOTATIONS[name],
        )
        for name, model in _TOOLS.items()
    ]


def write_instructions(limits: settings.Limits, reach: code_activity.Reach) -> str:
    """Return the instructions for clients, which describe all tools together."""
    return mcp_words.instructions(
        sorted({host.host for host in reach.hosts}),
        quantities.duration(limits.execution_seconds),
        quantities.size(limits.memory_bytes),
    )


def parse_call(name: str, arguments: dict[str, object] | None) -> ToolRequest:
    """Return a call with validated arguments.

    Raises:
        BotError: there is no such tool, or its arguments are wrong.
    """
    model = _TOOLS.get(name)
    if model is None:
        raise errors.BotError(mcp_words.no_tool(_TOOLS))
    try:
        return model.model_validate(arguments or {})
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        faults = api_words.fault_phrases(details)
        raise errors.BotError(mcp_words.wrong_arguments(name, faults)) from error
