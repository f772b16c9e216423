"""Doing what the model calls for: on the workbench, in the sight of the watcher."""

from __future__ import annotations

from typing import Final, TypeAlias

from interpreter_bot import errors, settings, values
from interpreter_bot.agent import describing, guards, messages, pictures, ports, tools
from interpreter_bot.text import screens

NOT_RUN: Final = "[This was not run: the turn was over before.]"

_EDITED: Final = (
    "[The person changed the code before it ran. What ran is:]\n"
    "```python\n{code}\n```\n[It showed:]"
)

_Pictures: TypeAlias = tuple[messages.Picture, ...]


class Hands:
    """Carries out calls, one after the other.

    Args:
        can_see: whether the model is shown pictures.
        approve: see `loops.Job`.
    """

    def __init__(
        self,
        workbench: ports.Workbench,
        watcher: ports.Watcher,
        *,
        limits: settings.Turn,
        guard: guards.Guard,
        can_see: bool,
        approve: ports.Approve | None = None,
    ) -> None:
        self._workbench = workbench
        self._watcher = watcher
        self._limits = limits
        self._guard = guard
        self._can_see = can_see
        self._approve = approve
        self._screen: screens.Screen | None = None

    async def answer(self, call: messages.Call) -> tuple[str, _Pictures]:
        """Do what a call asks for, and say to the model what came of it."""
        wish = tools.read(call)
        try:
            match wish:
                case tools.RunCode(code):
                    return await self._run(code)
                case tools.ListFiles():
                    return describing.files(await self._workbench.list_files()), ()
                case tools.ReadFile(name, start):
                    return await self._read(name, start), ()
                case tools.Misread(sentence):
                    self._guard.misread()
                    return sentence, ()
        except errors.StoreError:
            raise
        except errors.BotError as error:
            self._guard.misread()
            return f"[This could not be done: {error}]", ()

    def unfinished(self) -> str:
        """Say what code had shown that was stopped while it ran."""
        if self._screen is None:
            return NOT_RUN
        stopped = values.Finished(values.Ending.STOPPED, 0.0, "It was stopped before its end.")
        most = self._limits.output_characters
        return describing.execution(self._screen.outputs, stopped, most)

    async def _run(self, code: str) -> tuple[str, _Pictures]:
        if refusal := self._guard.object_to(code):
            return refusal, ()
        screen = self._screen = screens.Screen()

        def show(output: values.Output) -> None:
            screen.show(output)
            self._watcher.output(output)

        self._watcher.code(code)
        allowed = code
        try:
            if self._approve is not None:
                allowed = await self._approve(code)
            finished = await self._workbench.run(allowed, show=show)
        except errors.StoreError:
            raise
        except errors.BotError as error:
            finished = values.Finished(values.Ending.REFUSED, 0.0, str(error))
        self._screen = None
        self._watcher.finished(finished)
        outputs = screen.outputs
        self._guard.ran(code, finished, describing.error(outputs))
        seen = await self._seen(outputs, finished)
        text = describing.execution(outputs, finished, self._limits.output_characters)
        return text if allowed == code else f"{_EDITED.format(code=allowed)}\n{text}", seen

    async def _seen(
        self, outputs: tuple[screens.Standing, ...], finished: values.Finished
    ) -> _Pictures:
        """Return what the model may look at of an execution."""
        contents = pictures.shown(outputs, self._limits.pictures) if self._can_see else ()
        found = [pictures.small(content) for content in contents]
        large = [one for one, small in zip(contents, found, strict=True) if small is None]
        if large and not finished.kernel_lost:
            scaled = iter(await self._workbench.scaled(large))
            found = [small or next(scaled, None) for small in found]
        return tuple(filter(None, found))

    async def _read(self, name: str, start: int) -> str:
        most = self._limits.file_bytes
        data = await self._workbench.read_file(name, start=start, most_bytes=most)
        return describing.content(data[:most], start=start, most_bytes=most)
