"""`interpreter-bot setup`, at a terminal: what is entered is tried, then stored."""

import asyncio
import contextlib
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys

import pytest

from interpreter_bot import settings, stored_credentials
from tests.fakes import openai_server

KEY = "test-key-0123456789"


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, data):
        self._ours, theirs = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(data), "TERM": "dumb"}
        self.process = subprocess.Popen(
            # With an option, so that it is no copy: that would have another terminal.
            [sys.executable, "-P", "-m", "interpreter_bot", "setup"],
            env=environment | {"INTERPRETER_BOT_PATHS__DATA": str(data / "data")},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    async def until(self, words):
        """Read until some words are printed; return what comes before them."""
        async with asyncio.timeout(60):
            while words not in self.text:
                # In steps: a thread that waits for ever would keep the test from ending.
                ready = await asyncio.to_thread(select.select, [self._ours], [], [], 1.0)
                if ready[0]:
                    # The end of the command is an error of its terminal.
                    self.text += os.read(self._ours, 65536).decode()
        before, _, self.text = self.text.partition(words)
        return before

    async def enter(self, prompt, *lines):
        """Answer prompts."""
        await self.until(prompt)
        for line in lines:
            os.write(self._ours, line.encode() + b"\n")

    async def interrupt(self):
        """Interrupt the command until it ends; returns its status.

        More than once, as a person would: Python misses a signal that comes just before it reads.
        """
        async with asyncio.timeout(60):
            while self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                await asyncio.sleep(0.5)
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(tmp_path):
    with contextlib.closing(Terminal(tmp_path)) as opened:
        yield opened


def stored(tmp_path):
    config = settings.Settings(paths=settings.Paths(data=tmp_path / "data"))
    return stored_credentials.StoredCredentials(config).load()


async def test_a_model_that_works_is_stored_and_nothing_else(terminal, tmp_path):
    async with openai_server.Server(lambda _: openai_server.text("OK"), api_key=KEY) as server:
        await terminal.enter("Key (not shown): ", "OPENAI_API_KEY=sk-1")
        await terminal.enter("Address", "")
        await terminal.until("give the key alone")
        await terminal.enter("Key (not shown): ", "wrong-key-0123456789")
        await terminal.enter("Address", server.base_url)
        await terminal.until("Try again.")
        await terminal.enter("Key (not shown): ", KEY)
        await terminal.enter("Address", server.base_url)
        await terminal.until("It works (scripted). Stored, encrypted.")
        assert len(server.requests) == 1
        await terminal.enter("xoxb-", "two words")
        await terminal.until("has a space in it")
        await terminal.enter("xoxb-", "xapp-1-of-the-app")
        await terminal.until("has to begin with xoxb-")
        await terminal.enter("xoxb-", "")
        await terminal.enter("Bot token", "")
        await terminal.until("Done.")
        assert await asyncio.to_thread(terminal.process.wait, 60) == 0
    assert stored(tmp_path) == {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
    assert KEY not in (tmp_path / "data/credentials").read_text()


async def test_an_interrupt_leaves_what_was_there(terminal, tmp_path):
    config = settings.Settings(paths=settings.Paths(data=tmp_path / "data"))
    stored_credentials.StoredCredentials(config).save({"OPENAI_API_KEY": "sk-before"})
    await terminal.enter("Key (not shown): ", "sk-after-0123456789")
    await terminal.until("Address")
    assert await terminal.interrupt() != 0
    assert stored(tmp_path) == {"OPENAI_API_KEY": "sk-before"}


async def test_nothing_entered_is_said_and_the_manifest_named(terminal, tmp_path):
    await terminal.enter("Key (not shown): ", "")
    await terminal.enter("Address", "")
    await terminal.until("From a manifest, and paste the text of\r\n")
    manifest = pathlib.Path(await terminal.until(".\r\n"))
    assert "display_information:" in await asyncio.to_thread(manifest.read_text)
    await terminal.enter("xoxb-", "")
    await terminal.enter("Bot token", "")
    await terminal.until("Nothing was entered, so nothing has changed.")
    assert stored(tmp_path) == {}


def test_without_a_terminal_it_says_what_else_to_do(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "interpreter_bot", "setup"],
        env=os.environ | {"INTERPRETER_BOT_PATHS__DATA": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    assert "Traceback" not in done.stderr
