"""Epochs of sessions, as this host has heard of them: what is said in an older one is refused.

A session that is moved to another machine has an epoch more there. Who comes back with the former
one, as a bot that was cut off, would use a kernel that is nobody's any more.
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
    """The latest epochs, on disk: they outlive this process.

    Attributes:
        on_known: is told in which epoch a session is here.
    """

    def __init__(
        self, directory: pathlib.Path, end_kernel: Callable[[str], Awaitable[None]]
    ) -> None:
        """Read nothing yet.

        Args:
            directory: of small files, made when needed.
            end_kernel: ends that of a session, with its variables, which another machine went
                on without.
        """
        self._directory = directory
        self.on_epoch: Callable[[str, int], None] | None = None
        self._end_kernel = end_kernel
        self._epochs: dict[str, int] = {}
        # One of each session: to end a kernel takes as long as its variables are saved.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def accept(self, key: str, epoch: int) -> None:
        """Be in an epoch of a session from now on; its kernel of an earlier one ends.

        Args:
            key: of the session.
            epoch: 0 where only one machine is there.

        Raises:
            SessionMovedError: it is an older one.
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
                # Until all of it is done, nobody passes by what is remembered.
                self._epochs.pop(key, None)
                if stored_epoch:
                    await self._end_kernel(key)
                await asyncio.to_thread(private_files.replace, file, str(epoch))
            self._epochs[key] = epoch
            if self.on_epoch is not None:
                self.on_epoch(key, epoch)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def fence(self, key: str, epoch: int) -> None:
        """Hear that a session is on another machine in an epoch, and end its kernel here.

        Also one that began when only this machine was there, and is of no epoch.

        Raises:
            SessionMovedError: it came back in a later one.
        """
        async with self._lock(key):
            if self._epochs.get(key) != epoch:
                raise errors.SessionMovedError
            await self._end_kernel(key)

    async def accept_request_epoch(self, request: web.Request) -> None:
        """Be in the epoch that a request is said in, if it says so.

        Raises:
            SessionMovedError: an older epoch.
        """
        if "epoch" in request.query:
            await self.accept(request.query["key"], int(request.query["epoch"]))
