"""Installations: what sessions have beyond the kernels' own packages, and how they get more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, TypeAlias

import cachetools
import pydantic
from packaging import requirements

from interpreter_bot import code_activity, errors, settings, values
from interpreter_bot.kernels import launchers
from interpreter_bot.kernels.files import workspaces
from interpreter_bot.kernels.packages import (
    layers,
    lock_files,
    pip_arguments,
    uv_commands,
)
from interpreter_bot.kernels.provisioning import python_environments
from interpreter_bot.wording import package_words

_log = logging.getLogger(__name__)

_MOST_LAYERS: Final = 40
_RESOLVED_SECONDS: Final = 600.0
_MOST_RESOLVED: Final = 500
_BEGIN_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 20.0
# Of the room for packages, one person's sessions that are alive have so much.
_SHARE: Final = 0.5
_LOCKS: Final = pydantic.TypeAdapter(tuple[lock_files.Lock, ...])

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


class Installations:
    """The packages of all sessions of one host. Use `open`.

    Attributes:
        config: the operator's rules.
    """

    def __init__(
        self,
        config: settings.Settings,
        environment: python_environments.Environment,
        staging: pathlib.Path,
        *,
        python: str,
        shown_at: str,
    ) -> None:
        self.config = config.package_index
        self._declared = config.packages_in
        self._declared_packages = config.packages
        self._shown_at = shown_at
        place = directory(config)
        self._uv = uv_commands.Uv(self.config, environment, place / "index")
        self._layers = layers.Layers(
            place,
            staging,
            self._uv,
            most_bytes=self.config.cache_bytes,
            reserve_bytes=config.limits.disk_reserve_bytes,
            suits=f"Python {python} on {os.uname().machine}",
            used=self._used,
        )
        self._base = environment.distributions
        self._served: dict[str, launchers.LaunchedKernel] = {}
        self._resolved: cachetools.TTLCache[_Key, lock_files.Lock] = cachetools.TTLCache(
            _MOST_RESOLVED, _RESOLVED_SECONDS
        )
        self._orders: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._of_channels: dict[settings.ChannelPackages, asyncio.Task[lock_files.Lock]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        config: settings.Settings,
        environment: python_environments.Environment,
        staging: pathlib.Path,
        *,
        python: str,
        shown_at: str,
    ) -> AsyncIterator[Installations]:
        """Open what was installed, and begin to look up what channels always have.

        Args:
            config: the settings in effect.
            environment: the kernels' Python.
            staging: directory of this process below `directory`.
            python: version of the kernels' Python.
            shown_at: where kernels see what is installed; empty if it is no other place.

        Raises:
            SettingsError: what is kept cannot be used, or a channel's packages make no sense.
        """
        opened = cls(config, environment, staging, python=python, shown_at=shown_at)
        await asyncio.to_thread(opened._layers.open)
        try:
            opened._prepare_declared()
            yield opened
        finally:
            for resolving in opened._of_channels.values():
                resolving.cancel()
            await asyncio.gather(*opened._of_channels.values(), return_exceptions=True)

    def _prepare_declared(self) -> None:
        try:
            for declared in self._declared_packages:
                self._preparing(declared)
        except errors.PackagesError as error:
            raise errors.SettingsError(f"[[packages]] cannot be used: {error}") from error

    def _drop_ended(self) -> None:
        self._served = {key: one for key, one in self._served.items() if one.kernel.is_alive}

    def _used(self, person: str | None = None) -> set[str]:
        """Return the names of the layers that live kernels have: all, or those of one person."""
        self._drop_ended()
        return {
            name
            for one in self._served.values()
            if person in (None, one.person)
            for name in one.layers
        }

    async def serve(self, launched: launchers.LaunchedKernel, key: str) -> None:
        """Give a session's new kernel what the session has, and let it install more.

        What cannot be had any more is missing, which its `restore_notice` says.

        Args:
            launched: with its workspace.
            key: of the session.
        """
        self._drop_ended()
        self._served[launched.kernel.id] = launched
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._bring_back(launched, key)
        except (errors.PackagesError, TimeoutError) as error:
            _log.warning("a session's packages are missing", exc_info=error)
            launched.kernel.restore_notice = package_words.missing(
                reason=str(error) or package_words.DOWNLOAD_TOO_SLOW
            )
        if launched.layers:
            code = f"get_ipython().use_packages({[self._path(name) for name in launched.layers]!r})"
            finished = await launched.kernel.execute(
                code, show=_ignore, seconds=_BEGIN_SECONDS, is_own=True
            )
            if finished.ending is not values.Ending.OK:
                _log.warning("a kernel did not take its packages: %s", finished)

    async def _bring_back(self, launched: launchers.LaunchedKernel, key: str) -> None:
        """Obtain what the session's channel always has, then what was installed in the session.

        Raises:
            PackagesError: some of it cannot be had; what could be stands in `launched.layers`.
        """
        fault: errors.PackagesError | None = None
        place = values.key(key)
        wanted = []
        for declared in self._declared(place.platform, place.workspace, place.channel):
            try:
                # Others wait for it as well.
                wanted.append(await asyncio.shield(self._preparing(declared)))
            except errors.PackagesError as error:
                fault = error
        recorded = await asyncio.to_thread(_recorded, launched)
        for lock in filter(None, [*wanted, *recorded]):
            try:
                if lock in recorded:
                    # The operator may have denied it since.
                    lock_files.check_names([one.name for one in lock], self.config)
                launched.layers[await self._layers.obtain(lock)] = lock
            except errors.PackagesError as error:
                fault = error
        if fault is not None:
            raise fault

    async def planned(
        self, launched: launchers.LaunchedKernel, wanted: Sequence[requirements.Requirement]
    ) -> tuple[lock_files.Lock, str]:
        """Find what an installation adds; returns that, and what to call it.

        Raises:
            PackagesError: it is not possible, or not allowed.
        """
        held = self.held(launched)
        missing = [one for one in wanted if not pip_arguments.is_met(one, held)]
        names = pip_arguments.names(missing)
        lock_files.check_names(names, self.config)
        lock = await self._resolve(missing, held, launched.person) if missing else ()
        if lock:
            lock_files.check(lock, held, self.config)
            if len(launched.layers) >= _MOST_LAYERS:
                raise errors.PackagesError(package_words.SESSION_FULL)
        return lock, lock_files.summary(lock, names)

    async def add(self, launched: launchers.LaunchedKernel, lock: lock_files.Lock) -> str:
        """Give a kernel what was planned; returns the directory, as code sees it.

        Raises:
            PackagesError: it cannot be had, or is too much.
        """
        name = await self._obtained(launched, lock)
        if (tell := launched.kernel.on_installation) is not None:
            tell(code_activity.InstalledLayer(name, lock_files.lines(lock)))
        _log.info(
            "installed for %s in kernel %s: %s",
            *(launched.person, launched.kernel.id, ", ".join(map(str, lock))),
        )
        await asyncio.to_thread(self._remember, launched)
        return self._path(name)

    async def _obtained(self, launched: launchers.LaunchedKernel, lock: lock_files.Lock) -> str:
        """Give a kernel a layer, within its person's share.

        Raises:
            PackagesError: it cannot be built, or is too much.
        """
        # One at a time for each person: others have their turns in between.
        async with self._orders.setdefault(launched.person, asyncio.Lock()):
            name = await self._layers.obtain(lock, launched.person)
            used = {name, *launched.layers, *self._used(launched.person)}
            if self._layers.size_bytes(used) > _SHARE * self.config.cache_bytes:
                raise errors.PackagesError(package_words.PERSON_FULL)
            launched.layers[name] = lock
        return name

    def forget(self, workspace: workspaces.Workspace) -> None:
        """Let a session's next kernel have no more than all kernels have."""
        workspace.packages_file.unlink(missing_ok=True)

    def held(self, launched: launchers.LaunchedKernel) -> dict[str, str]:
        """Return the versions of what a kernel has, by name."""
        added = (one for lock in launched.layers.values() for one in lock)
        return dict(self._base) | {one.name: one.version for one in added}

    async def _resolve(
        self,
        wanted: Sequence[requirements.Requirement],
        held: Mapping[str, str],
        person: str | None = None,
    ) -> lock_files.Lock:
        key = tuple(sorted(map(str, wanted))), tuple(sorted(held.items()))
        if (known := self._resolved.get(key)) is not None:
            return known
        async with self._layers.working_directory() as own:
            with layers.translated_errors():
                lock = await self._uv.resolve(wanted, held, own, person)
        self._resolved[key] = lock
        return lock

    def _preparing(self, declared: settings.ChannelPackages) -> asyncio.Task[lock_files.Lock]:
        """Resolve and build what a channel always has: once for all that ask, until it worked."""
        preparing = self._of_channels.get(declared)
        if preparing is None or (preparing.done() and preparing.exception() is not None):
            wanted = pip_arguments.read(declared.names)
            preparing = asyncio.create_task(self._prepared(wanted), name="packages of a channel")
            self._of_channels[declared] = preparing
        return preparing

    async def _prepared(self, wanted: Sequence[requirements.Requirement]) -> lock_files.Lock:
        missing = [one for one in wanted if not pip_arguments.is_met(one, self._base)]
        if not missing:
            return ()
        lock = await self._resolve(missing, self._base)
        lock_files.check(lock, self._base, self.config)
        if lock:
            await self._layers.obtain(lock)
        return lock

    def _remember(self, launched: launchers.LaunchedKernel) -> None:
        if launched.workspace is None:
            return
        file = launched.workspace.packages_file
        new = file.with_suffix(".new")
        try:
            new.write_bytes(_LOCKS.dump_json(tuple(launched.layers.values())))
            new.replace(file)
        except OSError:
            _log.exception("the session's next kernel will not have these packages")

    def _path(self, name: str) -> str:
        """Return where kernels see a layer."""
        return f"{self._shown_at or self._layers.directory}/{name}"


def directory(config: settings.Settings) -> pathlib.Path:
    """Return where everything of packages is kept."""
    return config.paths.data / "packages"


def _recorded(launched: launchers.LaunchedKernel) -> tuple[lock_files.Lock, ...]:
    if launched.workspace is None:
        return ()
    try:
        return _LOCKS.validate_json(launched.workspace.packages_file.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError):
        _log.exception("it is not known what was installed in a session")
        return ()


def _ignore(_: values.Output) -> None:
    pass
