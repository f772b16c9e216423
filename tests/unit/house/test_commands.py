"""What a command imports: who runs a line of code is not to wait for what only the bot needs."""

import json
import resource
import subprocess
import sys

import pytest

MAX_CPU_SECONDS = 0.3
HEAVY = {"aiohttp", "anthropic", "discord", "openai", "slack_bolt", "sqlalchemy"}
SCRIPT = """
import importlib, json, sys
for names in json.loads(sys.argv[1]):
    for name in names:
        importlib.import_module(f"interpreter_bot.{name}")
    print(json.dumps(sorted(sys.modules)))
"""


def _loaded(*steps):
    """Give the modules that are loaded after each step, all in one process."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def test_commands_import_what_they_need():
    # Of `ask` and `run` the rest is imported while the kernels' process starts.
    small, host, listing = _loaded(
        [f"commands.{name}" for name in ("limits", "doctor", "execute", "ask", "run")],
        # The process of the kernels has neither models nor platforms nor a database.
        ["commands.host"],
        ["commands.sessions_command"],
    )
    assert HEAVY & small == set()
    assert HEAVY & host == {"aiohttp"}
    assert HEAVY & listing == {"aiohttp", "sqlalchemy"}


def test_who_runs_code_in_a_host_that_is_there_has_nothing_of_bots_or_kernels():
    """Each is a good part of the time until the first line of output."""
    unwanted = {f"interpreter_bot.{name}" for name in ("agent", "mcp_servers", "skills", "store")}
    unwanted |= {"interpreter_bot.kernels.pools", "interpreter_bot.kernels.files", "yaml"}
    (loaded,) = _loaded(["hosts.host_processes", "commands.execute"])
    assert unwanted & loaded == set()


STARTED = """
import asyncio, pathlib, sys
from interpreter_bot import settings
from interpreter_bot.app import bot_startup
from interpreter_bot.platforms.web import server

async def start():
    place = pathlib.Path(sys.argv[1])
    config = settings.Settings(
        models=[settings.Model(name="x", base_url="http://127.0.0.1:9/v1")],
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=place / "data", runtime=place / "r"),
    )
    async with bot_startup.open_service(config, {}):
        (opening,) = [one for one in asyncio.all_tasks() if one.get_name() == "open models"]
        print("openai" in sys.modules)
        await asyncio.wait_for(opening, 60)
        print("openai.resources.chat.completions" in sys.modules)

asyncio.run(start())
"""


@pytest.mark.slow
@pytest.mark.kernel
def test_people_see_what_they_missed_before_the_sdks_of_models_are_imported(short_path):
    """That takes as long as half of a start; and it is done before anybody has asked."""
    command = [sys.executable, "-c", STARTED, str(short_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\nTrue\n", 0), done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["-v", "--config", "x.toml", "run", "--help"], 0),
        (["rnu"], 2),
        pytest.param(["--help"], 0, marks=pytest.mark.slow),
        pytest.param(["ask", "--help"], 0, marks=pytest.mark.slow),
        pytest.param(["--version"], 0, marks=pytest.mark.slow),
        pytest.param([], 2, marks=pytest.mark.slow),
        pytest.param(["exec", "--nothing"], 2, marks=pytest.mark.slow),
    ],
)
def test_help_and_mistakes_are_answered_at_once(arguments, status):
    spent = []
    # The quickest, because the machine does other things too.
    while len(spent) < 5 and min(spent, default=9.0) > MAX_CPU_SECONDS:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "interpreter_bot", *arguments], capture_output=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == status
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) <= MAX_CPU_SECONDS
