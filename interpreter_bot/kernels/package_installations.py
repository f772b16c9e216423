"""Installations of packages that sessions have in addition to the kernels' own libraries."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pathlib
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import pydantic
from packaging import requirements

from interpreter_bot import code_activity, errors, kernel_calls, settings, values
from interpreter_bot.kernels import live_kernels
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

_MAX_LAYERS: Final = 40
_SETUP_SECONDS: Final = 10.0
_RESTORE_SECONDS: Final = 20.0
# Share of the room for packages that the live sessions of one person may use.
_MAX_SHARE_OF_PERSON: Final = 0.5
_LOCKS: Final = pydantic.TypeAdapter(tuple[lock_files.Lock, ...])


class Installations:
    """Packages of all sessions of one host. Use `open`.

    Attributes:
        config: the operator's rules.
    """

    def __init__(
        self,
        config: settings.Settings,
        environment: python_environments.Environment,
        staging: pathlib.Path,
        *,
        python_version: str,
        path_in_kernels: str,
    ) -> None:
        self.config = config.package_index
        self._channel_packages = config.packages if config.package_index.url else ()
        self._path_in_kernels = path_in_kernels
        root = packages_directory(config)
        self._uv = uv_commands.Uv(self.config, environment, root / "index")
        self._layers = layers.Layers(
            root,
            staging,
            self._uv,
            max_bytes=self.config.cache_bytes,
            reserve_bytes=config.limits.disk_reserve_bytes,
            platform=f"Python {python_version} on {os.uname().machine}",
            used_names=self._used_layer_names,
        )
        self._base_versions = environment.distributions
        self._kernels: dict[str, live_kernels.Kernel] = {}
        self._person_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._channel_tasks: dict[settings.ChannelPackages, asyncio.Task[lock_files.Lock]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        config: settings.Settings,
        environment: python_environments.Environment,
        staging: pathlib.Path,
        *,
        python_version: str,
        path_in_kernels: str,
    ) -> AsyncIterator[Installations]:
        """Open the store of packages, and start to resolve the packages of channels.

        Raises:
            SettingsError: the store cannot be used, or a channel's packages are not valid.
        """
        installations = cls(
            config,
            environment,
            staging,
            python_version=python_version,
            path_in_kernels=path_in_kernels,
        )
        await asyncio.to_thread(installations._layers.open)
        try:
            installations._prepare_all_channels()
            yield installations
        finally:
            for task in installations._channel_tasks.values():
                task.cancel()
            await asyncio.gather(*installations._channel_tasks.values(), return_exceptions=True)

    def _prepare_all_channels(self) -> None:
        try:
            for channel_packages in self._channel_packages:
                self._ensure_channel_task(channel_packages)
        except errors.PackagesError as error:
            raise errors.SettingsError(f"[[packages]] cannot be used: {error}") from error

    def _drop_ended_kernels(self) -> None:
        self._kernels = {key: kernel for key, kernel in self._kernels.items() if kernel.is_alive}

    def _used_layer_names(self, person: str | None = None) -> set[str]:
        """Return the names of the layers that live kernels use: of all people, or of one."""
        self._drop_ended_kernels()
        return {
            name
            for kernel in self._kernels.values()
            if person in (None, kernel.person)
            for name in kernel.layers
        }

    async def provide(self, kernel: live_kernels.Kernel, key: str) -> None:
        """Give a new kernel the packages of session `key`.

        If some are not available any more, its `restore_notice` says so.
        """
        self._drop_ended_kernels()
        self._kernels[kernel.id] = kernel
        try:
            async with asyncio.timeout(_RESTORE_SECONDS):
                await self._restore(kernel, key)
        except (errors.PackagesError, TimeoutError) as error:
            _log.warning("a session's packages are missing", exc_info=error)
            kernel.restore_notice = package_words.packages_missing(
                reason=str(error) or package_words.DOWNLOAD_TOO_SLOW
            )
        if kernel.layers:
            code = kernel_calls.use_packages([self._path_of_layer(name) for name in kernel.layers])
            finished, _ = await kernel.run_bot_code(code, seconds=_SETUP_SECONDS)
            if finished.ending is not values.Ending.OK:
                _log.warning("a kernel did not take its packages: %s", finished)

    async def _restore(self, kernel: live_kernels.Kernel, key: str) -> None:
        """Obtain the packages of the session's channel, then those installed in the session.

        Raises:
            PackagesError: some are not available; the others are in `kernel.layers`.
        """
        last_error: errors.PackagesError | None = None
        session_key = values.parse_key(key)
        channel_locks = []
        for channel_packages in self._channel_packages:
            if not session_key.is_in(channel_packages.places):
                continue
            try:
                # Shield the task: other sessions wait for it, too.
                channel_locks.append(
                    await asyncio.shield(self._ensure_channel_task(channel_packages))
                )
            except errors.PackagesError as error:
                last_error = error
        session_locks = await asyncio.to_thread(_read_locks, kernel)
        for lock in filter(None, [*channel_locks, *session_locks]):
            try:
                if lock in session_locks:
                    # The operator may have denied a package since.
                    lock_files.check_names([package.name for package in lock], self.config)
                kernel.layers[await self._layers.obtain(lock)] = lock
            except errors.PackagesError as error:
                last_error = error
        if last_error is not None:
            raise last_error

    async def plan(
        self, kernel: live_kernels.Kernel, requested_packages: Sequence[requirements.Requirement]
    ) -> tuple[lock_files.Lock, str]:
        """Resolve an installation, and return the lock of added packages with a summary.

        Raises:
            PackagesError: it is not possible, or not allowed.
        """
        versions = self.installed_versions(kernel)
        missing_packages = [
            requirement
            for requirement in requested_packages
            if not pip_arguments.is_met(requirement, versions)
        ]
        names = pip_arguments.normalized_names(missing_packages)
        lock_files.check_names(names, self.config)
        lock = (
            await self._resolve(missing_packages, versions, kernel.person)
            if missing_packages
            else ()
        )
        if lock:
            lock_files.check(lock, versions, self.config)
            if len(kernel.layers) >= _MAX_LAYERS:
                raise errors.PackagesError(package_words.SESSION_FULL)
        return lock, lock_files.summarize(lock, names)

    async def add(self, kernel: live_kernels.Kernel, lock: lock_files.Lock) -> str:
        """Install a planned lock for a kernel, and return the directory that code sees.

        Raises:
            PackagesError: packages are not available, or too large.
        """
        name = await self._obtain_layer(kernel, lock)
        if (report := kernel.on_installation) is not None:
            report(code_activity.InstalledLayer(name, lock_files.format_requirements(lock)))
        _log.info(
            "installed for %s in kernel %s: %s",
            kernel.person,
            kernel.id,
            ", ".join(map(str, lock)),
        )
        await asyncio.to_thread(self._record_layers, kernel)
        return self._path_of_layer(name)

    async def _obtain_layer(self, kernel: live_kernels.Kernel, lock: lock_files.Lock) -> str:
        """Obtain a layer for a kernel, within the share of its person.

        Raises:
            PackagesError: it cannot be built, or exceeds the share.
        """
        # Each person's layers are added one at a time, so that the check of the share counts all.
        async with self._person_locks.setdefault(kernel.person, asyncio.Lock()):
            name = await self._layers.obtain(lock, kernel.person)
            used_names = {name, *kernel.layers, *self._used_layer_names(kernel.person)}
            if self._layers.size_bytes(used_names) > _MAX_SHARE_OF_PERSON * self.config.cache_bytes:
                raise errors.PackagesError(package_words.PERSON_FULL)
            kernel.layers[name] = lock
        return name

    def forget(self, workspace: workspaces.Workspace) -> None:
        """Forget a session's packages: its next kernel has only the common ones."""
        workspace.packages_file.unlink(missing_ok=True)

    def installed_versions(self, kernel: live_kernels.Kernel) -> dict[str, str]:
        """Return the versions of all packages in a kernel, by name."""
        added_packages = (package for lock in kernel.layers.values() for package in lock)
        return dict(self._base_versions) | {
            package.name: package.version for package in added_packages
        }

    async def _resolve(
        self,
        requested_packages: Sequence[requirements.Requirement],
        versions: Mapping[str, str],
        person: str | None = None,
    ) -> lock_files.Lock:
        async with self._layers.working_directory() as work_directory:
            with layers.translate_errors():
                return await self._uv.resolve(requested_packages, versions, work_directory, person)

    def _ensure_channel_task(
        self, channel_packages: settings.ChannelPackages
    ) -> asyncio.Task[lock_files.Lock]:
        """Resolve and build a channel's packages: once for all sessions, again after a failure."""
        task = self._channel_tasks.get(channel_packages)
        if task is None or (task.done() and task.exception() is not None):
            requested_packages = pip_arguments.read(channel_packages.names)
            task = asyncio.create_task(
                self._prepare_channel(requested_packages), name="packages of a channel"
            )
            self._channel_tasks[channel_packages] = task
        return task

    async def _prepare_channel(
        self, requested_packages: Sequence[requirements.Requirement]
    ) -> lock_files.Lock:
        missing_packages = [
            requirement
            for requirement in requested_packages
            if not pip_arguments.is_met(requirement, self._base_versions)
        ]
        if not missing_packages:
            return ()
        lock = await self._resolve(missing_packages, self._base_versions)
        lock_files.check(lock, self._base_versions, self.config)
        if lock:
            await self._layers.obtain(lock)
        return lock

    def _record_layers(self, kernel: live_kernels.Kernel) -> None:
        if kernel.workspace is None:
            return
        file = kernel.workspace.packages_file
        new_file = file.with_suffix(".new")
        try:
            new_file.write_bytes(_LOCKS.dump_json(tuple(kernel.layers.values())))
            new_file.replace(file)
        except OSError:
            _log.exception("the session's next kernel will not have these packages")

    def _path_of_layer(self, name: str) -> str:
        """Return the path of a layer in kernels."""
        return f"{self._path_in_kernels or self._layers.directory}/{name}"


def packages_directory(config: settings.Settings) -> pathlib.Path:
    return config.paths.data / "packages"


def _read_locks(kernel: live_kernels.Kernel) -> tuple[lock_files.Lock, ...]:
    if kernel.workspace is None:
        return ()
    try:
        return _LOCKS.validate_json(kernel.workspace.packages_file.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError):
        _log.exception("the installed packages of a session are unknown")
        return ()
