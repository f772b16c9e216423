"""Run a command at a terminal: read its output, and answer its prompts."""

import asyncio
import os
import pty
import select
import signal
import subprocess


class Terminal:
    """A command at a terminal of its own, with its files in a directory."""

    def __init__(self, directory, *command, **variables):
        self._master, slave = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "dumb"}
        self.process = subprocess.Popen(
            [*map(str, command)],
            env=environment | {"INTERPRETER_BOT_PATHS__DATA": str(directory / "data"), **variables},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.text = ""

    async def until(self, text):
        """Read until some text is printed; return the output before it."""
        async with asyncio.timeout(60):
            while text not in self.text:
                # In steps: a thread that waits for ever would keep the test from ending.
                ready = await asyncio.to_thread(select.select, [self._master], [], [], 1.0)
                if ready[0]:
                    # The end of the command is an error of its terminal.
                    self.text += os.read(self._master, 65536).decode()
        before, _, self.text = self.text.partition(text)
        return before

    async def enter(self, prompt, *lines):
        """Wait for a prompt, then enter lines."""
        await self.until(prompt)
        for line in lines:
            os.write(self._master, line.encode() + b"\n")

    async def interrupt(self):
        """Interrupt the command until it ends; returns its status.

        Python misses a signal that comes just before it reads, so the signal is repeated.
        """
        async with asyncio.timeout(60):
            while self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                await asyncio.sleep(0.5)
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._master)
