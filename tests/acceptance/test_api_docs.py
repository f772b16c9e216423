"""The examples of docs/api.md, run as they stand there."""

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import sys

import pytest

from interpreter_bot import settings
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms import client_tokens
from interpreter_bot.platforms.api import routes
from interpreter_bot.platforms.web import server
from tests import futures
from tests.fakes import openai_server

pytestmark = [pytest.mark.kernel, pytest.mark.gate]

TEXT = pathlib.Path(__file__).parents[2].joinpath("docs/api.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8765"


def examples(language):
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


LIBRARY, SYNC, SDK = examples("python")
(CURL,) = examples("bash")


def answer(request):
    """Read the file, and then say something."""
    if request.messages[-1]["role"] == "tool":
        return openai_server.text("North sold most.")
    return openai_server.code("import csv\ndf = list(csv.reader(open('sales.csv')))\nx = 2**100")


async def run(directory, environment, *command):
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=directory,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.fixture
async def environment(tmp_path, short_path):
    (tmp_path / "sales.csv").write_text("region,units\nnorth,2\nsouth,1\n")
    async with openai_server.Server(answer, models=("gpt-5",)) as models:
        yield {
            "OPENAI_API_KEY": models.api_key,
            "OPENAI_BASE_URL": models.base_url,
            "OPENAI_MODEL": "gpt-5",
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
        }


@pytest.fixture
async def served(environment, tmp_path, short_path):
    """What the address of the examples becomes, and the variables that they read."""
    data = tmp_path / "data"
    token = client_tokens.add(data / client_tokens.API_FILE, "ci")
    config = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=data, runtime=short_path),
        web=settings.Web(listen="127.0.0.1:0"),
    )
    async with contextlib.AsyncExitStack() as stack:
        opening = bot_startup.open_service(config, environment)
        service = await stack.enter_async_context(opening)

        def open_api(service):
            return routes.Api(service, data).answer

        serving = server.serve(
            futures.completed_future(service), config.web, data, open_api=open_api
        )
        address = await stack.enter_async_context(serving)
        yield address.partition("/?")[0], {"TOKEN": token}


async def test_the_library(environment, tmp_path):
    output = await run(tmp_path, environment, sys.executable, "-c", LIBRARY)
    assert output.startswith("North sold most. [] 0\n")
    assert len(LIBRARY.strip().splitlines()) <= 16


async def test_the_library_without_await(environment, tmp_path):
    output = await run(tmp_path, environment, sys.executable, "-c", SYNC)
    assert output.startswith("North sold most.\nStarted\nCodeStarted\nOutputShown\n")
    assert output.endswith("TurnEnded\n")


async def test_http(served, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    origin, variables = served
    script = "set -e\n" + CURL.replace(ADDRESS, origin)
    output = await run(tmp_path, variables, "bash", "-c", script)
    assert '"text": "North sold most."' in output
    assert "event: stdout" in output
    assert "event: over" in output
    assert "south,1" in output
    assert output.endswith('{"done": true}')


async def test_openais_sdk(served, tmp_path):
    origin, variables = served
    script = SDK.replace(ADDRESS, origin)
    output = await run(tmp_path, variables, sys.executable, "-c", script)
    assert output == "North sold most."
