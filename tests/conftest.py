"""What every test may rely on."""

import asyncio
import functools
import gc
import os
import pathlib
import signal
import tempfile
from collections.abc import Iterator

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import cgroups, subordinate_ids
from tests import browsers, machine, unprivileged

_BROWSERS = {"browsing", "browsing_as_people"}
_TESTS = pathlib.Path(__file__).parent

# pytest-asyncio looks for the loop that is set, which makes one where none ever was. Nobody closes
# that, and whichever test runs when it is collected would fail for it.
asyncio.set_event_loop(None)

# A job that a shell put into the background ignores it, and so would every command of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported from here on is no garbage, and there is much of it to look through: see below.
gc.disable()

if os.environ.get(unprivileged.GRANTED):
    # As the command line does first of all: later there are threads.
    assert subordinate_ids.enter(settings.Sandbox()), "no ids were granted"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow what `make test` leaves to `make test-all`, beside what has that mark.

    Of `acceptance`, and of what opens a browser, it runs what has the mark `gate`. Of what has
    several cases it runs the first where the mark `first_case` says so, in `acceptance`, and in
    `attacks` but for those that are tried in a session of all; `every_case` keeps them all.
    """
    begun = set()
    for item in items:
        suite = item.path.relative_to(_TESTS).parts[0]
        test = item.path, item.originalname
        is_further = test in begun and not item.get_closest_marker("every_case")
        begun.add(test)
        is_costly = suite == "acceptance" or (
            suite == "attacks" and "attempt" not in item.fixturenames
        )
        is_chosen = suite == "acceptance" or not _BROWSERS.isdisjoint(item.fixturenames)
        is_left_out = is_chosen and not item.get_closest_marker("gate")
        has_one = is_costly or item.get_closest_marker("first_case")
        if is_left_out or (has_one and is_further):
            item.add_marker("slow")


def pytest_collection_finish():
    """Look for garbage again, but not among all the modules and tests that are there now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what this machine does not offer; the summary has one line for all of it."""
    if item.get_closest_marker("namespaces") and not machine.offers_namespaces():
        pytest.skip("namespaces or mounts are refused here, as in a container without flags")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch):
    """The settings of whoever runs the tests decide nothing."""
    for name in os.environ:
        if name.startswith("INTERPRETER_BOT_"):
            monkeypatch.delenv(name)
    # Whoever has no model gets one by a download, which no test is to begin.
    monkeypatch.setenv("INTERPRETER_BOT_LOCAL__ENABLED", "false")
    # Saving variables takes a tenth of a second at the end of each bot; tests of it ask for it.
    monkeypatch.setenv("INTERPRETER_BOT_SNAPSHOTS__ENABLED", "false")


@pytest.fixture
def tmp_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory that sessions can walk to, whose user ids reach by paths what is not mounted."""
    machine.open_to_sessions(tmp_path, *list(tmp_path.parents)[:2])
    return tmp_path


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory whose path leaves room for sockets."""
    with machine.short_directory() as directory:
        yield directory


@pytest.fixture
def unified_group() -> Iterator[str]:
    """A real cgroup of version 2, without controllers: those may be bound to version 1 here."""
    unified, _ = cgroups.own_cgroups(pathlib.Path("/proc/self"))
    try:
        place = tempfile.mkdtemp(prefix="test-", dir=unified or "/nowhere")
    except OSError:
        pytest.skip("no control group of version 2 can be made here")
    yield place
    cgroups.kill(place, pids_directory=place)
    cgroups.remove(place)


def _started(path: str | None) -> Iterator[browsers.Chromium]:
    if path is None:
        pytest.skip("Chromium is not installed here: Debian's package chromium")
    with browsers.Chromium(path) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def _chromium():
    yield from _started(browsers.found(is_peoples=False))


@pytest.fixture(scope="session")
def _peoples_chromium():
    yield from _started(browsers.found())


@pytest.fixture
def browsing(_chromium):
    """Open a browser: `async with browsing() as browser`."""
    return functools.partial(browsers.Browser.open, _chromium.address())


@pytest.fixture
def browsing_as_people(_peoples_chromium):
    """Open one that keeps all walls of pages: the shell has never heard of some."""
    return functools.partial(browsers.Browser.open, _peoples_chromium.address())
