"""Walls of a program of the host, which launchers get as JSON in their first argument."""

from __future__ import annotations

import dataclasses
import json
import sys


@dataclasses.dataclass(frozen=True)
class LandlockWalls:
    """For `landlock_launcher`: what a program in the host's network may use.

    Attributes:
        readable_paths: files and directories.
        writable_paths: files and directories.
        rlimits: resource limits, by the names of their constants without prefix.
        ports: TCP ports that it may connect to; None for all.
    """

    readable_paths: list[str]
    writable_paths: list[str]
    rlimits: dict[str, int]
    ports: list[int] | None = None

    def command(self) -> list[str]:
        """Return the launcher's command, to be followed by the program and its arguments."""
        return _command("landlock_launcher", self)


@dataclasses.dataclass(frozen=True)
class SandboxWalls:
    """For `sandbox_launcher`: what a foreign program may use.

    Attributes:
        level: the configured level.
        readable_paths: directories.
        has_network: whether it has the host's network.
        rlimits: resource limits, by the names of their constants without prefix.
        temporary_bytes: size of its /tmp, which contains its home.
        temporary_directory: replaces /tmp at the level `container`.
        uid: its user id at the level `container`, if the launcher runs as root.
        cgroup_files: descriptors of the cgroup.procs files of its cgroup.
    """

    level: str
    readable_paths: list[str]
    has_network: bool
    rlimits: dict[str, int]
    temporary_bytes: int
    uid: int
    temporary_directory: str = ""
    cgroup_files: list[int] = dataclasses.field(default_factory=list)

    def command(self) -> list[str]:
        """Return the launcher's command; without a program after it, it only tries the walls."""
        return _command("sandbox_launcher", self)


def _command(launcher: str, walls: LandlockWalls | SandboxWalls) -> list[str]:
    module = f"{__package__}.{launcher}"
    return [sys.executable, "-I", "-B", "-m", module, json.dumps(vars(walls))]
