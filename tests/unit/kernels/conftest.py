"""Real processes that stand for a session."""

import os
import signal
import subprocess
import sys

import pytest

from interpreter_bot.kernels.metering import session_metering

START = "import ctypes, mmap, os, sys, threading, time\nMIB = 1 << 20\n"
READY = "\nprint('ready', flush=True)\ntime.sleep(60)\n"


@pytest.fixture
def session():
    """Start code that stands for a session; it is counted once it says it is ready."""
    started = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START + code + READY],
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        found = session_metering.SessionProcesses(process.pid)
        found.process = process
        return found

    yield start
    for process in started:
        # By its group, which is of our making and ours until we wait for its leader. Never by
        # what the code under test lists: should it list too much, the machine would pay.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
