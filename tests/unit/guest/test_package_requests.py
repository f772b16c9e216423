"""Commands that install packages, told from others."""

import shutil
import types

import pytest

from interpreter_bot.guest import package_requests


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("pip install -q x", ["-q", "x"]),
        ("pip3 install 'x>=1' y", ["x>=1", "y"]),
        ("/usr/bin/python3.11 -m pip install x>=0.3", ["x>=0.3"]),
        ("uv pip install x", ["x"]),
        ("conda install -y x", ["-y", "x"]),
        ("pip -q install x 2>/dev/null", ["x"]),
        ("pip install x > /dev/null 2>&1", ["x"]),
        ("pip install x | tail -n 1", ["x"]),
    ],
)
def test_an_installation_is_recognised(command, wanted):
    assert package_requests.parse_install_command(command) == wanted


@pytest.mark.parametrize(
    "command",
    [
        *("pip list", "pip uninstall x", "uv venv", "ls", "", "echo pip install x", "python -m x"),
        *("pip install x && ls", "pip install x; ls", "pip install $(cat r)", "pip install 'x"),
        *("pip install x\nls", "pip install x | sh"),
    ],
)
def test_what_does_more_is_left_to_the_shell(command):
    assert package_requests.parse_install_command(command) is None


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
def test_nobody_is_asked_about_what_no_package_would_bring(error):
    # Without a kernel, to ask would fail.
    assert package_requests.install_for_import(None, error) == ("", True)


def test_no_index_hears_of_a_module_in_the_workspace_wherever_code_has_gone(tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "lib").mkdir(parents=True)
    (home / "lib/mine.py").touch()
    elsewhere.mkdir()
    (elsewhere / "other.py").touch()
    # It cannot ask.
    kernel = types.SimpleNamespace(home=str(home))
    monkeypatch.chdir(elsewhere)
    for name in ("mine", "other"):
        told = package_requests.install_for_import(kernel, ModuleNotFoundError(name=name))
        assert told == ("", True)
    shutil.rmtree(elsewhere)
    mine = ModuleNotFoundError(name="mine")
    assert package_requests.install_for_import(kernel, mine) == ("", True)
