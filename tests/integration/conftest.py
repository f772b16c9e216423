"""What tests of several layers share."""

import functools

import pytest

from interpreter_bot.kernels.provisioning import python_environments
from tests import forkserver_copies


@pytest.fixture(scope="session")
def _template():
    with forkserver_copies.Template(python_environments) as template:
        yield template


@pytest.fixture(scope="session")
def _inspect_environment():
    return functools.cache(python_environments.inspect_environment)


@pytest.fixture(autouse=True)
def _quick_starts(_template, _inspect_environment, monkeypatch):
    """Copy fork servers, and look at their Python once: see `tests/forkserver_copies`."""
    monkeypatch.setattr(python_environments, "spawn", _template.spawn)
    monkeypatch.setattr(python_environments, "inspect_environment", _inspect_environment)
