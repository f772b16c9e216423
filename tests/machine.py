"""Which namespaces and directories this machine lets sessions use, found by trying."""

import contextlib
import functools
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator


@functools.cache
def offers_namespaces() -> bool:
    """Whether a session can have namespaces and mounts of its own.

    An ordinary container refuses them; the sandbox is then at its level `container`.
    """
    kinds = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc"]
    if os.geteuid():
        kinds += ["--user", "--map-root-user"]
    return not subprocess.run(["unshare", *kinds, "true"], capture_output=True).returncode


def session_variables_path() -> str:
    """Return the path at which code finds its saved variables: a name, or a descriptor."""
    return "/var/lib/variables" if offers_namespaces() else "/proc/self/fd/901"


def open_to_sessions(*directories: str | pathlib.Path) -> None:
    """Let sessions pass through directories: without mounts, their user ids use the real paths."""
    if not offers_namespaces():
        for directory in directories:
            os.chmod(directory, 0o711)


@contextlib.contextmanager
def short_directory() -> Iterator[pathlib.Path]:
    """Make a directory for a bot, with a short path: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ib-", dir="/tmp") as directory:
        open_to_sessions(directory)
        yield pathlib.Path(directory)
