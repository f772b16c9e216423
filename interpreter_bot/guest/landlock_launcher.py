"""Launcher that sandboxes a program of the host without namespaces, since it reads untrusted files.

`python -m interpreter_bot.guest.landlock_launcher WALLS PROGRAM ARGUMENT…` executes PROGRAM, which
stays in the host's network. WALLS is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import confinement, landlock, program_walls, rootfs, syscalls


def main(arguments: list[str]) -> None:
    """Confine this process and execute PROGRAM; `arguments` are those above."""
    walls = program_walls.LandlockWalls(**json.loads(arguments[0]))
    confinement.set_limits(walls.rlimits)
    syscalls.forbid_new_privileges()
    landlock.restrict(
        walls.readable_paths, walls.writable_paths, rootfs.device_paths(), ports=walls.ports
    )
    confinement.confine()
    # After the change of privileges, which resets the signal.
    syscalls.die_with_parent(signal.SIGKILL)
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
