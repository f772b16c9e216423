"""Recognition of commands and imports for which packages are requested."""

import shutil
import time
import types

import pytest

from interpreter_bot.guest import package_requests


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("pip install -q x", ["-q", "x"]),
        ("pip3 install 'x>=1' y", ["x>=1", "y"]),
        ("/usr/bin/python3.11 -m pip install x>=0.3", ["x>=0.3"]),
        ("uv pip install x", ["x"]),
        ("conda install -y x", ["-y", "x"]),
        ("pip -q install x 2>/dev/null", ["x"]),
        ("pip install x > /dev/null 2>&1", ["x"]),
        ("pip install x >a >>b 2>&1|tail -n 5 2>&1", ["x"]),
        ("pip install x | grep -v y &>z", ["x"]),
        ("pip install x | tail -n 1", ["x"]),
    ],
)
def test_an_installation_is_recognised(command, arguments):
    assert package_requests.parse_install_command(command) == arguments


@pytest.mark.parametrize(
    "command",
    [
        *("pip list", "pip uninstall x", "uv venv", "ls", "", "echo pip install x", "python -m x"),
        *("pip install x && ls", "pip install x; ls", "pip install $(cat r)", "pip install 'x"),
        *("pip install x\nls", "pip install x | sh", "pip install x >y;ls"),
    ],
)
def test_other_commands_are_left_to_the_shell(command):
    assert package_requests.parse_install_command(command) is None


@pytest.mark.parametrize("piece", ["<li>a</li>", "| cat a ", "> a > ", "2>&1 "])
@pytest.mark.parametrize("characters", [3900, 1_000_000])
def test_no_command_takes_long(piece, characters):
    command = "echo " + (piece * characters)[:characters] + "; x"
    began = time.thread_time()
    assert package_requests.parse_install_command(command) is None
    assert time.thread_time() - began < 1.5


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError(name="msvcrt.x"),
        ModuleNotFoundError(name="pytest.x"),
        ModuleNotFoundError(name="x\n%run y"),
        ModuleNotFoundError("no name"),
        ImportError(name="x"),
    ],
)
def test_modules_that_no_package_has_are_not_requested(error):
    # Without a kernel, a request would fail.
    assert package_requests.install_for_import(None, error) == ("", True)


def test_names_of_modules_in_the_workspace_are_not_requested(tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "lib").mkdir(parents=True)
    (home / "lib/mine.py").touch()
    elsewhere.mkdir()
    (elsewhere / "other.py").touch()
    # This kernel cannot send requests.
    kernel = types.SimpleNamespace(home=str(home))
    monkeypatch.chdir(elsewhere)
    for name in ("mine", "other"):
        answer = package_requests.install_for_import(kernel, ModuleNotFoundError(name=name))
        assert answer == ("", True)
    shutil.rmtree(elsewhere)
    mine = ModuleNotFoundError(name="mine")
    assert package_requests.install_for_import(kernel, mine) == ("", True)
