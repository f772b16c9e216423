"""What every test may rely on."""

import functools
import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from tests import browsers


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


@pytest.fixture(scope="session")
def _chromium():
    if browsers.found() is None:
        pytest.skip("Chromium is not installed here: Debian's package chromium")
    with browsers.Chromium() as chromium:
        yield chromium


@pytest.fixture
def browsing(_chromium):
    """Open a browser: `async with browsing() as browser`."""
    return functools.partial(browsers.Browser.open, _chromium.address())
