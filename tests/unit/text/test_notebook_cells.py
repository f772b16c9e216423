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
    "cell", [3, None, {}, {"cell_type": "code"}, code(3), code(["a", 3]), code({"a": 1}), []]
)
def test_cells_that_are_none_make_no_notebook(cell):
    with pytest.raises(notebook_cells.NotebookError, match="is not a notebook"):
        notebook_cells.read(notebook(cell), "n")
