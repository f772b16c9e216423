"""Launcher that sandboxes a program of the host, which reads untrusted files, without namespaces.

`python -m interpreter_bot.guest.landlock_launcher SPEC PROGRAM ARGUMENT…` becomes PROGRAM. SPEC
is JSON: the directories that PROGRAM may read and write, its resource limits, and optionally the
only TCP ports that it may connect to. PROGRAM stays in the host's network.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import confinement, landlock, rootfs, syscalls


def main(arguments: list[str]) -> None:
    """Confine this process and execute the program; `arguments` are SPEC, PROGRAM and its own."""
    spec = json.loads(arguments[0])
    confinement.limit(spec["rlimits"])
    syscalls.forbid_new_privileges()
    landlock.restrict(
        spec["readable"], spec["writable"], rootfs.device_paths(), ports=spec.get("ports")
    )
    confinement.confine()
    # After the change of privileges, which clears it.
    syscalls.die_with_parent(signal.SIGKILL)
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
