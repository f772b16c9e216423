"""The process that serves the embedded model: start, watch, close."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import os
import pathlib
import secrets
import signal
import sys
from typing import Any, Final

from interpreter_bot.agent.llms import retries
from interpreter_bot.agent.llms.embedded import model_files
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

_SCRIPT: Final = pathlib.Path(__file__).with_name("server_main.py")
_MAX_LINES: Final = 20
_MAX_LINE_BYTES: Final = 64 * 1024
# Reading a gigabyte from a slow disk.
_START_SECONDS: Final = 300.0


class ServerProcess:
    """One server process. Use `start`.

    Attributes:
        address: where it answers.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.address = retries.ServerAddress("", secrets.token_urlsafe(32))
        self._process = process
        self._lines: collections.deque[str] = collections.deque(maxlen=_MAX_LINES)
        self._log_reader = asyncio.create_task(self._read_log(), name="demo model's log")

    @classmethod
    async def start(
        cls,
        model: pathlib.Path,
        *,
        alias: str,
        context_tokens: int,
        script: pathlib.Path | None = None,
        seconds: float = _START_SECONDS,
    ) -> ServerProcess:
        """Start the process, and return once it answers.

        Args:
            model: the GGUF file.
            alias: the model's name on the server.
            context_tokens: how much the model can read and write together.
            script: what runs in the process; `server_main` if none is given.
            seconds: how long it may take.

        Raises:
            NoLocalModelError: it did not start; the sentence says why.
        """
        engine = cls(await _spawn(script or _SCRIPT))
        order = {
            "model": str(model),
            "alias": alias,
            "context_tokens": context_tokens,
        }
        try:
            await engine._begin(order, seconds)
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def close(self) -> None:
        """Kill the process. It has nothing to save."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin:
            self._process.stdin.close()
        await self._process.wait()
        await self._log_reader

    async def _begin(self, order: dict[str, Any], seconds: float) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("both are pipes")
        # On a pipe: command lines and environments can be read by other users.
        line = json.dumps({**order, "key": self.address.api_key})
        stdin.write(line.encode() + b"\n")
        try:
            async with asyncio.timeout(seconds):
                answer = await stdout.readline()
        except TimeoutError as error:
            raise model_files.NoLocalModelError(model_words.DEMO_SLOW) from error
        base_url = self._read_address(answer)
        if not base_url:
            raise model_files.NoLocalModelError(await self._failure_sentence())
        self.address = retries.ServerAddress(f"{base_url}/v1", self.address.api_key)

    def _read_address(self, line: bytes) -> str:
        if not line:
            return ""
        message = json.loads(line)
        if "error" in message:
            self._lines.append(str(message["error"]))
        return str(message.get("address", ""))

    async def _failure_sentence(self) -> str:
        """Log why it did not start, and return it as a sentence."""
        await self._process.wait()
        await asyncio.wait({self._log_reader})
        status = self._process.returncode
        _log.error("the demo model did not start (%s): %s", status, " | ".join(self._lines))
        reasons = {
            -signal.SIGILL: model_words.DEMO_NEEDS_AVX2,
            -signal.SIGKILL: model_words.DEMO_NEEDS_MEMORY,
        }
        return reasons.get(status or 0, model_words.DEMO_NOT_STARTED)

    async def _read_log(self) -> None:
        """Keep the last lines of its standard error, in case it dies."""
        stderr = self._process.stderr
        if stderr is None:
            raise AssertionError("it is a pipe")
        rest = b""
        while data := await stderr.read(_MAX_LINE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-_MAX_LINE_BYTES:]
            for line in lines:
                text = line.decode("utf-8", "replace")
                self._lines.append(text)
                _log.debug("demo model: %s", text)


async def _spawn(script: pathlib.Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Nothing of the bot's environment, least of all a token.
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        cwd="/",
        # In a session of its own: an interrupt at the terminal is for the bot, which closes this
        # process when it is time.
        start_new_session=True,
    )
