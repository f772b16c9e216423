"""Cells from files."""

import io
import json
import os
import sys

import nbformat
import pytest

from interpreter_bot.platforms.console import code_sources


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def stdin(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))

    return give


def notebook(*cells, **metadata):
    return json.dumps(
        {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    )


def code(source):
    common = {"metadata": {}, "outputs": [], "execution_count": None}
    return {"cell_type": "code", "source": source} | common


@pytest.mark.parametrize(
    ("script", "cells"),
    [
        ("print(1)\nprint(2)\n", ["print(1)\nprint(2)"]),
        ("# %%\na\n# %% title\nb\n#%%\nc", ["a", "b", "c"]),
        ("import x\n# %%\ny", ["import x", "y"]),
        ("# %%\n\n# %%\n", []),
        ("", []),
        ("# %% [markdown]\n# words\n# %%\na\n# %% [raw]\nb", ["a"]),
        ("x = 1  # %% no marker\n # %% nor this", ["x = 1  # %% no marker\n # %% nor this"]),
        ("a\r\n# %%\r\nb\r\n", ["a", "b"]),
    ],
)
def test_a_script_is_divided_at_its_markers(written, script, cells):
    assert code_sources.read_cells(written("s.py", script)) == cells


@pytest.mark.parametrize(
    "data",
    [
        "x = 'é'".encode(),
        b"\xef\xbb\xbf" + "x = 'é'".encode(),
        b"# -*- coding: latin-1 -*-\nx = '\xe9'",
    ],
)
def test_a_script_is_decoded_as_python_does(written, data):
    (cell,) = code_sources.read_cells(written("s.py", data))
    assert cell.endswith("x = 'é'")
    assert not cell.startswith("\ufeff")


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"# coding: nonsense\nx"])
def test_what_is_no_text_is_refused(written, data):
    with pytest.raises(code_sources.InputFileError, match="cannot be read as text"):
        code_sources.read_cells(written("s.py", data))


@pytest.mark.parametrize("name", ["", "missing.py", "missing.ipynb", "x\0.py"])
def test_what_is_not_there_is_refused(tmp_path, name):
    with pytest.raises(code_sources.InputFileError, match="cannot be read"):
        code_sources.read_cells(str(tmp_path / name))


def test_standard_input_is_a_script(stdin):
    stdin("x = 'é'\n# %%\ny".encode())
    assert code_sources.read_cells("-") == ["x = 'é'", "y"]


def test_standard_input_that_is_no_text_is_refused(stdin, monkeypatch):
    stdin(b"\xff")
    with pytest.raises(code_sources.InputFileError, match="Standard input cannot be read as text"):
        code_sources.read_cells("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(code_sources.InputFileError, match="Standard input cannot be read"):
        code_sources.read_cells("-")


def test_a_notebook_gives_its_code(written):
    words = {"cell_type": "markdown", "source": "# words", "metadata": {}}
    text = notebook(code(["a\n", "b"]), words, code("  \n"), code("%matplotlib inline"))
    assert code_sources.read_cells(written("n.ipynb", text)) == ["a\nb", "%matplotlib inline"]


def test_an_old_notebook_is_read_too(written):
    old = nbformat.v3.new_notebook(
        worksheets=[nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell("a")])]
    )
    assert code_sources.read_cells(written("n.ipynb", json.dumps(old))) == ["a"]


@pytest.mark.parametrize(
    "text",
    ["", "x", "{}", "[]", "3", '{"cells": 3, "nbformat": 4}', "[" * 100_000, b"\xff"],
)
def test_what_is_no_notebook_is_refused(written, text):
    with pytest.raises(code_sources.InputFileError, match="is not a notebook"):
        code_sources.read_cells(written("n.ipynb", text))


def test_a_notebook_in_another_language_is_refused(written):
    kernelspec = {"name": "ir", "display_name": "R", "language": "R"}
    with pytest.raises(code_sources.InputFileError, match="not one in Python"):
        code_sources.read_cells(written("n.ipynb", notebook(code("x"), kernelspec=kernelspec)))


def test_what_is_too_large_is_refused(written, stdin):
    large = written("s.py", "")
    os.truncate(large, 64 * 1024 * 1024 + 1)
    with pytest.raises(code_sources.InputFileError, match="too large"):
        code_sources.read_cells(large)
    stdin(bytes(64 * 1024 * 1024 + 1))
    with pytest.raises(code_sources.InputFileError, match="too large"):
        code_sources.read_cells("-")
