"""What code of a kernel asks to have installed, answered: by name, or for an import that failed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.kernels import execution_streams, launchers, package_installations
from interpreter_bot.kernels.packages import import_names, lock_files, pip_arguments
from interpreter_bot.wording import package_words

_INSTALL: Final = "install"
_YES: Final = frozenset({"y", "ok", values.YES, _INSTALL})
_NO: Final = "no"
_OFFER_SECONDS: Final = 180.0


class Installer:
    """Installs packages into one running kernel; implements `execution_streams.Install`."""

    def __init__(
        self,
        installations: package_installations.Installations,
        launched: launchers.LaunchedKernel,
    ) -> None:
        """Args: `launched` is the kernel, with its workspace."""
        self._installations = installations
        self._launched = launched
        self._config = installations.config

    async def __call__(
        self,
        wanted: list[object] | str,
        *,
        say: Callable[[str], None],
        ask: execution_streams.Ask | None,
    ) -> str:
        """Install what is wanted, or say why not.

        Args:
            wanted: as after `pip install`, or a module that was not found; anybody's.
            say: shows people what is about to be done.
            ask: asks them whether it may be done, where that is wanted.

        Returns:
            the answer for `guest.package_requests`.
        """
        try:
            if isinstance(wanted, str):
                notice, paths = await self._for_import(wanted, say, ask)
            else:
                words = [word for word in wanted if isinstance(word, str)]
                notice, paths = await self._named(words, say, ask)
        except errors.PackagesError as error:
            return json.dumps({"said": str(error), "paths": [], "has_failed": True})
        return json.dumps({"said": notice, "paths": paths, "has_failed": False})

    async def _named(
        self,
        arguments: Sequence[str],
        say: Callable[[str], None],
        ask: execution_streams.Ask | None,
    ) -> tuple[str, list[str]]:
        wanted = pip_arguments.read(arguments)
        lock, summary = await self._installations.planned(self._launched, wanted)
        if not lock:
            held = self._installations.held(self._launched)
            there = [f"{name} {held[name]}" for name in pip_arguments.names(wanted)]
            return package_words.already_there(", ".join(there)), []
        if ask is not None:
            question = values.InputRequested(
                package_words.install(summary),
                is_password=False,
                is_installation=True,
                choices=(values.YES, _NO),
            )
            if (await ask(question)).strip().lower() not in _YES:
                raise errors.PackagesError(package_words.NOT_APPROVED)
        return await self._add(lock, summary, say)

    async def _for_import(
        self, module: str, say: Callable[[str], None], ask: execution_streams.Ask | None
    ) -> tuple[str, list[str]]:
        """Install the package that a missing module probably comes from, if the person agrees."""
        package = import_names.package_of(module, self._installations.held(self._launched))
        lock_files.check_names([package], self._config)
        is_sure = import_names.is_sure(module, package, self._config.allow)
        if self._config.missing != "install" or not is_sure:
            # Before the index is asked: what is missing may be a private module.
            await self._agreed(module, package, ask)
        lock, summary = await self._installations.planned(
            self._launched, pip_arguments.read([package])
        )
        return await self._add(lock, summary, say)

    async def _agreed(self, module: str, package: str, ask: execution_streams.Ask | None) -> None:
        """Return once a person agrees to an offer.

        Raises:
            PackagesError: they do not, or nobody may be asked, or answers.
        """
        hint = errors.PackagesError(package_words.hint(package))
        if ask is None or self._config.missing == "say":
            raise hint
        question = values.InputRequested(
            package_words.offer(module, package),
            is_password=False,
            choices=(_INSTALL, _NO),
        )
        try:
            async with asyncio.timeout(_OFFER_SECONDS):
                answer = await ask(question)
        except (errors.BotError, TimeoutError):
            raise hint from None
        if answer.strip().lower() not in _YES:
            raise errors.PackagesError(package_words.declined(package))

    async def _add(
        self, lock: lock_files.Lock, summary: str, say: Callable[[str], None]
    ) -> tuple[str, list[str]]:
        say(package_words.installing(summary))
        path = await self._installations.add(self._launched, lock)
        return package_words.installed(summary), [path]
