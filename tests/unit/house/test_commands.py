"""What a command imports: who runs a line of code is not to wait for what only the bot needs."""

import json
import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "discord", "openai", "slack_bolt", "sqlalchemy"}
SCRIPT = """
import contextlib, io, json, sys
from interpreter_bot import cli
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    cli.main([sys.argv[1], "--help"])
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("limits", set()),
        ("doctor", set()),
        ("exec", set()),
        ("ask", {"aiohttp", "openai", "sqlalchemy"}),
        ("run", HEAVY),
    ],
)
def test_a_command_imports_what_it_needs(command, needed):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, command], capture_output=True, text=True, check=True
    )
    assert HEAVY & set(json.loads(done.stdout)) == needed
