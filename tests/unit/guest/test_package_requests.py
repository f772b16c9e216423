"""Commands that install packages, told from others."""

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
    assert package_requests.arguments(command) == wanted


@pytest.mark.parametrize(
    "command",
    [
        *("pip list", "pip uninstall x", "uv venv", "ls", "", "echo pip install x", "python -m x"),
        *("pip install x && ls", "pip install x; ls", "pip install $(cat r)", "pip install 'x"),
        *("pip install x\nls", "pip install x | sh"),
    ],
)
def test_what_does_more_is_left_to_the_shell(command):
    assert package_requests.arguments(command) is None


def test_a_missing_module_is_offered_and_a_module_of_python_is_not():
    (line,) = package_requests.offer(ModuleNotFoundError(name="bs4.element"))
    assert line.endswith("%pip install beautifulsoup4")
    assert package_requests.offer(ModuleNotFoundError(name="msvcrt.x")) == []
    assert package_requests.offer(ModuleNotFoundError(name="x\n%run y")) == []
    assert package_requests.offer(ImportError(name="x")) == []
