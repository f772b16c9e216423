"""A wheel in a virtual environment of its own, apart from any checkout."""

import asyncio
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import venv

import aiohttp
import pytest

from interpreter_bot.kernels.libraries import kernel_environment
from tests import terminals
from tests.fakes import openai_server

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from interpreter_bot import Interpreter, InterpreterError

async def main():
    async with Interpreter(model="gpt-5", api_key=sys.argv[1], base_url=sys.argv[2]) as session:
        print((await session.ask("x?")).text, (await session.run("import pandas; 6 * 7")).text)

try:
    asyncio.run(main())
except InterpreterError as error:
    print(error)
"""
CELL = "import sys, pandas; print(sys.prefix)"
# Prints each file that a sentence of the wheel names, and whether it is there.
NAMED_FILES = r"""
import pathlib, re
from interpreter_bot.wording import doctor_words, operator_words
for module in (doctor_words, operator_words):
    text = repr(vars(module))
    for name in re.findall(r"[\w./-]*(?:deploy|docs)/[\w./-]*\w|[\w./-]*manifest\.yml", text):
        print(name, pathlib.Path(name).is_file())
"""

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """Run a command; uv gets what `make setup` has left in its cache."""
    variables = os.environ | {
        "UV_OFFLINE": "1",
        "INTERPRETER_BOT_PATHS__DATA": str(tmp_path_factory.mktemp("data")),
    }

    def run(*command, is_skipped=True, **more):
        done = subprocess.run(
            [*map(str, command)],
            cwd=ROOT,
            env=variables | more,
            capture_output=True,
            text=True,
            check=False,
        )
        if is_skipped and re.search("[Nn]etwork (connectivity is|was) disabled", done.stderr):
            pytest.skip("uv's cache does not have what is locked; `make setup` fills it")
        return done

    return run


@pytest.fixture(scope="module")
def prefix(tmp_path_factory, offline):
    """The prefix of a bot that was installed as a wheel."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    prefix = tmp_path / "bot"
    venv.create(prefix)
    offline(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    uv = pathlib.Path(sys.prefix, "bin", "uv")
    target = ("--quiet", "--python", prefix / "bin" / "python")
    # `make setup` had uv from pip, so uv's cache does not have it.
    (prefix / "bin" / "uv").symlink_to(uv)
    lock = tmp_path / "bot.lock"
    lock.write_text(_without_uv((ROOT / "requirements.lock").read_text()))
    done = offline(uv, "pip", "sync", *target, "--require-hashes", lock)
    assert done.returncode == 0, done.stderr
    done = offline(uv, "pip", "install", *target, "--no-deps", wheel)
    assert done.returncode == 0, done.stderr
    return prefix


def _without_uv(lock):
    return re.sub(r"^uv==.*\n( .*\n)*", "", lock, flags=re.MULTILINE)


def test_a_wheel_makes_the_kernels_environment_at_its_first_start(prefix, offline, tmp_path):
    bot = prefix / "bin" / "interpreter-bot"
    command = (bot, "exec", "--cell", CELL)
    failed = offline(*command, UV_CACHE_DIR=str(tmp_path / "nothing"), is_skipped=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "The libraries for code could not be installed: " in failed.stderr
    first = offline(*command)
    made = pathlib.Path(first.stdout.strip())
    assert made == (prefix / "kernels").resolve(), first.stderr
    assert "Installing" in first.stderr
    second = offline(*command)
    assert second.stdout == first.stdout
    assert "Installing" not in second.stderr
    # More groups, which a newer lock leaves installed.
    state = prefix / "kernels" / kernel_environment.STATE_FILE_NAME
    added = offline(bot, "libraries", "media")
    assert added.returncode == 0, added.stderr
    assert json.loads(state.read_text())["groups"] == ["core", "media"]
    assert not made.exists()
    assert "Installing" not in offline(*command).stderr


async def test_a_program_uses_a_wheel_in_ten_lines(prefix, offline, tmp_path):
    async with openai_server.Server([openai_server.text("Yes.")], models=("gpt-5",)) as server:
        command = (prefix / "bin/python", "-P", "-c", PROGRAM, server.api_key, server.base_url)
        kernels = tmp_path / "kernels"
        here = prefix / "kernels"
        moved = here.exists() or here.is_symlink()
        if moved:
            here.rename(kernels)
        missing = await asyncio.to_thread(offline, *command)
        assert "The Python for code is not installed yet" in missing.stdout, missing.stderr
        assert "Run `interpreter-bot libraries`" in missing.stdout
        if moved:
            kernels.rename(here)
        await asyncio.to_thread(offline, prefix / "bin/interpreter-bot", "libraries")
        done = await asyncio.to_thread(offline, *command)
        assert done.stdout == "Yes. 42\n", done.stderr


def test_what_a_wheel_runs_in_kernels_is_compiled_and_again_once_it_changed(prefix, offline):
    (guest,) = prefix.glob("lib/python3*/site-packages/interpreter_bot/guest")
    (source,) = guest.glob("kernel_apps.py")
    for _ in range(2):
        began = time.time()
        os.utime(source, (began, began))
        assert offline(prefix / "bin" / "interpreter-bot", "exec", "--cell", CELL).returncode == 0
        while not _is_compiled(source, began):
            assert time.time() < began + 120
            time.sleep(0.1)


def _is_compiled(source, began):
    compiled = pathlib.Path(importlib.util.cache_from_source(str(source)))
    return compiled.exists() and compiled.stat().st_mtime >= began


async def test_a_wheel_is_set_up_checked_and_run(prefix, offline, tmp_path):
    bot, python = prefix / "bin" / "interpreter-bot", prefix / "bin" / "python"
    (package,) = prefix.glob("lib/python3*/site-packages/interpreter_bot")
    assert offline(bot, "exec", "--cell", CELL).returncode == 0
    with contextlib.closing(terminals.Terminal(tmp_path, bot, "setup")) as terminal:
        await terminal.enter("Key (not shown): ", "")
        await terminal.enter("Address", "")
        assert str(package / "manifest.yml") in await terminal.until("https://api.slack.com/apps?")
        await terminal.enter("xoxb-", "")
        await terminal.enter("Bot token", "")
        await terminal.until("Nothing was entered, so nothing has changed.")
    checked = offline(bot, "doctor", "--json", DISCORD_TOKEN="", SLACK_BOT_TOKEN="")
    assert json.loads(checked.stdout)["level"] != "none", checked.stderr
    named = dict(map(str.split, offline(python, "-P", "-c", NAMED_FILES).stdout.splitlines()))
    assert set(named.values()) == {"True"}, named
    assert all(name.startswith(f"{package}/") for name in named)
    assert {pathlib.Path(name).name for name in named} >= {
        "manifest.yml",
        "interpreter-bot.service",
    }
    assert str(package / "docs") in offline(bot, "--help").stdout
    with contextlib.closing(
        terminals.Terminal(tmp_path, bot, "run", INTERPRETER_BOT_WEB__LISTEN="127.0.0.1:0")
    ) as terminal:
        await terminal.until("The web page: ")
        address = (await terminal.until("\r\n")).split()[0]
        async with aiohttp.ClientSession() as session, session.get(address) as page:
            assert "<title>" in await page.text()
        await terminal.interrupt()
