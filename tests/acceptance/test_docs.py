"""The commands of README and docs, run as they stand there."""

import asyncio
import os
import pathlib
import re
import sys

import nbformat
import pytest

from tests.fakes import openai_server

pytestmark = pytest.mark.kernel

ROOT = pathlib.Path(__file__).parents[2]
BIN = pathlib.Path(sys.executable).parent
# What has tests of its own, does not end by itself, or is about something that a reader has.
NOT_RUN = re.compile(
    r"\b(?:make|export|ray|curl) |-bot (?:run|doctor|fleet|-v run)\b|--approval| host$"
    r"| host (?:status|drain)| (?:accept|refuse|save|end|forget|move) "
)


def _lines():
    blocks = [
        block
        for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
        for block in re.findall(r"^```sh\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
    ]
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [re.sub(r"\s+#.*", "", " ".join(line.split())) for line in lines]
    return list(dict.fromkeys(line for line in commands if line and not NOT_RUN.search(line)))


def _cases():
    """All lines; `make test` runs those without a kernel, as other tests of it have kernels."""
    in_gate = (pytest.mark.gate, pytest.mark.every_case)
    return [
        pytest.param(line, marks=() if re.search(r"-bot (?:ask|exec)\b", line) else in_gate)
        for line in _lines()
    ]


@pytest.mark.parametrize("line", _cases())
async def test_a_command_does_what_it_says(line, tmp_path, short_path):
    (tmp_path / "sales.csv").write_text("region,units\nnorth,1\nsouth,2\n")
    (tmp_path / "analysis.py").write_text("print(6 * 7)\n")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("6 * 7")])
    for name in ("analysis.ipynb", "report.ipynb"):
        nbformat.write(notebook, tmp_path / name)
    async with openai_server.Server(lambda _: openai_server.text("Twelve.")) as server:
        settings = {
            "HOME": str(tmp_path),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "OPENAI_API_KEY": server.api_key,
            "OPENAI_BASE_URL": server.base_url,
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
        }
        process = await asyncio.create_subprocess_shell(
            line.replace(".venv/bin/", f"{BIN}/"),
            cwd=tmp_path,
            env=settings,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    is_nothing_asked = line.endswith(" ask")
    is_unknown_client = re.search("(?:mcp|api) remove", line)
    expected = 2 if is_nothing_asked or is_unknown_client else 0
    assert process.returncode == expected, output.decode()
    assert output, "a list that is empty says so"
