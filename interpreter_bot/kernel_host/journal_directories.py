"""Directories of journals: one of each host, taken over by another one when its process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import stat
import uuid
from collections.abc import Iterator
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnDirectory:
    """Directory of one host among those of others, locked as long as its process lives.

    Attributes:
        path: of it.
    """

    def __init__(self, parent: pathlib.Path) -> None:
        """Make it, and take over what hosts that died have left. Blocks.

        Raises:
            OSError: the disk refuses.
        """
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._parent = parent
        self.path = parent / uuid.uuid4().hex
        # One host at a time: a directory that is made and not locked yet looks like a dead one's.
        with _alone(parent):
            self.path.mkdir(mode=0o700)
            self._lock = os.open(self.path, _DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.take_over()

    def take_over(self) -> tuple[set[str], bool]:
        """Move here what hosts that ended have left. Blocks.

        Returns:
            The names of those files, and whether no other host is there that may leave more.

        Raises:
            OSError: the disk refuses.
        """
        taken: set[str] = set()
        is_complete = True
        with _alone(self._parent):
            for other in self._parent.iterdir():
                if other == self.path or not stat.S_ISDIR(other.lstat().st_mode):
                    continue
                if (lock := _locked(other)) is None:
                    is_complete = False
                    continue
                for path in other.glob("*.journal"):
                    path.rename(self.path / path.name)
                    taken.add(path.name)
                shutil.rmtree(other)
                os.close(lock)
        return taken, is_complete

    def __enter__(self) -> OwnDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


@contextlib.contextmanager
def _alone(directory: pathlib.Path) -> Iterator[None]:
    """Be the only host that changes what is in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _locked(directory: pathlib.Path) -> int | None:
    """Lock a directory; None if another process has."""
    descriptor = os.open(directory, _DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
