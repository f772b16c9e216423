"""Installation of packages that code asks for: by name, or because an import failed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final

from interpreter_bot import errors, values
from interpreter_bot.kernels import (
    execution_streams,
    live_kernels,
    package_installations,
)
from interpreter_bot.kernels.packages import import_names, lock_files, pip_arguments
from interpreter_bot.wording import package_words

_OFFER_SECONDS: Final = 180.0


class Installer:
    """Installs packages into one running kernel; implements `execution_streams.Install`."""

    def __init__(
        self,
        installations: package_installations.Installations,
        kernel: live_kernels.Kernel,
    ) -> None:
        self._installations = installations
        self._kernel = kernel
        self._config = installations.config

    async def __call__(
        self,
        request: list[object] | str,
        show_text: Callable[[str], None],
        ask: execution_streams.Ask | None,
    ) -> str:
        try:
            if isinstance(request, str):
                notice, paths = await self._install_for_import(request, show_text, ask)
            else:
                words = [word for word in request if isinstance(word, str)]
                notice, paths = await self._install_requested(words, show_text, ask)
        except errors.PackagesError as error:
            return json.dumps({"notice": str(error), "paths": [], "has_failed": True})
        return json.dumps({"notice": notice, "paths": paths, "has_failed": False})

    async def _install_requested(
        self,
        arguments: Sequence[str],
        show_text: Callable[[str], None],
        ask: execution_streams.Ask | None,
    ) -> tuple[str, list[str]]:
        requirements = pip_arguments.read(arguments)
        lock, summary = await self._installations.plan(self._kernel, requirements)
        if not lock:
            versions = self._installations.installed_versions(self._kernel)
            installed_packages = [
                f"{name} {versions[name]}" for name in pip_arguments.normalized_names(requirements)
            ]
            return package_words.already_there(", ".join(installed_packages)), []
        if ask is not None:
            question = values.InputRequested(summary, is_password=False, subject="packages")
            if await ask(question) != values.YES:
                raise errors.PackagesError(package_words.NOT_APPROVED)
        return await self._install_lock(lock, summary, show_text)

    async def _install_for_import(
        self, module: str, show_text: Callable[[str], None], ask: execution_streams.Ask | None
    ) -> tuple[str, list[str]]:
        """Install the package that a missing module probably comes from, if the person agrees."""
        package = import_names.guess_package(
            module, self._installations.installed_versions(self._kernel)
        )
        lock_files.check_names([package], self._config)
        is_sure = import_names.is_sure(module, package, self._config.allow)
        if self._config.missing != "install" or not is_sure:
            # Ask before the index sees the name: it may be that of a private module.
            await self._require_agreement(module, package, ask)
        lock, summary = await self._installations.plan(self._kernel, pip_arguments.read([package]))
        return await self._install_lock(lock, summary, show_text)

    async def _require_agreement(
        self, module: str, package: str, ask: execution_streams.Ask | None
    ) -> None:
        """Wait until the person agrees to an offer.

        Raises:
            PackagesError: they decline, do not answer, or may not be asked.
        """
        hint = errors.PackagesError(package_words.install_hint(package))
        if ask is None or self._config.missing == "say":
            raise hint
        offer = package_words.package_offer(module, package)
        question = values.InputRequested(offer, is_password=False, subject="import")
        try:
            async with asyncio.timeout(_OFFER_SECONDS):
                answer = await ask(question)
        except (errors.BotError, TimeoutError):
            raise hint from None
        if answer != values.YES:
            raise errors.PackagesError(package_words.not_approved(package))

    async def _install_lock(
        self, lock: lock_files.Lock, summary: str, show_text: Callable[[str], None]
    ) -> tuple[str, list[str]]:
        show_text(package_words.installing(summary))
        path = await self._installations.add(self._kernel, lock)
        return package_words.installed(summary), [path]
