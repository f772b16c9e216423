"""A wheel in a virtual environment of its own, apart from any checkout."""

import json
import os
import pathlib
import re
import subprocess
import sys
import venv

import pytest

from interpreter_bot.kernels.libraries import kernel_environment

ROOT = pathlib.Path(__file__).parents[2]
CELL = "import sys, pandas; print(sys.prefix)"

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]


@pytest.fixture
def offline(tmp_path):
    """Run a command; uv gets what `make setup` has left in its cache."""
    variables = os.environ | {
        "UV_OFFLINE": "1",
        "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
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


@pytest.fixture
def prefix(tmp_path, offline):
    """The prefix of a bot that was installed as a wheel."""
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
    state = prefix / "kernels" / kernel_environment.STATE
    added = offline(bot, "libraries", "media")
    assert added.returncode == 0, added.stderr
    assert json.loads(state.read_text())["groups"] == ["core", "media"]
    assert not made.exists()
    assert "Installing" not in offline(*command).stderr
