"""Where files lie that are on their way to people: on the disk that is watched, never in memory.

What code makes is copied before it is sent, up to gigabytes. The system's own directory for
temporary files may be in memory, as under systemd and on new distributions, and is on a disk
whose free space nobody looks at. So temporary files of this process lie below `paths.data`.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Final

_OLD_SECONDS: Final = 24 * 3600.0


@contextlib.contextmanager
def opened(data: pathlib.Path) -> Iterator[None]:
    """Let temporary files lie there; what a bot that was killed left behind is removed.

    Raises:
        OSError: the directory cannot be made.
    """
    directory = data / "spool"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in directory.iterdir():
        # Another process may use the same directory, but for no file that long.
        if left.is_dir() and time.time() - left.stat().st_mtime > _OLD_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    former, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = former
