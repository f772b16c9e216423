"""What this machine offers to sessions, found by trying."""

import contextlib
import functools
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator


@functools.cache
def offers_namespaces() -> bool:
    """Whether a session can have namespaces and mounts of its own; an ordinary container has none.

    Without them the sandbox is at its level `container`.
    """
    kinds = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc"]
    if os.geteuid():
        kinds += ["--user", "--map-root-user"]
    return not subprocess.run(["unshare", *kinds, "true"], capture_output=True).returncode


def variables_directory() -> str:
    """Where code finds what is saved of its variables: by a name, or by a descriptor."""
    return "/var/lib/variables" if offers_namespaces() else "/proc/self/fd/901"


def open_to_sessions(*directories: str | pathlib.Path) -> None:
    """Let sessions, whose user ids reach by paths what is not mounted, walk through directories."""
    if not offers_namespaces():
        for directory in directories:
            os.chmod(directory, 0o711)


@contextlib.contextmanager
def short_directory() -> Iterator[pathlib.Path]:
    """Make a directory for a bot, whose path leaves room for sockets, which end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        open_to_sessions(directory)
        yield pathlib.Path(directory)
