"""The libraries of code: made beside those in use, and not at the cost of what works.

In place of uv there is a program that lends the libraries of this checkout, as there is no network.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import time
import venv

import pytest

from interpreter_bot.kernels.libraries import kernel_environment
from tests import machine

ROOT = pathlib.Path(__file__).parents[2]
CELL = "import sys; print(sys.prefix)"
UV = """#!/bin/sh
echo begin >>{place}/calls
sleep "$(cat {place}/seconds 2>/dev/null || echo 0)"
echo end >>{place}/calls
[ ! -e {place}/unreachable ] || {{ echo "error: no route to the index" >&2; exit 1; }}
while [ "$1" != --python ]; do shift; done
echo "{lent}
import sys; sys.modules['polars'] = None" >"$(dirname "$2")/../lib/{version}/site-packages/lent.pth"
"""

pytestmark = pytest.mark.kernel


class Bot:
    """A bot in an environment of its own."""

    def __init__(self, place):
        self.place = place
        self.prefix = place / "bot"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        venv.create(self.prefix)
        packages = self.prefix / "lib" / version / "site-packages"
        packages.joinpath("lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
        kernels = pathlib.Path(sys.prefix, "kernels").resolve()
        lent = kernels / "lib" / version / "site-packages"
        uv = self.prefix / "bin" / "uv"
        uv.write_text(UV.format(place=place, lent=lent, version=version))
        uv.chmod(0o755)

    def command(self, *options):
        return [self.prefix / "bin" / "python", "-m", "interpreter_bot", *options]

    @property
    def environment(self):
        paths = {"DATA": self.place / "data", "RUNTIME": self.place / "runtime"}
        return os.environ | {f"INTERPRETER_BOT_PATHS__{name}": str(paths[name]) for name in paths}

    def start(self, *command):
        return subprocess.Popen(
            self.command(*command),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command):
        process = self.start(*command)
        said, warned = process.communicate(timeout=60)
        return process.returncode, said, warned

    def used(self):
        """Return the environment that code has now."""
        status, said, warned = self.run("exec", "--cell", CELL)
        assert status == 0, warned
        return pathlib.Path(said.strip()), warned

    def calls(self):
        return (self.place / "calls").read_text().split()

    def grow_old(self):
        """Make the environment what another release would have left; return it."""
        link = self.prefix / "kernels"
        old = self.prefix / "kernels-0123456789ab"
        link.resolve().rename(old)
        link.unlink()
        link.symlink_to(old.name)
        state = json.loads((old / kernel_environment.STATE_FILE_NAME).read_text())
        (old / kernel_environment.STATE_FILE_NAME).write_text(
            json.dumps(state | {"locks": "of another"})
        )
        return old


@pytest.fixture
def bot(short_path):
    return Bot(short_path)


def test_a_kernel_that_runs_keeps_the_libraries_it_began_with(bot):
    first, warned = bot.used()
    assert "Installing" in warned
    running = bot.start("exec", "--cell", f"{CELL[:-1]}, flush=True); import time; time.sleep(600)")
    assert running.stdout.readline() == f"{first}\n"
    assert bot.run("libraries", "media")[0] == 0
    second, warned = bot.used()
    assert second != first
    assert "Installing" not in warned
    assert first.exists()
    running.terminate()
    running.communicate(timeout=60)
    assert bot.used() == (second, "")
    assert not first.exists()
    assert second == (bot.prefix / "kernels").resolve()


def test_libraries_that_cannot_be_installed_leave_the_former_ones_in_use(bot):
    bot.used()
    old = bot.grow_old()
    (bot.place / "unreachable").touch()
    for calls in (4, 4):
        status, said, warned = bot.run("--verbose", "exec", "--cell", CELL)
        assert (status, said) == (0, f"{old}\n")
        assert "could not be installed: error: no route to the index. Try" in warned
        assert "Until then, code runs with the former ones." in warned
        # Not at once again.
        assert len(bot.calls()) == calls
    _, said, _ = bot.run("doctor", "--json")
    (row,) = (row for row in json.loads(said)["findings"] if row["name"] == "libraries for code")
    assert not row["active"]
    assert "no route to the index" in row["detail"]
    assert bot.run("libraries")[0] == 2
    (bot.place / "unreachable").unlink()
    assert bot.run("libraries")[0] == 0
    used, warned = bot.used()
    assert (used == old, warned) == (False, "")
    assert not old.exists()


def test_what_a_killed_bot_left_behind_is_waited_for_and_made_anew(bot):
    (bot.place / "seconds").write_text("3")
    killed = bot.start("libraries")
    while not (bot.place / "calls").exists():
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    used, _ = bot.used()
    assert bot.calls() == ["begin", "end", "begin", "end"]
    assert [path for path in bot.prefix.glob("kernels-*") if path.is_dir()] == [used]


def test_a_directory_of_the_operator_stays_beside_the_environments(bot):
    used, _ = bot.used()
    of_operator = bot.prefix / "kernels-mine"
    of_operator.mkdir()
    assert bot.used() == (used, "")
    directories = {path for path in bot.prefix.glob("kernels-*") if path.is_dir()}
    assert directories == {used, of_operator}


def wait_until_compiled(environment):
    for _ in range(600):
        if (environment / ".compiled").exists() and (environment / ".compiled").read_text():
            return
        time.sleep(0.05)


def add_module(bot):
    """Add a module to compiled libraries, as if the work had been ended before it came to that."""
    environment, _ = bot.used()
    wait_until_compiled(environment)
    (packages,) = environment.glob("lib/*/site-packages")
    packages.joinpath("added.py").write_text("")
    return environment, packages / "__pycache__"


@pytest.mark.parametrize("has_mark", [False, True])
def test_modules_are_compiled_by_the_next_start_if_the_first_was_ended(bot, has_mark):
    environment, compiled = add_module(bot)
    (environment / ".compiled").unlink()
    if has_mark:
        (environment / ".compiled").touch()
    assert bot.used() == (environment, "")
    wait_until_compiled(environment)
    assert list(compiled.glob("added.*.pyc"))


def test_the_list_of_fonts_is_made_once_and_anew_by_the_command(bot):
    environment, _ = bot.used()
    wait_until_compiled(environment)
    (fonts,) = environment.glob("share/matplotlib/fontlist-*.json")
    fonts.write_text(fonts.read_text().replace('"DejaVu Sans Mono"', '"Of the List"'))
    cell = "from matplotlib import font_manager as f; print('Of the List' in f.get_font_names())"
    assert bot.run("exec", "--cell", cell)[:2] == (0, "True\n")
    assert bot.run("libraries")[0] == 0
    assert "Of the List" not in fonts.read_text()


def test_modules_are_compiled_where_nobody_may_make_semaphores(bot):
    if os.geteuid() or not machine.offers_namespaces():
        pytest.skip("only root of a machine with namespaces can take /dev/shm away")
    environment, compiled = add_module(bot)
    (environment / ".compiled").unlink()
    hide = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", *bot.command("libraries")],
        env=bot.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(compiled.glob("added.*.pyc"))


def test_a_module_of_a_group_that_is_not_installed_is_told(bot):
    status, said, warned = bot.run("exec", "--cell", "import polars.selectors")
    assert status == 1
    warned += said
    assert "polars is in the group 'full' of libraries, which is not installed here." in warned
    assert "`interpreter-bot libraries full`" in warned
    # Not those that are in no group.
    _, said, warned = bot.run("exec", "--cell", "import nothing_such")
    assert "group" not in said + warned
    assert bot.run("libraries", "full")[0] == 0
    _, said, warned = bot.run("exec", "--cell", "import polars")
    assert "ModuleNotFoundError" in said + warned
    assert "group" not in said + warned
