"""Settings of kernels, their limits and walls."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Annotated, Literal

import pydantic

from interpreter_bot.setting_groups import fields


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
    memory_reserve_bytes: Annotated[int, pydantic.Field(ge=0)] = pydantic.Field(
        default_factory=lambda: min(512 * fields.MIB, _memory_bytes() // 16)
    )
    """Available memory of the machine; below it, the session that took most of it is ended. At most
    a sixteenth of what the bot's own control group may have is kept free in that."""
    bot_memory_bytes: Annotated[int, pydantic.Field(ge=256 * fields.MIB)] = 768 * fields.MIB
    """Memory of the bot itself; above it, the session that sends most is ended."""
    file_bytes: fields.Positive = 1 * fields.GIB
    """Size of any one file that code writes."""
    upload_bytes: fields.Positive = 512 * fields.MIB
    """Size of one file that a person sends."""
    temporary_bytes: fields.Positive = 256 * fields.MIB
    """Size of the private /tmp and of /dev/shm; memory, which control groups count as such."""
    output_bytes: fields.Positive = 1_000_000
    """Printed text of each stream of an execution; longer text loses its middle to a notice."""
    displays: fields.Positive = 50
    """Images, tables and other displays of one execution; further ones are counted, not shown."""
    display_bytes: Annotated[int, pydantic.Field(gt=0, le=15 * fields.MIB)] = 12 * fields.MIB
    """Size of one display, as encoded on the wire."""
    open_files: Annotated[int, pydantic.Field(ge=64)] = 1024
    """File descriptors of one process."""


class Kernels(fields.Group):
    """Where kernels come from and how long they live."""

    python: pathlib.Path = pathlib.Path(sys.executable)
    """The interpreter that runs user code: any with ipykernel and cloudpickle. Default: the bot's
    own."""
    preload: tuple[str, ...] = (
        "numpy",
        "pandas",
        "matplotlib.pyplot",
        "scipy",
        "seaborn",
        "sklearn.cluster",
        "sklearn.ensemble",
        "sklearn.linear_model",
        "plotly.express",
        "PIL.Image",
        "openpyxl",
        "pyarrow",
    )
    """Modules imported once, before any kernel is forked; missing ones are skipped and logged."""
    provisioner: str = "interpreter-bot-fork"
    """Name of the jupyter_client kernel provisioner; it must do what `ForkProvisioner` does."""
    doors: bool = False
    """Let the bot listen in the networks of kernels, also where no `egress` is listed."""
    spares: Annotated[int, pydantic.Field(ge=0, le=64)] = 2
    """Kernels kept ready for sessions to come."""
    starts: Annotated[int, pydantic.Field(ge=0)] = 0
    """Kernels that start at a time, others wait for them; 0 means one more than there are cores."""
    concurrent: Annotated[int, pydantic.Field(ge=0)] = 0
    """Kernels at once; 0 means as many as `memory_share` of the machine's memory holds."""
    per_person: Annotated[int, pydantic.Field(ge=0)] = 5
    """Kernels of one person at once; the next takes the place of their own that is idle longest.
    0 means that only `concurrent` bounds them."""
    memory_share: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.8
    """Part of the machine's memory that idle kernels may fill, when `concurrent` is 0."""
    idle_seconds: fields.Seconds = 30 * 60.0
    """A kernel unused for this long is let go."""
    rest_seconds: Annotated[float, pydantic.Field(ge=0)] = 30 * 60.0
    """Once no kernel was used for this long, and the last was let go, so is what is preloaded, with
    all spares; the next kernel takes seconds more. 0 means never."""
    freeze_seconds: Annotated[float, pydantic.Field(ge=0)] = 30.0
    """A kernel unused for this long is frozen, with everything that its code left running, until it
    is wanted again; 0 means never."""
    background_seconds: Annotated[float, pydantic.Field(ge=0)] = 0.0
    """Processor time that code may use in the background after `freeze_seconds`, before it is
    frozen."""
    start_seconds: fields.Seconds = 30.0
    """How long a kernel may take to start, once it need not wait for others."""
    interrupt_grace_seconds: fields.Seconds = 4.0
    """How long code may take to react to an interrupt before its kernel is killed."""


class Sandbox(fields.Group):
    """The walls."""

    enabled: bool = True
    """Only the flag `--unsafe-no-sandbox` turns this off; a file or variable cannot."""
    level: Literal["auto", "full", "standard", "container"] = "auto"
    """`full`: namespaces, and control groups that bound each session; `standard`: namespaces;
    `container`: neither, for an ordinary container. `auto` takes the strongest that works; each of
    the others is demanded, and the bot does not start without it."""
    first_uid: Annotated[int, pydantic.Field(ge=1000)] = 1_600_000_000
    """First user id of the range for kernels: on the host, when the bot runs as root."""
    uid_count: Annotated[int, pydantic.Field(ge=1000, le=1_000_000)] = 65_536
    """Length of that range; each session gets an id of its own."""
    subordinate_ids: Literal["auto", "off"] = "auto"
    """Give each session a user id of its own where /etc/subuid and /etc/subgid grant some to the
    bot's user, or never. As root this decides nothing."""
    cgroups: Literal["auto", "off"] = "auto"
    """Use control groups where they are writable, or never."""


class Host(fields.Group):
    """The process that keeps the kernels, so that they outlive the bot's."""

    mode: Literal["inside", "own", "service"] = "own"
    """Of `interpreter-bot run`. `own`: the bot looks for such a process, starts one where there is
    none, and ends it with itself; `service`: it only looks, for one that was started apart;
    `inside`: there is none, and kernels end with the bot, however that ends."""
    linger_seconds: fields.Seconds = 600.0
    """How long one that a bot started waits for the next bot, when its own was killed."""
    bot_user: str = ""
    """User, by name or number, whose bots may use it besides its own, where it runs as root."""
    listen: str = ""
    """Address and port, as `0.0.0.0:7443`, at which it takes bots of other machines, over TLS."""
    metrics: str = ""
    """Address and port, as `0.0.0.0:9464`, at which it says over plain HTTP, to whoever asks, that
    it lives (`/livez`), takes sessions (`/readyz`) and how full it is (`/metrics`)."""
    fleet: tuple[str, ...] = ()
    """Hosts of other machines for bots, instead of one of this: `host-1.example:7443`, or
    `dns:hosts.example:7443` for all addresses of a name, `ray` for those that `interpreter-bot
    fleet` lists in the database, or a directory of sockets."""
    lost_seconds: fields.Seconds = 30.0
    """How long one of a fleet may be away before its sessions begin again on another."""
    store: str = ""
    """Where hosts of several machines keep the files and saved variables of sessions, so that these
    go on elsewhere: `s3://bucket/prefix`, `gs://…`, `az://…` or `file:///mnt/shared`. Logins come
    from the host's environment, as `AWS_ACCESS_KEY_ID`."""
    tls: pathlib.Path | None = None
    """Directory with the certificate and key of this host or bot, and the authority that it trusts:
    `tls.crt`, `tls.key`, `ca.crt`. They are read again when they change."""
