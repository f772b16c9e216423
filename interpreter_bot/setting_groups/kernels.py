"""Settings of kernels, their limits and walls."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated, ClassVar, Final, Literal

import pydantic

from interpreter_bot.setting_groups import fields


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# V8, which draws Altair's charts, reserves 64 GiB of addresses that it never uses. RLIMIT_DATA, the
# cgroup and the watchdog bound the memory that is used.
_ADDRESS_ALLOWANCE_BYTES: Final = 128 * fields.GIB


class Limits(fields.Group):
    """What one session may use."""

    execution_seconds: fields.Seconds = 60.0
    """Wall time of one execution. Printing does not extend it."""
    input_seconds: fields.Seconds = 600.0
    """How long `input()` waits for a person. Does not count as execution time."""
    memory_bytes: fields.Positive = 1_825_361_920
    """Memory of one session: all its processes together; with control groups, also its temporary
    files. They are in memory: /tmp and /dev/shm may have an eighth of it each."""
    processes: Annotated[int, pydantic.Field(ge=8)] = 128
    """Processes and threads of one session."""
    cpu_cores: Annotated[float, pydantic.Field(gt=0, le=1024)] = 1.0
    """Processor cores of one session; 0.5 is half a core."""
    workspace_bytes: fields.Positive = 2 * fields.GIB
    """Total size of /mnt/data. One file that code writes may have half of it."""
    workspace_files: fields.Positive = 10_000
    """Files and directories in /mnt/data."""
    disk_reserve_bytes: Annotated[int, pydantic.Field(ge=0)] = 1 * fields.GIB
    """Free space on the disk of the data directory. Below it, running code is stopped."""
    memory_reserve_bytes: Annotated[int, pydantic.Field(ge=0)] = pydantic.Field(
        default_factory=lambda: min(512 * fields.MIB, _memory_bytes() // 16)
    )
    """Available memory of the machine. Below it, the session that took most of it is ended. Inside
    the bot's own control group, at most a sixteenth of the group's limit is kept free."""
    upload_bytes: fields.Positive = 512 * fields.MIB
    """Size of one file that a person sends."""
    output_bytes: fields.Positive = 1_000_000
    """Printed text per stream and execution. Longer text loses its middle."""
    displays: ClassVar[int] = 50
    """Pictures, tables and other displays of one execution. More are counted but not shown."""

    @property
    def temporary_bytes(self) -> int:
        """Size of /tmp and of /dev/shm, each."""
        return self.memory_bytes // 8

    @property
    def address_space_bytes(self) -> int:
        """Size of a process's address space, which libraries reserve and do not use."""
        return self.memory_bytes + _ADDRESS_ALLOWANCE_BYTES

    @property
    def file_bytes(self) -> int:
        """Size of one file that code writes."""
        return self.workspace_bytes // 2


class Kernels(fields.Group):
    """How kernels are started, and how long they live."""

    python: pathlib.Path | None = None
    """The Python that runs user code: any environment with ipykernel and cloudpickle. By default
    the one that the bot has installed for it."""
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
    """Modules that are imported once, before kernels are forked. Missing ones are skipped and
    logged."""
    doors: bool = False
    """Let the bot listen inside the networks of kernels even if no `egress` is listed. Hosts of a
    fleet need it."""
    spares: Annotated[int, pydantic.Field(ge=0, le=64)] = 2
    """Idle kernels that are kept ready for new sessions."""
    concurrent: Annotated[int, pydantic.Field(ge=0)] = 0
    """Kernels at the same time. 0 means as many as fit into 80 % of the memory."""
    per_person: Annotated[int, pydantic.Field(ge=0)] = 5
    """Kernels of one person. The next one replaces their longest idle one. 0 means no limit but
    `concurrent`."""
    idle_seconds: fields.Seconds = 30 * 60.0
    """A kernel that is unused for this long is ended. Its variables are saved first."""
    rest_seconds: Annotated[float, pydantic.Field(ge=0)] = 30 * 60.0
    """If no kernel was used for this long and none is left, the spares and the preloaded modules
    are released too. The next start then takes some seconds. 0 means never."""
    freeze_seconds: Annotated[float, pydantic.Field(ge=0)] = 30.0
    """A kernel that is unused for this long is frozen, with everything its code left running, until
    it is used again. 0 means never. Takes control groups of version 2, which may be there beside
    those of version 1."""


class Sandbox(fields.Group):
    """The walls around kernels."""

    level: Literal["auto", "full", "standard", "container"] = "auto"
    """`full`: namespaces, and a control group for each session. `standard`: namespaces.
    `container`: neither, for an ordinary container; Landlock and user ids instead. `auto` takes the
    strongest that works. If you name a level, the bot refuses to start without it."""
    first_uid: Annotated[int, pydantic.Field(ge=1000)] = 1_600_000_000
    """First of 65,536 host user ids if the bot runs as root. Each session gets its own; the first
    256 are for programs of MCP servers."""
    _is_enabled: bool = pydantic.PrivateAttr(default=True)
    _may_use_cgroups: bool = pydantic.PrivateAttr(default=True)
    _uid_count: int = pydantic.PrivateAttr(default=65_536)

    @property
    def enabled(self) -> bool:
        """Whether there are walls; only the option `--unsafe-no-sandbox` turns them off."""
        return self._is_enabled

    def with_walls(self, *, enabled: bool) -> Sandbox:
        """Return a copy with the walls on or off."""
        sandbox = self.model_copy()
        sandbox._is_enabled = enabled
        return sandbox

    @property
    def uses_cgroups(self) -> bool:
        """Whether control groups are used if the machine offers them."""
        return self._is_enabled and self._may_use_cgroups

    def without_cgroups(self) -> Sandbox:
        """Return a copy that uses no control group, as on machines that offer none."""
        sandbox = self.model_copy()
        sandbox._may_use_cgroups = False
        return sandbox

    @property
    def uid_count(self) -> int:
        """Number of user ids from `first_uid` on; fewer if the machine grants fewer."""
        return self._uid_count

    def with_uids(self, first_uid: int, count: int) -> Sandbox:
        """Return a copy with other user ids."""
        sandbox = self.model_copy(update={"first_uid": first_uid})
        sandbox._uid_count = count
        return sandbox


class Host(fields.Group):
    """The process that keeps the kernels, so that they outlive the bot."""

    mode: Literal["inside", "own", "service"] = "own"
    """Where `interpreter-bot run` keeps kernels. `own`: in a process that it starts, and that
    ends when the bot is stopped; if the bot is killed, the next bot continues with it.
    `service`: in one that was started with `interpreter-bot host`. `inside`: in the bot's own
    process; they end with it.
    """
    bot_user: str = ""
    """For `interpreter-bot host` as root: name or number of another user whose bot may use it.
    Empty means its own user only.
    """
    listen: fields.OptionalListenAddress = ""
    """For `interpreter-bot host`: address and port, such as `0.0.0.0:7443`, where bots on other
    machines reach it over TLS. Empty means only bots on this machine.
    """
    metrics: fields.OptionalListenAddress = ""
    """For `interpreter-bot host`: address and port, such as `0.0.0.0:9464`, for `/livez`,
    `/readyz` and `/metrics` over plain HTTP, without a login. Empty means none.
    """
    fleet: tuple[str, ...] = ()
    """For bots: hosts on other machines. Each entry is an address such as `host-1.example:7443`,
    `dns:hosts.example:7443` for all addresses of a name, `ray` for the hosts that
    `interpreter-bot fleet` lists in the database, or a directory of sockets. Empty means the
    host on this machine.
    """
    lost_seconds: fields.Seconds = 30.0
    """How long a host may be unreachable before its sessions continue on another."""
    store: str = ""
    """Where hosts on several machines keep files and saved variables, so that sessions can move:
    `s3://bucket/prefix`, `gs://…`, `az://…` or `file:///mnt/shared`. Empty means the host's own
    disk. Keys come from the host's environment, such as `AWS_ACCESS_KEY_ID`. Nothing is kept there
    for bots without `fleet`.
    """
    tls: pathlib.Path | None = None
    """Directory of the files `tls.crt` and `tls.key` (certificate and key of this host or bot)
    and `ca.crt` (the authority that it trusts). Needed for `listen`, and for hosts of `fleet` on
    other machines. Changed files are read again.
    """
