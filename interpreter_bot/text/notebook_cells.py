"""Read the code cells of Jupyter notebooks. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from interpreter_bot import errors


class NotebookError(errors.BotError):
    """A file is not a notebook in Python."""


def read(data: bytes, name: str) -> list[str]:
    """Return the code of each cell that is not empty.

    `name` is the file's name for error messages.

    Raises:
        NotebookError: the file is not a notebook, or not in Python.
    """
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
        language, cells = _language(notebook), [_source(cell) for cell in _cells(notebook)]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise NotebookError(f"{name} is not a notebook.") from error
    if language not in ("python", "python3", "ipython"):
        raise NotebookError(f"{name} is a notebook, but not one in Python.")
    return [cell for cell in cells if cell.strip()]


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Iterate over the code cells; formats before version 4 have them in worksheets."""
    sheets = notebook.get("worksheets")
    for part in [notebook] if sheets is None else sheets:
        if not isinstance(part["cells"], list):
            raise TypeError(part["cells"])
        yield from (cell for cell in part["cells"] if cell["cell_type"] == "code")


def _source(cell: dict[str, Any]) -> str:
    source = cell["source"] if "source" in cell else cell["input"]
    if isinstance(source, dict):
        raise TypeError(source)
    return source if isinstance(source, str) else "".join(source)


def _language(notebook: dict[str, Any]) -> str:
    """Return the notebook's language; Python if it names none."""
    metadata = notebook.get("metadata") or {}
    kernel_language = (metadata.get("kernelspec") or {}).get("language")
    return str(
        kernel_language or (metadata.get("language_info") or {}).get("name") or "python"
    ).lower()
