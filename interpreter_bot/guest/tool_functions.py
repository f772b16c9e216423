"""Tools of MCP servers as Python functions: `from tools.jira import search_issues`.

The bot decides which functions exist, and which calls are allowed. Requests to the bot use the
channel of `input()`, so that a call can wait for a person while the time limit is paused. This
module is no wall.
"""

from __future__ import annotations

import base64
import datetime
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import re
import secrets
import sys
import threading
import types
from typing import Any, NamedTuple

import zmq

PACKAGE = "tools"
CHANNEL_LOCK = threading.RLock()
"""Lock of the channel to the bot, for one request at a time."""
_POLL_MILLISECONDS = 100
_MAX_CHARACTERS = 256 * 1024
_MAX_MATCHES = 10
_PICTURE_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif"}
_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
_NOT_NOW = "Tools can be used only while code runs that a person, or a model for them, sent."
_NO_TOOL = "There is no tool {name!r} here. find_tools('words') finds them."


class ToolError(Exception):
    """A tool could not be called, or says that it failed."""


class Data(NamedTuple):
    """A part of a tool's result that is neither text nor a picture that can be displayed."""

    media_type: str
    content: bytes


class ToolFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tools` and its modules, if the bot has tools for this conversation."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._servers: dict[str, Any] = {}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Find a module; a person's own module or package `tools` comes first."""
        package, _, server = fullname.partition(".")
        if package != PACKAGE or "." in server:
            return None
        if not server:
            home = self._kernel.home
            user_paths = [entry for entry in sys.path if not entry or entry.startswith(home)]
            if importlib.machinery.PathFinder.find_spec(PACKAGE, user_paths):
                return None
            self._refresh()
        elif server not in self._servers:
            self._refresh()
        if not self._servers or (server and server not in self._servers):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=not server)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name, self)

    def exec_module(self, module: types.ModuleType) -> None:
        server = module.__name__.partition(".")[2]
        if server:
            self._fill(module, server)
            return
        module.__doc__ = f"Tools of servers outside: {', '.join(self._servers)}."
        vars(module).update(
            find_tools=self.find, describe_tool=self.describe, ToolError=ToolError, Data=Data
        )

    def refill(self, module: types.ModuleType) -> None:
        """Fill a module again, as allowed tools may have changed."""
        self._refresh()
        self.exec_module(module)

    def find(self, words: str = "") -> list[str]:
        """Return the calls of the tools that match some words best; without words, of all tools."""
        search_words = set(re.findall(r"\w+", words.lower()))
        scored_lines = []
        for server, server_info in self._servers.items():
            for tool in server_info["tools"]:
                text = f"{server} {tool['function']} {tool['description']}".lower()
                title = f"{server} {tool['function']}".lower()
                score = sum((word in text) + 2 * (word in title) for word in search_words)
                if score or not search_words:
                    summary = tool["description"].strip().partition("\n")[0][:160]
                    scored_lines.append((-score, f"{_format_call(server, tool)}: {summary}"))
        scored_lines.sort(key=lambda scored_line: scored_line[0])
        return [line for _, line in (scored_lines[:_MAX_MATCHES] if search_words else scored_lines)]

    def describe(self, name: str) -> str:
        """Return a tool's call and its documentation; `name` is as `find_tools` writes it."""
        server, _, function = name.partition("(")[0].removeprefix(f"{PACKAGE}.").partition(".")
        for tool in self._servers.get(server, {}).get("tools", ()):
            if tool["function"] == function:
                return f"{_format_call(server, tool)}\n\n{_format_docstring(tool)}"
        raise ToolError(_NO_TOOL.format(name=name))

    def _refresh(self) -> None:
        try:
            self._servers = ask(self._kernel, {"do": "list"})["servers"]
        except ToolError:
            self._servers = {}

    def _fill(self, module: types.ModuleType, server: str) -> None:
        server_info = self._servers.get(server, {"instructions": "", "tools": ()})
        module.__doc__ = server_info["instructions"]
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and hasattr(value, "tool"):
                delattr(module, name)
        for tool in server_info["tools"]:
            setattr(module, tool["function"], _make_function(self._kernel, server, tool))


class _Module(types.ModuleType):
    """A module that asks the bot again if a name is missing, as the tool may be allowed by now."""

    def __init__(self, name: str, finder: ToolFinder) -> None:
        super().__init__(name)
        self.__dict__["_finder"] = finder

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "." in self.__name__:
            self.__dict__["_finder"].refill(self)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{self.__name__} has no {name!r}; it has {', '.join(self._names())}")

    def _names(self) -> list[str]:
        return [name for name in self.__dict__ if not name.startswith("_")]


def ask(kernel: Any, request: dict[str, Any]) -> Any:
    """Ask the bot.

    Raises:
        ToolError: the bot cannot be asked now, or refuses.
    """
    parent = kernel.get_parent("shell")
    text = json.dumps(request, default=_encode_value)
    if len(text) > _MAX_CHARACTERS:
        size = f"{len(text):,} characters; {_MAX_CHARACTERS:,} are allowed"
        raise ToolError(f"The call is too large: {size}. Put the data into a file, or send less.")
    with CHANNEL_LOCK:
        answer = _send_and_wait(kernel, parent, text)
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer


def _send_and_wait(kernel: Any, parent: Any, text: str) -> Any:
    execution_id = parent.get("header", {}).get("msg_id")
    # A child that code forked has the same sockets, and must not use them.
    if os.getpid() != kernel.session.pid:
        raise ToolError(_NOT_NOW)
    if not kernel.may_ask or kernel.execution_id != execution_id:
        raise ToolError(_NOT_NOW)
    content = {"prompt": {"tools": text}, "password": False}
    channel, identity = kernel.stdin_socket, kernel.requester
    request = kernel.session.send(channel, "input_request", content, parent, ident=identity)
    # A waiting thread of an earlier execution must free the channel for the next one.
    while kernel.execution_id == execution_id:
        if channel.poll(_POLL_MILLISECONDS):
            _, reply = kernel.session.recv(channel, zmq.NOBLOCK)
            if reply and reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                return json.loads(reply["content"]["value"])
    raise ToolError(_NOT_NOW)


def _encode_value(value: Any) -> Any:
    """Convert a value that JSON lacks: dates to texts, values of numpy to numbers and lists."""
    if isinstance(value, datetime.date | datetime.time | os.PathLike):
        return str(value) if isinstance(value, os.PathLike) else value.isoformat()
    for method in ("tolist", "item"):
        if callable(convert := getattr(value, method, None)):
            return convert()
    if isinstance(value, set | frozenset):
        return list(value)
    raise ToolError(f"A tool cannot be sent a {type(value).__name__}.")


def _make_function(kernel: Any, server: str, tool: dict[str, Any]) -> types.FunctionType:
    signature = _build_signature(tool)
    names_by_parameter = {
        parameter["python_name"]: parameter["name"] for parameter in tool["parameters"]
    }

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            values = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{error}. It is called as {_format_call(server, tool)}") from None
        arguments = {names_by_parameter[name]: value for name, value in values.items()}
        call = {"server": server, "tool": tool["name"], "arguments": arguments}
        return _convert_result(ask(kernel, {"do": "call", "id": secrets.token_hex(16), **call}))

    function.__name__ = function.__qualname__ = tool["function"]
    function.__module__ = f"{PACKAGE}.{server}"
    function.__doc__ = _format_docstring(tool)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.tool = tool["name"]  # type: ignore[attr-defined]
    return function  # type: ignore[return-value]


def _build_signature(tool: dict[str, Any]) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                parameter["python_name"],
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if parameter["is_required"] else None,
            )
            for parameter in tool["parameters"]
        ]
    )


def _format_call(server: str, tool: dict[str, Any]) -> str:
    return f"{PACKAGE}.{server}.{tool['function']}{_build_signature(tool)}"


def _format_docstring(tool: dict[str, Any]) -> str:
    lines = [tool["description"]]
    if tool["parameters"]:
        lines += ["", "Args:"]
    for parameter in tool["parameters"]:
        schema_types = (
            parameter["kind"] if isinstance(parameter["kind"], list) else [parameter["kind"]]
        )
        type_text = " | ".join(_TYPES.get(name, "any") for name in schema_types)
        lines.append(f"    {parameter['python_name']} ({type_text}): {parameter['description']}")
    return "\n".join(lines)


def _convert_result(answer: dict[str, Any]) -> Any:
    """Return a tool's structured value, or else its text, its picture, or a list of its parts."""
    parts = [_convert_part(part) for part in answer["parts"]]
    if answer["is_error"]:
        message = "\n".join(part for part in parts if isinstance(part, str))
        raise ToolError(message or "The tool failed, and says no more.")
    if answer["structured"] is not None:
        value = answer["structured"]
        # Servers wrap results that are no JSON objects.
        return value["result"] if isinstance(value, dict) and [*value] == ["result"] else value
    if all(isinstance(part, str) for part in parts):
        return "\n".join(parts)
    return parts[0] if len(parts) == 1 else parts


def _convert_part(part: dict[str, str]) -> Any:
    if "text" in part:
        return part["text"]
    content = base64.b64decode(part["data"])
    if picture_format := _PICTURE_FORMATS.get(part["media_type"]):
        from IPython.display import Image

        return Image(data=content, format=picture_format)
    return Data(part["media_type"], content)


def install(kernel: Any) -> None:
    """Let imports find the tools."""
    sys.meta_path.insert(0, ToolFinder(kernel))
