"""Cells of notebooks that other people have made."""

import json
import time

import pytest

from interpreter_bot.text import notebook_cells


def notebook(*cells):
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def code(source, **more):
    common = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    return common | {"source": source} | more


def test_what_cells_showed_is_not_even_looked_at():
    outputs = [{"output_type": "nonsense", "data": "x" * 1000}] * 20_000
    begun = time.process_time()
    assert notebook_cells.read(notebook(code("a", outputs=outputs)), "n") == ["a"]
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    "written",
    [
        {"cells": [code("a")]},
        {"cells": [code("a", metadata=3, execution_count="x", outputs="none", more=1)]},
        {"cells": [{"cell_type": "code", "source": ["a"]}], "nbformat": 4, "metadata": {}},
        {"cells": [code("a")], "metadata": {"kernelspec": {"name": "python3"}}},
        {"cells": [code("a")], "metadata": None, "nbformat": "4", "nbformat_minor": 99},
        {"cells": [{"cell_type": "raw"}, {"cell_type": "markdown"}, code("a"), code(" ")]},
        {"worksheets": [{"cells": [{"cell_type": "code", "input": "a", "outputs": []}]}]},
    ],
)
def test_only_the_source_of_cells_is_needed(written):
    assert notebook_cells.read(b"\xef\xbb\xbf" + json.dumps(written).encode(), "n") == ["a"]


@pytest.mark.parametrize(
    "metadata", [{"kernelspec": {"language": "R"}}, {"language_info": {"name": "julia"}}]
)
def test_other_languages_are_told(metadata):
    written = json.dumps({"cells": [code("a")], "metadata": metadata}).encode()
    with pytest.raises(notebook_cells.NotebookError, match="not one in Python"):
        notebook_cells.read(written, "n")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"3", b'{"cells": {}}', b"[" * 100_000, b"\xff"]
)
def test_other_files_are_no_notebooks(data):
    with pytest.raises(notebook_cells.NotebookError, match="is not a notebook"):
        notebook_cells.read(data, "n")


@pytest.mark.parametrize(
    "cell", [3, None, {}, {"cell_type": "code"}, code(3), code(["a", 3]), code({"a": 1}), []]
)
def test_cells_that_are_none_make_no_notebook(cell):
    with pytest.raises(notebook_cells.NotebookError, match="is not a notebook"):
        notebook_cells.read(notebook(cell), "n")
