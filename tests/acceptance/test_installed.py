"""A wheel in a virtual environment of its own, apart from any checkout."""

import os
import pathlib
import re
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CELL = "import sys, pandas; print(sys.prefix)"

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]


@pytest.fixture
def offline(tmp_path):
    """Run a command; uv gets what `make setup` has left in its cache."""
    variables = os.environ | {
        "UV_OFFLINE": "1",
        "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
    }

    def run(*command):
        done = subprocess.run(
            [*map(str, command)],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if "Network connectivity is disabled" in done.stderr:
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


def test_a_wheel_makes_the_kernels_environment_at_its_first_start(prefix, offline):
    command = (prefix / "bin" / "interpreter-bot", "exec", "--cell", CELL)
    first = offline(*command)
    assert first.stdout == f"{prefix}/kernels\n", first.stderr
    assert "Installing" in first.stderr
    second = offline(*command)
    assert second.stdout == first.stdout
    assert "Installing" not in second.stderr
