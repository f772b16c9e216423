"""The description of the HTTP interface (OpenAPI 3.1), made of its routes and their documents."""

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
_BYTES: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_EVENTS: Final = {"text/event-stream": {"schema": {"type": "string"}}}


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """A request that clients can send.

    Attributes:
        path: names in braces vary.
        handle: answers it; its docstring says what it does.
        body: the document that comes along; None if none does.
        answer: the document that is sent back; None for a file.
        max_bytes: of the body.
    """

    method: str
    path: str
    handle: Callable[[calls.Call], Awaitable[web.StreamResponse]]
    body: type[pydantic.BaseModel] | None = None
    answer: type[pydantic.BaseModel] | None = None
    max_bytes: int = 1024 * 1024


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the description of some routes."""
    routes = tuple(routes)
    bodies = {(route.body, "validation") for route in routes if route.body}
    answers = {(route.answer, "serialization") for route in routes if route.answer}
    models: Any = [*bodies, *answers, (documents.Error, "serialization")]
    models.sort(key=lambda model: model[0].__name__)
    _, schemas = json_schema.models_json_schema(models, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
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


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    content = _json(route.answer) if route.answer is not None else _BYTES
    if route.body is not None and "stream" in route.body.model_fields:
        content = content | _EVENTS
    operation: dict[str, Any] = {
        "summary": route.handle.__doc__,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ],
        "responses": {
            "2XX": {"description": "Done", "content": content},
            "default": {"description": "Error", "content": _json(documents.Error)},
        },
    }
    if route.body is not None or route.method == "PUT":
        content = _BYTES if route.body is None else _json(route.body)
        # A request whose fields are all optional may come without a body.
        is_required = route.body is None or any(
            field.is_required() for field in route.body.model_fields.values()
        )
        operation["requestBody"] = {"required": is_required, "content": content}
    return operation


def _json(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}
