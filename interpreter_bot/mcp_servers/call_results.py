"""Convert the results of tool calls to the JSON that kernels get. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import mcp_types

from interpreter_bot import redaction
from interpreter_bot.mcp_servers import definitions
from interpreter_bot.text import safe_text

_MAX_PARTS: Final = 100
_OMITTED_PARTS: Final = "[There were {count} more parts.]"
_MAX_URL_CHARACTERS: Final = 2_000


def as_json(result: mcp_types.CallToolResult, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """Return a result as JSON: `structured`, `parts` of text or data, `is_error`, `size_bytes`.

    Its size is bounded, as the server's answer was. `secrets` that the server sends back are
    removed.
    """
    parts = [_convert_part(part) for part in result.content[:_MAX_PARTS]]
    if len(result.content) > _MAX_PARTS:
        parts.append({"text": _OMITTED_PARTS.format(count=len(result.content) - _MAX_PARTS)})
    structured = result.structured_content
    content = json.dumps([parts, structured])
    content = redaction.redact(content, [json.dumps(secret)[1:-1] for secret in secrets])
    parts, structured = json.loads(content)
    return {
        "structured": structured,
        "parts": parts,
        "is_error": bool(result.is_error),
        "size_bytes": len(content),
    }


def _convert_part(part: mcp_types.ContentBlock) -> dict[str, str]:
    match part:
        case mcp_types.TextContent():
            return {"text": safe_text.clean(part.text)}
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return {"data": part.data, "media_type": part.mime_type}
        case mcp_types.EmbeddedResource():
            resource = part.resource
            if isinstance(resource, mcp_types.TextResourceContents):
                return {"text": safe_text.clean(resource.text)}
            return {
                "data": resource.blob,
                "media_type": resource.mime_type or "application/octet-stream",
            }
        case mcp_types.ResourceLink():
            return {"text": definitions.clean_text(part.uri, _MAX_URL_CHARACTERS)}
