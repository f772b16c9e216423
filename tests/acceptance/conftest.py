"""Start commands as copies of one process."""

import subprocess

import pytest

from tests import command_copies
from tests.acceptance import leftover_hosts


@pytest.fixture(scope="session")
def _template():
    with command_copies.Template() as template:
        yield template


@pytest.fixture(autouse=True)
def _quick_commands(_template, monkeypatch):
    """Copy commands, except the first of each kind: see `tests/command_copies`."""

    def execute_child(popen, *arguments):
        _template.execute_child(popen, *arguments)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", execute_child)


@pytest.fixture(autouse=True)
def _no_leftover_hosts(request):
    runtime = (
        request.getfixturevalue("short_path") if "short_path" in request.fixturenames else None
    )
    yield
    if runtime is not None:
        leftover_hosts.end(runtime)
