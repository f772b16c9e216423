"""The embedded model as one object: file found or downloaded, server started on demand and
restarted."""

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
# Longer answers take minutes on a small machine, and go round in circles.
_ANSWER_TOKENS: Final = 1024
# More would take more memory.
_CONTEXT_TOKENS: Final = 8192
# A process that dies is started again, but not for ever.
_MAX_DEATHS: Final = 2
_DEATH_MEMORY_SECONDS: Final = 600.0


_Progress: TypeAlias = tuple[str, float | None]


class OnDemandModel:
    """The embedded model's server, started on demand. Use `open`.

    Attributes:
        model: the model as the settings would describe it.
        licence: a sentence to show wherever the model is offered; empty for an operator's own file.
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
        self._weights = model_files.operator_weights(path, official) if path else official
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
            answer_tokens=_ANSWER_TOKENS,
            temperature=0.0,
        )
        self._process: server_process.ServerProcess | None = None
        self._starting: asyncio.Task[retries.ServerAddress] | None = None
        self._failure = ""
        self._death_times: list[float] = []
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
            directory: the bot's data; the downloaded file goes into `models` there.
            official: the file that is downloaded.
            script: runs in place of the real engine, which then need not be installed.
        """
        local = cls(config, directory / "models", official=official, script=script)
        try:
            yield local
        finally:
            await local._close()

    @property
    def unavailable(self) -> str:
        """Return why the model cannot be used; empty as long as no reason is known."""
        if not self._config.enabled:
            return model_words.DEMO_OFF
        if self._script is None and importlib.util.find_spec(_LIBRARY) is None:
            return model_words.NO_DEMO_LIBRARY
        if self._config.model_path and (
            objection := model_files.objection(self._config.model_path)
        ):
            return objection
        return self._failure

    async def ready(
        self, *, progress: retries.Progress = lambda _text, _share: None
    ) -> retries.ServerAddress:
        """Return the server's address, starting it if it does not run.

        Args:
            progress: called with each step of the start, and with an empty text at its end.

        Raises:
            NoLocalModelError: it cannot be started; the sentence says why.
        """
        if self._process and self._process.is_alive:
            return self._process.address
        starting = self._ensure_start()
        try:
            while not starting.done():
                progress(*self._progress)
                await self._wait_for_progress(starting)
        finally:
            progress("", None)
        if starting.cancelled():
            raise model_files.NoLocalModelError(model_words.DEMO_ENDS)
        if error := starting.exception():
            # Each waiter gets an exception of its own, for each raise adds to its traceback.
            raise model_files.NoLocalModelError(str(error)) from error
        return starting.result()

    async def _wait_for_progress(self, starting: asyncio.Task[retries.ServerAddress]) -> None:
        change = asyncio.create_task(self._progress_changed.wait(), name="change of the demo model")
        try:
            # A waiter that is cancelled does not cancel the start for the others.
            await asyncio.wait({starting, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()

    def _ensure_start(self) -> asyncio.Task[retries.ServerAddress]:
        if self._is_closed:
            raise model_files.NoLocalModelError(model_words.DEMO_ENDS)
        if self._starting is None or self._starting.done():
            self._set_progress(model_words.DEMO_CHECKED)
            self._starting = asyncio.create_task(self._start(), name="start of the demo model")
            self._starting.add_done_callback(self._note_start_result)
        return self._starting

    def _note_start_result(self, starting: asyncio.Task[retries.ServerAddress]) -> None:
        if starting.cancelled():
            return
        error = starting.exception()
        self._failure = str(error) if error else ""
        if error:
            _log.warning("the demo model cannot be had: %s", error)

    async def _start(self) -> retries.ServerAddress:
        # What failed before is tried again, for the network or the disk may be back.
        self._failure = ""
        if sentence := self.unavailable:
            raise model_files.NoLocalModelError(sentence)
        await self._reap_dead_process()
        path = await self._model_path()
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
        """Close a process that died; raise if that has happened too often."""
        now = time.monotonic()
        if self._process is not None:
            _log.warning("the demo model's process ended")
            engine, self._process = self._process, None
            await engine.close()
            self._death_times.append(now)
        self._death_times = [at for at in self._death_times if now - at < _DEATH_MEMORY_SECONDS]
        if len(self._death_times) >= _MAX_DEATHS:
            raise model_files.NoLocalModelError(model_words.DEMO_CRASHES)

    async def _model_path(self) -> pathlib.Path:
        """Return the path of the model's file: the operator's, or the downloaded one."""
        path = self._config.model_path
        if path is None:
            return await model_files.download(
                self._weights, self._directory, progress=self._note_download
            )
        if self._weights is self._official and not await model_files.is_official(
            path, self._weights
        ):
            raise model_files.NoLocalModelError(model_words.not_official(path))
        return path

    def _note_download(self, had_bytes: int, all_bytes: int) -> None:
        text = model_words.demo_download(all_bytes, self.licence)
        share = (100 * had_bytes // all_bytes) / 100
        if self._progress[0] != text:
            _log.info("downloading the demo model, %d bytes: %s", all_bytes, self.licence)
        if self._progress != (text, share):
            self._set_progress(text, share)

    def _set_progress(self, text: str, share: float | None = None) -> None:
        self._progress = (text, share)
        # Wakes those who wait now; those who come later see the current state at once.
        self._progress_changed.set()
        self._progress_changed = asyncio.Event()

    async def _close(self) -> None:
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._process is not None:
            await self._process.close()
