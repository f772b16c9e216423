"""The embedded model: finds or downloads its file, and starts its server on demand."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import pathlib
import time
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

from interpreter_bot import settings
from interpreter_bot.agent.llms import retries
from interpreter_bot.agent.llms.embedded import model_files, server_process
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

_LIBRARY: Final = "xllamacpp"
# A longer answer takes minutes on a small machine, and a small model repeats itself in it.
_MAX_ANSWER_TOKENS: Final = 1024
# More would take more memory.
_CONTEXT_TOKENS: Final = 8192
# A process that crashed is started again, unless it crashed this often within this time.
_MAX_CRASHES: Final = 2
_CRASH_WINDOW_SECONDS: Final = 600.0


_Progress: TypeAlias = tuple[str, float | None]
"""The text of a step of the start, and the share of the step that is done."""


class OnDemandModel:
    """The embedded model's server, started on demand. Use `open`.

    Attributes:
        model: the model as the settings would describe it.
        licence: a sentence for people about the licence; empty for the operator's own file.
    """

    def __init__(
        self,
        config: settings.EmbeddedModel,
        directory: pathlib.Path,
        *,
        official: model_files.Weights,
        script: pathlib.Path | None,
    ) -> None:
        self._config = config
        self._directory = directory
        self._official = official
        self._script = script
        path = config.model_path
        self._weights = model_files.describe_operator_file(path, official) if path else official
        self.licence = self._weights.licence
        self.model = settings.Model(
            can_see_images=False,
            name=self._weights.alias,
            label=f"{self._weights.title} (demo)",
            # It has an address only while it runs.
            base_url="http://127.0.0.1",
            api_key_variable="",
            protocol="fenced",
            context_tokens=_CONTEXT_TOKENS,
            answer_tokens=_MAX_ANSWER_TOKENS,
            temperature=0.0,
        )
        self._process: server_process.ServerProcess | None = None
        self._start_task: asyncio.Task[retries.ServerAddress] | None = None
        self._failure = ""
        self._crash_times: list[float] = []
        self._progress: _Progress = (model_words.DEMO_CHECKED, None)
        self._progress_changed = asyncio.Event()
        self._is_closed = False

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        config: settings.EmbeddedModel,
        directory: pathlib.Path,
        *,
        official: model_files.Weights = model_files.QWEN,
        script: pathlib.Path | None = None,
    ) -> AsyncIterator[OnDemandModel]:
        """Open the embedded model; nothing is read, downloaded or started yet.

        Args:
            config: the settings.
            directory: the bot's data directory; the file is downloaded to its directory `models`.
            official: the file to download.
            script: a program to run in place of the real engine.
        """
        demo_model = cls(config, directory / "models", official=official, script=script)
        try:
            yield demo_model
        finally:
            await demo_model._close()

    @property
    def unavailable_reason(self) -> str:
        """Return why the model cannot be used; empty if no reason is known."""
        if not self._config.enabled:
            return model_words.DEMO_OFF
        if self._script is None and importlib.util.find_spec(_LIBRARY) is None:
            return model_words.NO_DEMO_LIBRARY
        if self._config.model_path and (
            objection := model_files.find_problem(self._config.model_path)
        ):
            return objection
        return self._failure

    async def ensure_started(
        self, *, progress: retries.Progress = lambda _text, _share: None
    ) -> retries.ServerAddress:
        """Start the server if it does not run, and return its address.

        Args:
            progress: called with each step of the start, and with an empty text at its end.

        Raises:
            NoLocalModelError: the server cannot be started; the sentence says why.
        """
        if self._process and self._process.is_alive:
            return self._process.address
        start_task = self._ensure_start_task()
        try:
            while not start_task.done():
                progress(*self._progress)
                await self._wait_for_progress(start_task)
        finally:
            progress("", None)
        if start_task.cancelled():
            raise model_files.NoLocalModelError(model_words.DEMO_ENDS)
        if error := start_task.exception():
            # Each waiter gets an exception of its own, because each raise extends a traceback.
            raise model_files.NoLocalModelError(str(error)) from error
        return start_task.result()

    async def _wait_for_progress(self, start_task: asyncio.Task[retries.ServerAddress]) -> None:
        change_waiter = asyncio.create_task(
            self._progress_changed.wait(), name="change of the demo model"
        )
        try:
            # `asyncio.wait` leaves the start running for other callers if this one is cancelled.
            await asyncio.wait({start_task, change_waiter}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change_waiter.cancel()

    def _ensure_start_task(self) -> asyncio.Task[retries.ServerAddress]:
        if self._is_closed:
            raise model_files.NoLocalModelError(model_words.DEMO_ENDS)
        if self._start_task is None or self._start_task.done():
            self._set_progress(model_words.DEMO_CHECKED)
            self._start_task = asyncio.create_task(self._start(), name="start of the demo model")
            self._start_task.add_done_callback(self._record_start_result)
        return self._start_task

    def _record_start_result(self, start_task: asyncio.Task[retries.ServerAddress]) -> None:
        if start_task.cancelled():
            return
        error = start_task.exception()
        self._failure = str(error) if error else ""
        if error:
            _log.warning("the demo model cannot be started: %s", error)

    async def _start(self) -> retries.ServerAddress:
        # A failed start is tried again, because the network or the disk may be back.
        self._failure = ""
        if sentence := self.unavailable_reason:
            raise model_files.NoLocalModelError(sentence)
        await self._reap_dead_process()
        path = await self._find_model_file()
        self._set_progress(model_words.DEMO_STARTS)
        self._process = await server_process.ServerProcess.start(
            path,
            alias=self._weights.alias,
            context_tokens=_CONTEXT_TOKENS,
            script=self._script,
        )
        _log.info("the demo model %s is up", self._weights.alias)
        return self._process.address

    async def _reap_dead_process(self) -> None:
        """Close a process that crashed; raise if it has crashed too often."""
        now = time.monotonic()
        if self._process is not None:
            _log.warning("the demo model's process ended")
            dead_process, self._process = self._process, None
            await dead_process.close()
            self._crash_times.append(now)
        self._crash_times = [
            crash_time
            for crash_time in self._crash_times
            if now - crash_time < _CRASH_WINDOW_SECONDS
        ]
        if len(self._crash_times) >= _MAX_CRASHES:
            raise model_files.NoLocalModelError(model_words.DEMO_CRASHES)

    async def _find_model_file(self) -> pathlib.Path:
        """Return the path of the operator's file, or of the downloaded one."""
        path = self._config.model_path
        if path is None:
            return await model_files.download(
                self._weights, self._directory, progress=self._record_download
            )
        if self._weights is self._official and not await asyncio.to_thread(
            model_files.is_official, path, self._weights
        ):
            raise model_files.NoLocalModelError(model_words.not_official(path))
        return path

    def _record_download(self, downloaded_bytes: int, total_bytes: int) -> None:
        text = model_words.demo_download(total_bytes, self.licence)
        share = (100 * downloaded_bytes // total_bytes) / 100
        if self._progress[0] != text:
            _log.info("downloading the demo model, %d bytes: %s", total_bytes, self.licence)
        if self._progress != (text, share):
            self._set_progress(text, share)

    def _set_progress(self, text: str, share: float | None = None) -> None:
        self._progress = (text, share)
        # Wakes all current waiters; a later waiter reads the current progress before it waits.
        self._progress_changed.set()
        self._progress_changed = asyncio.Event()

    async def _close(self) -> None:
        self._is_closed = True
        if self._start_task is not None:
            self._start_task.cancel()
            await asyncio.wait({self._start_task})
        if self._process is not None:
            await self._process.close()
