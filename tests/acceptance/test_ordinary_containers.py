"""What people and operators meet in an ordinary container, where namespaces are refused."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.namespaces,  # Of which one container within another is made.
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container"),
]
SETTINGS = """
[[egress]]
host = "example.org"
[[connections]]
name = "sales"
kind = "sqlite"
address = "/tmp/sales.sqlite"
[[mcp_servers]]
name = "clock"
command = ["python3", "/usr/local/mcp_program.py"]
readable = ["/usr/local"]
"""
CELL = """
import socket
print(connections["sales"].query("SELECT amount FROM orders"))
try:
    socket.create_connection(("127.0.0.1", 80))
except OSError as error:
    print(error)
"""
DATABASE = """
import sqlite3
with sqlite3.connect("/tmp/sales.sqlite") as database:
    database.execute("CREATE TABLE orders AS SELECT 4210 AS amount")
"""
RESOLVED = """
import sqlite3
sqlite3.connect("/mnt/data/a.db").execute("CREATE TABLE t (a)")
!git init --quiet repository && cd repository && git status --short && echo clean
!pip install nothing
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "bot.toml"
    file.write_text(SETTINGS)
    tmp_path.chmod(0o755)
    return file


def run_in_container(config, *arguments, options=(), prelude=""):
    # Its /tmp is another one.
    text = config.read_text()
    code = (
        f"{prelude}\nimport pathlib, sys; pathlib.Path('/tmp/bot.toml').write_text(sys.argv[1])\n"
    )
    code += "from interpreter_bot import cli; sys.argv[:2] = ['interpreter-bot']; cli.main()"
    command = [sys.executable, "-m", "tests.in_container", *options]
    command += [sys.executable, "-c", code, text, "--config", "/tmp/bot.toml", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.gate
@pytest.mark.parametrize("options", [[], ["--plain"]], ids=["root", "plain"])
def test_code_reaches_what_the_operator_lists_and_nothing_of_the_machine(config, options):
    done = run_in_container(config, "exec", "--cell", CELL, options=options, prelude=DATABASE)
    assert "4210" in done.stdout, done.stderr
    assert "Connection refused" in done.stdout


@pytest.mark.parametrize("options", [[], ["--plain"]], ids=["root", "plain"])
def test_programs_that_resolve_paths_find_their_files(config, options):
    done = run_in_container(config, "exec", "--cell", RESOLVED, options=options)
    assert "clean" in done.stdout, done.stderr
    assert "There is no network here" in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [[], ["--plain"]], ids=["root", "plain"])
def test_a_program_offers_its_tools(config, options):
    fakes = pathlib.Path(__file__).parents[1] / "fakes"
    config.write_text(SETTINGS.replace("/usr/local", str(fakes)))
    done = run_in_container(config, "tools", options=options)
    assert "environment" in done.stdout, done.stderr


def test_operator_learns_that_doors_work(config):
    done = run_in_container(config, "doctor", prelude=DATABASE)
    assert "level: container" in done.stdout + done.stderr
    rows = {line[:22].strip(): line for line in done.stdout.splitlines()}
    assert " yes " in rows["doors"]


CLOSE_PYTHON = """
import os, venv
os.mkdir("/tmp/closed", 0o700)
venv.create("/tmp/closed/environment", symlinks=True)
"""


@pytest.mark.gate
@pytest.mark.parametrize(
    "arguments", [("exec", "--cell", "1"), ("doctor",)], ids=["exec", "doctor"]
)
def test_no_code_runs_as_root_if_others_cannot_read_its_python(config, arguments):
    config.write_text('[kernels]\npython = "/tmp/closed/environment/bin/python"\n')
    done = run_in_container(config, *arguments, prelude=CLOSE_PYTHON)
    text = done.stdout + done.stderr
    assert "code would run as root, because /tmp/closed is closed to other users" in text
    assert "start the bot as a plain user" in text
    assert arguments[0] == "exec" or "chmod o+x" in text
