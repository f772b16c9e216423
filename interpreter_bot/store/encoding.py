"""Outputs as JSON documents, and back; what is large goes to files beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from interpreter_bot import values
from interpreter_bot.store import columns, keeping, records

_MOST_CHARACTERS: Final = 4_000_000
_KINDS: Final[Mapping[str, type[Any]]] = {
    "text": values.Text,
    "error": values.Error,
    "table": values.Table,
    "latex": values.Latex,
    "json": values.Json,
    "result": values.Result,
    "clear": values.Clear,
    "notice": values.Notice,
    "kept": records.KeptDisplay,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


async def encode(
    output: values.Output, files: keeping.KeptFiles
) -> tuple[dict[str, Any], str | None]:
    """Turn an output into a document, and the hash of the file it refers to where it does.

    Raises:
        StoreError: the file could not be kept.
    """
    stored: records.StoredOutput
    if isinstance(output, values.Image):
        stored = await _kept(output, output.data, mime=output.mime, files=files)
    elif isinstance(output, values.Html):
        # "surrogatepass" would make a file that no browser reads.
        data = output.html.encode("utf-8", "replace")
        stored = await _kept(output, data, mime="text/html", files=files)
    else:
        stored = output
    made = _document(stored)
    if len(columns.document(made)) > _MOST_CHARACTERS:
        made = _document(values.Notice("An output was too large to be kept."))
    return made, stored.sha256 if isinstance(stored, records.KeptDisplay) else None


def decode(document: Mapping[str, Any]) -> records.StoredOutput:
    """Turn a document into the output that it was made of."""
    fields = {name: _frozen(value) for name, value in document.items() if name != "type"}
    made: records.StoredOutput = _KINDS[document["type"]](**fields)
    return made


async def _kept(
    output: values.Display, data: bytes, *, mime: str, files: keeping.KeptFiles
) -> records.KeptDisplay:
    return records.KeptDisplay(
        plain=output.plain,
        display_id=output.display_id,
        is_update=output.is_update,
        mime=mime,
        sha256=await files.keep(data),
        size_bytes=len(data),
    )


def _document(output: records.StoredOutput) -> dict[str, Any]:
    fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    # Previews are for the moment: what they are of is kept, and JSON holds no bytes.
    fields = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
    return {"type": _NAMES[type(output)], **fields}


def _frozen(value: object) -> object:
    """JSON knows lists only, our values tuples only."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
