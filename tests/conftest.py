"""Fixtures of all suites, and the choice of the tests that are slow."""

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

_BROWSER_FIXTURES = {"browsing", "browsing_as_people"}
_TESTS = pathlib.Path(__file__).parent

# pytest-asyncio asks for the current event loop, which creates one if none was ever set. Nobody
# closes that loop, and the test that runs when it is garbage-collected would fail.
asyncio.set_event_loop(None)

# A shell's background job ignores SIGINT, and the commands of tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Collection imports many modules, none of them garbage; `pytest_collection_finish` ends this.
gc.disable()

if os.environ.get(unprivileged.SUBORDINATE_IDS_VARIABLE):
    # Before anything else, as the command line does: later there are threads.
    assert subordinate_ids.enter(settings.Sandbox()), "no ids were granted"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow the tests that `make test` leaves to `make test-all`.

    In `acceptance`, and of the tests with a browser, those without the mark `gate` are slow. Later
    cases of a parametrized test are slow in `acceptance`, in `attacks` (unless its cases share a
    session, by `attempt`), and with the mark `first_case`; the mark `every_case` keeps all cases.
    """
    seen_tests = set()
    for item in items:
        suite = item.path.relative_to(_TESTS).parts[0]
        test = item.path, item.originalname
        is_later_case = test in seen_tests and not item.get_closest_marker("every_case")
        seen_tests.add(test)
        runs_first_case_only = suite == "acceptance" or (
            suite == "attacks" and "attempt" not in item.fixturenames
        )
        needs_gate_mark = suite == "acceptance" or not _BROWSER_FIXTURES.isdisjoint(
            item.fixturenames
        )
        lacks_gate_mark = needs_gate_mark and not item.get_closest_marker("gate")
        skips_later_cases = runs_first_case_only or item.get_closest_marker("first_case")
        if lacks_gate_mark or (skips_later_cases and is_later_case):
            item.add_marker("slow")


def pytest_collection_finish():
    """Enable the garbage collector again, but not for the modules and tests collected so far."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip tests that this machine cannot run; one shared message keeps the summary short."""
    if item.get_closest_marker("namespaces") and not machine.offers_namespaces():
        pytest.skip("namespaces or mounts are refused here, as in a container without flags")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch):
    """Remove the settings of the person who runs the tests."""
    for name in os.environ:
        if name.startswith("INTERPRETER_BOT_"):
            monkeypatch.delenv(name)
    # Without a configured model the bot would download one.
    monkeypatch.setenv("INTERPRETER_BOT_LOCAL__ENABLED", "false")
    # Saving variables takes 0.1 s at the end of each bot; tests of snapshots enable it.
    monkeypatch.setenv("INTERPRETER_BOT_SNAPSHOTS__BYTES", "0")


@pytest.fixture
def tmp_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory that sessions can reach by its path, see `machine.open_to_sessions`."""
    machine.open_to_sessions(tmp_path, *list(tmp_path.parents)[:2])
    return tmp_path


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory whose path leaves room for sockets."""
    with machine.short_directory() as directory:
        yield directory


@pytest.fixture
def unified_group() -> Iterator[str]:
    """A real cgroup of version 2, without controllers: version 1 may have taken those."""
    unified, _ = cgroups.own_cgroups(pathlib.Path("/proc/self"))
    try:
        group = tempfile.mkdtemp(prefix="test-", dir=unified or "/nowhere")
    except OSError:
        pytest.skip("no control group of version 2 can be made here")
    yield group
    cgroups.kill(group, pids_directory=group)
    cgroups.remove(group)


def _run_chromium(path: str | None) -> Iterator[browsers.Chromium]:
    if path is None:
        pytest.skip("Chromium is not installed here: Debian's package chromium")
    with browsers.Chromium(path) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def _chromium():
    yield from _run_chromium(browsers.find_chromium(is_peoples=False))


@pytest.fixture(scope="session")
def _peoples_chromium():
    yield from _run_chromium(browsers.find_chromium())


@pytest.fixture
def browsing(_chromium):
    """Open a browser: `async with browsing() as browser`."""
    return functools.partial(browsers.Browser.open, _chromium.address())


@pytest.fixture
def browsing_as_people(_peoples_chromium):
    """Open a full browser: the headless shell lacks some of its protections for pages."""
    return functools.partial(browsers.Browser.open, _peoples_chromium.address())
