"""The description of the HTTP interface (OpenAPI 3.1), generated from its routes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterable
from importlib import metadata
from typing import Any, Final

import pydantic
from aiohttp import web
from pydantic import json_schema

from interpreter_bot.platforms.api import calls, documents

_NAME: Final = "interpreter-bot"
_REFERENCE: Final = "#/components/schemas/{model}"
_BYTES_CONTENT: Final = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
_EVENTS_CONTENT: Final = {"text/event-stream": {"schema": {"type": "string"}}}


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """A request that clients can send.

    Attributes:
        path: with variable parts as names in braces.
        handle: answers the request; its docstring is the summary for clients.
        body: the model of the request's body; None if there is no body, or a file.
        answer: the model of the response's body; None for a file.
        max_bytes: of the request's body.
    """

    method: str
    path: str
    handle: Callable[[calls.Call], Awaitable[web.StreamResponse]]
    body: type[pydantic.BaseModel] | None = None
    answer: type[pydantic.BaseModel] | None = None
    max_bytes: int = 1024 * 1024


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI description of routes."""
    routes = tuple(routes)
    bodies = {(route.body, "validation") for route in routes if route.body}
    answers = {(route.answer, "serialization") for route in routes if route.answer}
    models: Any = [*bodies, *answers, (documents.ErrorDocument, "serialization")]
    models.sort(key=lambda model: model[0].__name__)
    _, schemas = json_schema.models_json_schema(models, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": _NAME, "version": metadata.version(_NAME)},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    content = _json_content(route.answer) if route.answer is not None else _BYTES_CONTENT
    if route.body is not None and "stream" in route.body.model_fields:
        content = content | _EVENTS_CONTENT
    operation: dict[str, Any] = {
        "summary": route.handle.__doc__,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ],
        "responses": {
            "2XX": {"description": "Done", "content": content},
            "default": {"description": "Error", "content": _json_content(documents.ErrorDocument)},
        },
    }
    if route.body is not None or route.method == "PUT":
        body_content = _BYTES_CONTENT if route.body is None else _json_content(route.body)
        # A request whose fields are all optional may come without a body.
        is_required = route.body is None or any(
            field.is_required() for field in route.body.model_fields.values()
        )
        operation["requestBody"] = {"required": is_required, "content": body_content}
    return operation


def _json_content(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}
