"""Settings of kernels, limits, the sandbox, paths, sessions and the store."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields


class Sessions(fields.Group):
    """Conversations: how many at once, and how they end."""

    concurrent_turns: Annotated[int, pydantic.Field(ge=1)] = 32
    """Turns at once, of all conversations; further ones wait, fairly between people."""
    waiting_requests: Annotated[int, pydantic.Field(ge=1)] = 20
    """Requests that may wait in one conversation; further ones are refused."""
    message_characters: Annotated[int, pydantic.Field(ge=1)] = 100_000
    """The longest message; what is longer belongs into a file."""
    approval: Literal["never", "plan", "every"] = "never"
    """Whether a person is asked before the model's code runs: not at all, once per answer, every
    time. It holds on all platforms; servers, channels and people can choose a stricter one."""
    warning_seconds: Annotated[float, pydantic.Field(ge=0)] = 5 * 60.0
    """How long before an idle kernel is let go people hear of it; 0 means that they do not."""
    closing_seconds: Annotated[float, pydantic.Field(ge=0)] = 20.0
    """How long turns may go on when the bot is told to end; then they are stopped."""


class Store(fields.Group):
    """What is remembered, and where."""

    url: Annotated[str, pydantic.Field(repr=False)] = ""
    """`postgresql://…` or `sqlite:////absolute/file.db`; empty means a file in `paths.data`."""


class Limits(fields.Group):
    """What one session may use."""

    execution_seconds: fields.Seconds = 60.0
    """Wall time of one execution; printing does not extend it."""
    input_seconds: fields.Seconds = 600.0
    """How long code that called `input()` waits for a person; not counted as execution."""
    memory_bytes: fields.Positive = 1_825_361_920
    """Memory of one session, all its processes and its /tmp together (1.7 GiB)."""
    processes: Annotated[int, pydantic.Field(ge=8)] = 128
    """Processes and threads of one session."""
    cpu_cores: Annotated[float, pydantic.Field(gt=0, le=1024)] = 1.0
    """Share of the machine's cores, 1.0 being one whole core."""
    workspace_bytes: fields.Positive = 2 * fields.GIB
    """Size of everything in /mnt/data together."""
    workspace_files: fields.Positive = 10_000
    """Files and directories in /mnt/data together."""
    disk_reserve_bytes: Annotated[int, pydantic.Field(ge=0)] = 1 * fields.GIB
    """Free space of the data directory's disk; below it, running code is stopped."""
    bot_memory_bytes: Annotated[int, pydantic.Field(ge=256 * fields.MIB)] = 768 * fields.MIB
    """Memory of the bot itself; above it, the session that sends most is ended."""
    file_bytes: fields.Positive = 1 * fields.GIB
    """Size of any one file that code writes."""
    upload_bytes: fields.Positive = 512 * fields.MIB
    """Size of one file that a person sends."""
    temporary_bytes: fields.Positive = 256 * fields.MIB
    """Size of the private /tmp and of /dev/shm; memory, which control groups count as such."""
    output_bytes: fields.Positive = 1_000_000
    """Printed text of one execution; the rest is cut with a notice."""
    displays: fields.Positive = 20
    """Images, tables and other displays of one execution; further ones are counted, not shown."""
    display_bytes: Annotated[int, pydantic.Field(gt=0, le=15 * fields.MIB)] = 12 * fields.MIB
    """Size of one display, as encoded on the wire."""
    open_files: Annotated[int, pydantic.Field(ge=64)] = 1024
    """File descriptors of one process."""


class Kernels(fields.Group):
    """Where kernels come from and how long they live."""

    python: pathlib.Path = pathlib.Path(sys.executable)
    """The interpreter that runs user code: any with ipykernel. Default: the bot's own."""
    preload: tuple[str, ...] = (
        "numpy",
        "pandas",
        "matplotlib.pyplot",
        "scipy",
        "seaborn",
        "sklearn",
        "plotly",
        "PIL.Image",
        "openpyxl",
        "pyarrow",
    )
    """Modules imported once, before any kernel is forked; missing ones are skipped and logged."""
    provisioner: str = "interpreter-bot-fork"
    """Name of the jupyter_client kernel provisioner; it must do what `ForkProvisioner` does."""
    spares: Annotated[int, pydantic.Field(ge=0, le=64)] = 2
    """Kernels kept ready for sessions to come."""
    starts: Annotated[int, pydantic.Field(ge=0)] = 0
    """Kernels that start at a time, others wait for them; 0 means as many as there are cores."""
    concurrent: Annotated[int, pydantic.Field(ge=0)] = 0
    """Kernels at once; 0 means as many as `memory_share` of the machine's memory holds."""
    memory_share: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.8
    """Part of the machine's memory that idle kernels may fill, when `concurrent` is 0."""
    idle_seconds: fields.Seconds = 30 * 60.0
    """A kernel unused for this long is let go."""
    start_seconds: fields.Seconds = 30.0
    """How long a kernel may take to start, once it need not wait for others."""
    interrupt_grace_seconds: fields.Seconds = 4.0
    """How long code may take to react to an interrupt before its kernel is killed."""


class Sandbox(fields.Group):
    """The walls."""

    enabled: bool = True
    """Only the flag `--unsafe-no-sandbox` turns this off; a file or variable cannot."""
    first_uid: Annotated[int, pydantic.Field(ge=1000)] = 1_600_000_000
    """First host user id of the range for kernels, when the bot runs as root."""
    uid_count: Annotated[int, pydantic.Field(ge=1000, le=1_000_000)] = 65_536
    """Length of that range; each session gets an id of its own."""
    cgroups: Literal["auto", "off"] = "auto"
    """Use control groups where they are writable, or never."""


def _default_data() -> pathlib.Path:
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/interpreter-bot")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return pathlib.Path(state).expanduser() / "interpreter-bot"


def _default_runtime() -> pathlib.Path:
    if os.geteuid() == 0:
        return pathlib.Path("/run/interpreter-bot")
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if directory and os.access(directory, os.W_OK):
        return pathlib.Path(directory) / "interpreter-bot"
    # Created with mode 0700, and refused when another user created it first.
    return pathlib.Path(f"/tmp/interpreter-bot-{os.geteuid()}")  # noqa: S108


class Paths(fields.Group):
    """Paths on the host."""

    data: pathlib.Path = pydantic.Field(default_factory=_default_data)
    """Workspaces and the database; survives restarts."""
    runtime: pathlib.Path = pydantic.Field(default_factory=_default_runtime)
    """Sockets and other things of one run. Keep it short: socket paths end at 107 bytes."""
