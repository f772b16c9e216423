"""Read the definitions of a server's tools: bounded, without hidden characters. Pure.

The digest covers the definition as the server sent it. People, models and kernels see it without
hidden characters.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import itertools
import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from interpreter_bot.text import safe_text
from interpreter_bot.wording import tool_words

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MAX_DESCRIPTION_CHARACTERS: Final = 2_000
_MAX_PARAMETER_CHARACTERS: Final = 300
_MAX_DEFINITION_CHARACTERS: Final = 64 * 1024
_MAX_PARAMETERS: Final = 64
_MAX_TOOLS: Final = 500
_RESERVED_FUNCTION_NAMES: Final = frozenset({"find_tools", "describe_tool"})
_HIDDEN_CHARACTERS: Final = re.compile(
    r"[\u200b-\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool.

    Attributes:
        python_name: its name in Python.
        name: its name at the server.
        kind: its JSON type, or several types.
        description: without hidden characters.
        is_required: the tool cannot be called without it.
    """

    python_name: str
    name: str
    kind: str | tuple[str, ...]
    description: str
    is_required: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """A tool of a server.

    Attributes:
        name: its name at the server.
        function: its name in Python.
        description: without hidden characters.
        parameters: required ones come first.
        is_read_only: according to the server.
        digest: of the whole definition.
    """

    name: str
    function: str
    description: str
    parameters: tuple[Parameter, ...]
    is_read_only: bool
    digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """A server's instructions and tools, as it sent them.

    Attributes:
        instructions: for models.
        tools: definitions, by the tools' names.
        omissions: sentences about tools that cannot be used.
    """

    instructions: str = ""
    tools: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    omissions: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of instructions and tools."""
        parts = [digest(self.instructions), *(digest(self.tools[name]) for name in self.tools)]
        return digest(sorted(parts))


def digest(value: object) -> str:
    """Return the SHA-256 of a JSON value, which identifies a version."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_listing(instructions: str, tools: Iterable[Mapping[str, Any]]) -> Listing:
    """Check what a server sent; unusable tools are omitted, each with a sentence."""
    tools_by_name: dict[str, Mapping[str, Any]] = {}
    omissions: list[str] = []
    functions: dict[str, str] = {}
    for number, tool in enumerate(tools):
        name = str(tool.get("name", ""))
        if number >= _MAX_TOOLS:
            omissions.append(tool_words.only_first(_MAX_TOOLS))
            break
        if not _NAME.fullmatch(name):
            omissions.append(tool_words.bad_tool_name(number + 1))
        elif len(json.dumps(tool)) > _MAX_DEFINITION_CHARACTERS:
            omissions.append(tool_words.definition_too_long(name))
        elif len(_properties(tool)) > _MAX_PARAMETERS:
            omissions.append(tool_words.too_many_parameters(name, _MAX_PARAMETERS))
        elif (function := python_name(name)) in functions:
            # Neither is used, as otherwise the server's order would decide which one is.
            omissions.append(tool_words.same_name(name, functions[function]))
            tools_by_name.pop(functions[function], None)
        else:
            functions[function] = name
            tools_by_name[name] = tool
    return Listing(instructions[:_MAX_DEFINITION_CHARACTERS], tools_by_name, tuple(omissions))


def read_tool(tool: Mapping[str, Any]) -> Definition:
    """Read the definition of a tool from a listing."""
    annotations = tool.get("annotations")
    required = _schema(tool).get("required")
    required_names = {str(name) for name in required} if isinstance(required, list) else set()
    parameters: dict[str, Parameter] = {}
    for name, schema in _properties(tool).items():
        name_in_python = python_name(name)
        while name_in_python in parameters:
            name_in_python += "_"
        parameters[name_in_python] = _read_parameter(
            name_in_python, name, schema, is_required=name in required_names
        )
    return Definition(
        name=str(tool["name"]),
        function=python_name(str(tool["name"])),
        description=clean_text(tool.get("description"), _MAX_DESCRIPTION_CHARACTERS),
        parameters=tuple(
            sorted(parameters.values(), key=lambda parameter: not parameter.is_required)
        ),
        is_read_only=isinstance(annotations, dict) and annotations.get("readOnlyHint") is True,
        digest=digest(tool),
    )


def python_name(name: str) -> str:
    """Return the name of a tool or parameter in Python."""
    plain = re.sub(r"[^a-z0-9_]", "_", name, flags=re.IGNORECASE | re.ASCII)[:64].lstrip("_")
    if not plain or plain[0].isdigit():
        plain = f"t_{plain}"
    return f"{plain}_" if keyword.iskeyword(plain) or plain in _RESERVED_FUNCTION_NAMES else plain


def clean_text(text: object, max_characters: int) -> str:
    """Return a server's text without hidden characters, at a bounded length."""
    if not isinstance(text, str):
        return ""
    # Cut before cleaning, so that cleaning takes a bounded time.
    clean = safe_text.sanitize(_HIDDEN_CHARACTERS.sub("", text[: 4 * max_characters])).strip()
    return clean if len(clean) <= max_characters else f"{clean[:max_characters]} …"


def find_warnings(
    server: str, tool: Mapping[str, Any], tools_by_server: Mapping[str, Iterable[str]]
) -> list[str]:
    """Return what is suspicious about a definition, given the names of all tools by server."""
    text = json.dumps(tool, ensure_ascii=False)
    sentences = []
    if _HIDDEN_CHARACTERS.search(text) or safe_text.sanitize(text) != text:
        sentences.append(tool_words.HIDDEN_CHARACTERS)
    words = set(re.findall(r"[\w.-]+", text))
    for other_server, names in tools_by_server.items():
        if other_server == server:
            continue
        mentioned = [name for name in names if name in words and len(name) > 3]
        if other_server in words or mentioned:
            mentioned_names = ", ".join(
                [f"{other_server}.{name}" for name in mentioned] or [other_server]
            )
            sentences.append(tool_words.mentions_other_tools(mentioned_names))
    return sentences


def list_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[str]:
    """Return the changed lines of a definition, or all lines of a new one."""
    old_lines, new_lines = _lines(before) if before else [], _lines(after)
    return [
        line
        for line in difflib.unified_diff(old_lines, new_lines, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]


def _lines(tool: Mapping[str, Any]) -> list[str]:
    """Return a definition as lines for people, with hidden characters and blank lines shown."""
    return [
        safe_text.reveal_hidden(f"{path}: {line}").text
        for path, value in _leaves(tool, "")
        for line in _collapse_blank_lines(str(value).splitlines() or [""])
    ]


def _collapse_blank_lines(lines: list[str]) -> Iterator[str]:
    for is_blank, group in itertools.groupby(lines, lambda line: not line.strip(" \t")):
        equal_lines = [*group]
        yield from (
            [f"({len(equal_lines)} blank lines)"]
            if is_blank and len(equal_lines) > 1
            else equal_lines
        )


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            # A line end in a name could forge lines of this list.
            label = name if name.isprintable() else json.dumps(name)
            yield from _leaves(value[name], f"{path}.{label}" if path else label)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = tool.get("inputSchema")
    return schema if isinstance(schema, dict) else {}


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = _schema(tool).get("properties")
    return properties if isinstance(properties, dict) else {}


def _read_parameter(
    name_in_python: str, name: str, schema: object, *, is_required: bool
) -> Parameter:
    definition = schema if isinstance(schema, dict) else {}
    kind = definition.get("type", "any")
    kinds = (
        tuple(str(entry)[:20] for entry in kind[:8]) if isinstance(kind, list) else str(kind)[:20]
    )
    description = clean_text(definition.get("description"), _MAX_PARAMETER_CHARACTERS)
    if isinstance(choices := definition.get("enum"), list):
        allowed = clean_text(json.dumps(choices[:20]), _MAX_PARAMETER_CHARACTERS)
        description = f"{description} One of {allowed}.".strip()
    return Parameter(name_in_python, name, kinds, description, is_required)
