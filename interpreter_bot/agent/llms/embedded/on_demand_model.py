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
_DEATHS: Final = 2
_FORGOTTEN_SECONDS: Final = 600.0


_News: TypeAlias = tuple[str, float | None]


class OnDemandModel:
    """The embedded model's server, started on demand. Use `open`.

    Attributes:
        model: the model as the settings would describe it.
        licence: a sentence that belongs where it is offered; empty for an operator's own file.
    """

    def __init__(
        self,
        chosen: settings.EmbeddedModel,
        directory: pathlib.Path,
        *,
        official: model_files.Weights,
        script: pathlib.Path | None,
    ) -> None:
        self._chosen = chosen
        self._directory = directory
        self._official = official
        self._script = script
        path = chosen.model_path
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
        self._engine: server_process.ServerProcess | None = None
        self._starting: asyncio.Task[retries.ServerAddress] | None = None
        self._failure = ""
        self._deaths: list[float] = []
        self._news: _News = (model_words.DEMO_CHECKED, None)
        self._has_news = asyncio.Event()
        self._is_closed = False

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        chosen: settings.EmbeddedModel,
        directory: pathlib.Path,
        *,
        official: model_files.Weights = model_files.QWEN,
        script: pathlib.Path | None = None,
    ) -> AsyncIterator[OnDemandModel]:
        """Open the embedded model; nothing is read, downloaded or started yet.

        Args:
            chosen: the settings.
            directory: the bot's data; the downloaded file goes into `models` there.
            official: the file that is downloaded.
            script: runs in place of the real engine, which then need not be installed.
        """
        local = cls(chosen, directory / "models", official=official, script=script)
        try:
            yield local
        finally:
            await local._close()

    @property
    def unavailable(self) -> str:
        """Return why it cannot be had, as far as is known; empty while it may be had."""
        if not self._chosen.enabled:
            return model_words.DEMO_OFF
        if self._script is None and importlib.util.find_spec(_LIBRARY) is None:
            return model_words.NO_DEMO_LIBRARY
        if self._chosen.model_path and (
            objection := model_files.objection(self._chosen.model_path)
        ):
            return objection
        return self._failure

    def begin(self) -> None:
        """Start the server in the background, so that the first request waits less."""
        if not self.unavailable:
            self._begun()

    async def ready(
        self, *, progress: retries.Progress = lambda _text, _share: None
    ) -> retries.ServerAddress:
        """Return the server's address, starting it if it does not run.

        Args:
            progress: called with what is waited for; the last call says that nothing is, any more.

        Raises:
            NoLocalModelError: it cannot be had; the sentence says why.
        """
        if self._engine and self._engine.is_alive:
            return self._engine.address
        starting = self._begun()
        try:
            while not starting.done():
                progress(*self._news)
                await self._wait_for_news(starting)
        finally:
            progress("", None)
        if starting.cancelled():
            raise model_files.NoLocalModelError(model_words.DEMO_ENDS)
        if error := starting.exception():
            # Each waiter gets an exception of its own, for each raise adds to its traceback.
            raise model_files.NoLocalModelError(str(error)) from error
        return starting.result()

    async def _wait_for_news(self, starting: asyncio.Task[retries.ServerAddress]) -> None:
        news = asyncio.create_task(self._has_news.wait(), name="news of the demo model")
        try:
            # A waiter that is cancelled does not cancel the start for the others.
            await asyncio.wait({starting, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    def _begun(self) -> asyncio.Task[retries.ServerAddress]:
        if self._is_closed:
            raise model_files.NoLocalModelError(model_words.DEMO_ENDS)
        if self._starting is None or self._starting.done():
            self._tell(model_words.DEMO_CHECKED)
            self._starting = asyncio.create_task(self._start(), name="start of the demo model")
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, starting: asyncio.Task[retries.ServerAddress]) -> None:
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
        await self._bury()
        path = await self._model_path()
        self._tell(model_words.DEMO_STARTS)
        self._engine = await server_process.ServerProcess.start(
            path,
            alias=self._weights.alias,
            context_tokens=_CONTEXT_TOKENS,
            script=self._script,
        )
        _log.info("the demo model %s is up", self._weights.alias)
        return self._engine.address

    async def _bury(self) -> None:
        """Close a process that died; raise if that has happened too often."""
        now = time.monotonic()
        if self._engine is not None:
            _log.warning("the demo model's process ended")
            engine, self._engine = self._engine, None
            await engine.close()
            self._deaths.append(now)
        self._deaths = [at for at in self._deaths if now - at < _FORGOTTEN_SECONDS]
        if len(self._deaths) >= _DEATHS:
            raise model_files.NoLocalModelError(model_words.DEMO_CRASHES)

    async def _model_path(self) -> pathlib.Path:
        """Return the path of the model's file: the operator's, or the downloaded one."""
        path = self._chosen.model_path
        if path is None:
            return await model_files.download(
                self._weights, self._directory, progress=self._downloaded
            )
        if self._weights is self._official and not await model_files.is_official(
            path, self._weights
        ):
            raise model_files.NoLocalModelError(model_words.not_official(path))
        return path

    def _downloaded(self, had_bytes: int, all_bytes: int) -> None:
        text = model_words.demo_download(all_bytes, self.licence)
        share = (100 * had_bytes // all_bytes) / 100
        if self._news[0] != text:
            _log.info("downloading the demo model, %d bytes: %s", all_bytes, self.licence)
        if self._news != (text, share):
            self._tell(text, share)

    def _tell(self, text: str, share: float | None = None) -> None:
        self._news = (text, share)
        # Wakes those who wait now; those who come later see the current state at once.
        self._has_news.set()
        self._has_news = asyncio.Event()

    async def _close(self) -> None:
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._engine is not None:
            await self._engine.close()
