"""Code cells of Jupyter notebooks. Whatever else is in one is passed over; it may be hostile."""

from __future__ import annotations

import json
import warnings
from typing import Any

from interpreter_bot import errors


class NotebookError(errors.BotError):
    """It is not a notebook."""


def read(data: bytes, name: str) -> list[str]:
    """Return the code of a notebook's cells, without those that have none.

    Args:
        data: the file.
        name: of the file, for sentences.

    Raises:
        NotebookError: it is no notebook, or not one in Python.
    """
    # Imported here: its schemas take longer than a cell of a kernel that is at hand.
    import nbformat

    try:
        with warnings.catch_warnings():
            # Warnings about notebooks that are merely old are no use to the person here.
            warnings.simplefilter("ignore")
            text = json.dumps(_without_outputs(json.loads(data.decode("utf-8-sig"))))
            notebook: Any = nbformat.reads(text, as_version=4)
            nbformat.validate(notebook)
    except (
        nbformat.ValidationError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise NotebookError(f"{name} is not a notebook.") from error
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if str(language).lower() != "python":
        raise NotebookError(f"{name} is a notebook, but not one in Python.")
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return [cell for cell in cells if cell.strip()]


def _without_outputs(notebook: Any) -> Any:  # noqa: ANN401
    """Drop what cells showed: most of a notebook, long to check, and often not quite in order."""
    for cell in notebook.get("cells", []):
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return notebook
