"""The process that serves the embedded model."""

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
_MAX_LOG_LINES: Final = 20
_MAX_LINE_BYTES: Final = 64 * 1024
# Enough to read a gigabyte from a slow disk.
_START_TIMEOUT_SECONDS: Final = 300.0


class ServerProcess:
    """One server process. Use `start`.

    Attributes:
        address: the server's address and key.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.address = retries.ServerAddress("", secrets.token_urlsafe(32))
        self._process = process
        self._last_lines: collections.deque[str] = collections.deque(maxlen=_MAX_LOG_LINES)
        self._log_reader = asyncio.create_task(self._read_log(), name="demo model's log")

    @classmethod
    async def start(
        cls,
        model_path: pathlib.Path,
        *,
        alias: str,
        context_tokens: int,
        script: pathlib.Path | None = None,
        timeout_seconds: float = _START_TIMEOUT_SECONDS,
    ) -> ServerProcess:
        """Start the process, and return once it answers requests.

        Args:
            model_path: the GGUF file.
            alias: the model's name on the server.
            context_tokens: the limit of prompt and answer together.
            script: the program of the process; `server_main` if None.
            timeout_seconds: the limit of the start.

        Raises:
            NoLocalModelError: the server did not start; the sentence says why.
        """
        server = cls(await _spawn(script or _SCRIPT))
        configuration = {
            "model": str(model_path),
            "alias": alias,
            "context_tokens": context_tokens,
        }
        try:
            await server._configure(configuration, timeout_seconds)
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def close(self) -> None:
        """Kill the process, which has nothing to save."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._process.stdin:
            self._process.stdin.close()
        await self._process.wait()
        await self._log_reader

    async def _configure(self, configuration: dict[str, Any], timeout_seconds: float) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("both are pipes")
        # Through a pipe, because other processes can read command lines and environments.
        request_line = json.dumps({**configuration, "key": self.address.api_key})
        stdin.write(request_line.encode() + b"\n")
        try:
            async with asyncio.timeout(timeout_seconds):
                answer_line = await stdout.readline()
        except TimeoutError as error:
            raise model_files.NoLocalModelError(model_words.DEMO_SLOW) from error
        base_url = self._read_address(answer_line)
        if not base_url:
            raise model_files.NoLocalModelError(await self._describe_failure())
        self.address = retries.ServerAddress(f"{base_url}/v1", self.address.api_key)

    def _read_address(self, line: bytes) -> str:
        if not line:
            return ""
        message = json.loads(line)
        if "error" in message:
            self._last_lines.append(str(message["error"]))
        return str(message.get("address", ""))

    async def _describe_failure(self) -> str:
        """Log why the server did not start, and return a sentence for people."""
        await self._process.wait()
        await asyncio.wait({self._log_reader})
        status = self._process.returncode
        _log.error("the demo model did not start (%s): %s", status, " | ".join(self._last_lines))
        sentences_by_status = {
            -signal.SIGILL: model_words.DEMO_NEEDS_AVX2,
            -signal.SIGKILL: model_words.DEMO_NEEDS_MEMORY,
        }
        return sentences_by_status.get(status or 0, model_words.DEMO_NOT_STARTED)

    async def _read_log(self) -> None:
        """Keep the last lines of standard error, to log them if the start fails."""
        stderr = self._process.stderr
        if stderr is None:
            raise AssertionError("it is a pipe")
        partial_line = b""
        while data := await stderr.read(_MAX_LINE_BYTES):
            *lines, partial_line = (partial_line + data).split(b"\n")
            partial_line = partial_line[-_MAX_LINE_BYTES:]
            for line in lines:
                text = line.decode("utf-8", "replace")
                self._last_lines.append(text)
                _log.debug("demo model: %s", text)


async def _spawn(script: pathlib.Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # The bot's environment has secrets, so nothing of it is passed on.
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        cwd="/",
        # In its own process session, so that Ctrl-C in a terminal reaches only the bot, which
        # closes this process itself.
        start_new_session=True,
    )
