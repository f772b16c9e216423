"""Copies of fork servers: what happens to tests where none can be made."""

import socket
import subprocess

import pytest

from interpreter_bot import settings
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.provisioning import python_environments
from tests import forkserver_copies


def test_no_copy_is_an_error_and_no_pid(monkeypatch):
    monkeypatch.setattr(forkserver_copies, "_NR_CLONE", 1 << 20)
    with pytest.raises(OSError, match="cannot be copied"):
        forkserver_copies.fork_for_parent()


@pytest.mark.slow
def test_who_gets_no_copy_starts_the_real_thing(monkeypatch):
    # Not that of the other tests, whose process is not to be killed.
    monkeypatch.undo()
    environment = python_environments.inspect_environment(
        kernel_environment.python(settings.Settings())
    )

    def started(template):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            process = template.spawn(environment, theirs.fileno(), cores=1)
        # Nobody asks it for anything any more.
        process.wait(60)
        return process

    with forkserver_copies.Template(python_environments) as template:
        assert type(started(template)) is not subprocess.Popen
        template.kill()
        assert type(started(template)) is subprocess.Popen
        # The next one is a copy again.
        assert type(started(template)) is not subprocess.Popen
