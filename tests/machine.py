"""What this machine offers to sessions, found by trying."""

import functools
import os
import subprocess


@functools.cache
def offers_namespaces() -> bool:
    """Whether a session can have namespaces and mounts of its own; an ordinary container has none.

    Without them the sandbox is at its level `container`.
    """
    kinds = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc"]
    if os.geteuid():
        kinds += ["--user", "--map-root-user"]
    return not subprocess.run(["unshare", *kinds, "true"], capture_output=True).returncode
