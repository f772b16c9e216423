"""What every test may rely on."""

import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch):
    """The settings of whoever runs the tests decide nothing."""
    for name in os.environ:
        if name.startswith("INTERPRETER_BOT_"):
            monkeypatch.delenv(name)
    # Whoever has no model gets one by a download, which no test is to begin.
    monkeypatch.setenv("INTERPRETER_BOT_LOCAL__ENABLED", "false")


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory whose path leaves room for sockets, which end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        yield pathlib.Path(directory)
