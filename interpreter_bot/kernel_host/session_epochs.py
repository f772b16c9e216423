"""Epochs of sessions on this host: requests of an older epoch are refused.

Each move of a session to another machine begins a new epoch. Otherwise, a bot that was
disconnected meanwhile, and has an old epoch, would use a kernel that the session has left.
"""

from __future__ import annotations

import asyncio
import hashlib
import pathlib
import weakref
from collections.abc import Awaitable, Callable

from aiohttp import web

from interpreter_bot import errors, private_files


class SessionEpochs:
    """The latest epoch of each session, on disk.

    Attributes:
        on_epoch: called with a session and its epoch on this host.
    """

    def __init__(
        self, directory: pathlib.Path, end_kernel: Callable[[str], Awaitable[None]]
    ) -> None:
        """Store epochs in files below `directory`, which is created when needed; read none yet."""
        self._directory = directory
        self.on_epoch: Callable[[str, int], None] | None = None
        self._end_kernel = end_kernel
        self._epochs: dict[str, int] = {}
        # One lock for each session, because ending a kernel takes long.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def accept(self, key: str, epoch: int) -> None:
        """Accept requests of a session in an epoch; end its kernel of an earlier epoch.

        The epoch is 0 if there is only one machine.

        Raises:
            SessionMovedError: the session is in a later epoch.
        """
        if epoch == 0 or self._epochs.get(key) == epoch:
            return
        async with self._lock(key):
            digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
            file = self._directory / digest[:2] / digest
            stored_epoch = self._epochs.get(key) or int(
                await asyncio.to_thread(private_files.read, file) or 0
            )
            if epoch < stored_epoch:
                raise errors.SessionMovedError
            if epoch > stored_epoch:
                # Requests of the old epoch must wait for the lock from here on.
                self._epochs.pop(key, None)
                if stored_epoch:
                    await self._end_kernel(key)
                await asyncio.to_thread(private_files.replace, file, str(epoch))
            self._epochs[key] = epoch
            if self.on_epoch is not None:
                self.on_epoch(key, epoch)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def end_moved_session(self, key: str, epoch: int) -> None:
        """End the kernel of a session that is on another machine in this epoch.

        Raises:
            SessionMovedError: the session has come back here in a later epoch.
        """
        async with self._lock(key):
            if self._epochs.get(key) != epoch:
                raise errors.SessionMovedError
            await self._end_kernel(key)

    async def accept_request_epoch(self, request: web.Request) -> None:
        """Accept the epoch of a request, if it has one.

        Raises:
            SessionMovedError: the session is in a later epoch.
        """
        if "epoch" in request.query:
            await self.accept(request.query["key"], int(request.query["epoch"]))
