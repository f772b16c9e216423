"""Advice: what is lost without each protection, and how to get it on this machine.

Whether a protection works is decided in `diagnosis`; files of /proc only choose the sentences.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

from interpreter_bot import settings
from interpreter_bot.kernels.provisioning import subordinate_ids

_PROC: Final = pathlib.Path("/proc")
_REPORT: Final = (
    "The walls were built, and this one does not hold: something beneath the bot works unlike on "
    "other machines. Do not let strangers run code here, and report this output with `uname -a`."
)
_DELEGATE: Final = (
    "systemd: install deploy/interpreter-bot.service, whose `Delegate=yes` does it; by hand: "
    "`systemd-run --user --scope -p Delegate=yes interpreter-bot …`. Docker: not to be had without "
    "`--privileged`; `--memory`, `--pids-limit` and `--cpus` bound the bot as a whole."
)
_DOCKER: Final = (
    "Docker: `docker run --user 1001 --cap-drop ALL --security-opt no-new-privileges "
    "--security-opt seccomp=interpreter-bot.json --security-opt systempaths=unconfined …`, with "
    "the profile that deploy/docker/README.md tells how to make (`seccomp=unconfined` for a "
    "try), and `--security-opt apparmor=…` on hosts with AppArmor. Neither `--privileged` nor "
    "`--cap-add SYS_ADMIN`."
)

KNOWN: Final[dict[str, tuple[str, str]]] = {
    "sandbox": ("There are no walls at all: code could do whatever the bot may.", ""),
    "user namespace": ("Code would run as a user that the host knows.", _REPORT),
    "namespaces": ("Code could see or signal processes of the host or of other sessions.", _REPORT),
    "read-only root": ("Code could change programs that later sessions run.", _REPORT),
    "files": ("Code could read secrets of the host, of the bot or of other sessions.", _REPORT),
    "second wall of files": (
        "Only mounts keep code from files of the host, with nothing behind them.",
        "Linux 5.19 or newer with CONFIG_SECURITY_LANDLOCK=y, and `landlock` in its list of "
        "security modules (`cat /sys/kernel/security/lsm`; boot parameter `lsm=`); in a container, "
        "allow the system calls `landlock_*`.",
    ),
    "changes elsewhere": (
        "Code could change programs, or files of the bot and of other sessions.",
        _REPORT,
    ),
    "other processes": ("Code could look into processes of the bot or of others.", _REPORT),
    "signals": ("Code could end the bot, or other sessions.", _REPORT),
    "shared objects": ("Code could read what other programs share, or talk with them.", _REPORT),
    "proc": ("Code could look into processes, or change settings of the host's kernel.", _REPORT),
    "environment": ("Code could read the bot's tokens.", _REPORT),
    "host name": (
        "Code learns what this machine is called, and nothing else of it.",
        "Leave `ProtectHostname=` out of the bot's systemd unit; in a container, allow the system "
        "call `sethostname`.",
    ),
    "descriptors": ("Code could use files that the bot holds open.", _REPORT),
    "doors": ("Code reaches nothing of what `egress` lists.", _REPORT),
    "network": ("Code could reach services of this machine and the internet.", _REPORT),
    "privileges": ("Code could gain rights over the host.", _REPORT),
    "system calls": ("More of the host's kernel would be open to attack.", _REPORT),
    "nested namespaces": ("Code could become root of a namespace and attack from there.", _REPORT),
    "idle sessions": ("Code could go on in sessions that nobody uses.", _REPORT),
    "user id per session": (
        "All sessions share one user id of the host: namespaces alone keep them apart, and what "
        "the host counts by user, one can use up for all.",
        "Grant the bot's user ids to give away: `sudo apt install uidmap && sudo usermod "
        "--add-subuids 1700000000-1700065535 --add-subgids 1700000000-1700065535 USER`; under "
        "systemd also deploy/subordinate-ids.conf, which lets newuidmap work. "
        "Or start the bot as root: then each kernel gets an id between sandbox.first_uid and "
        "first_uid + uid_count, and none is root.",
    ),
    "core dumps": (
        "A crash starts the host's own handler, as root and outside of every limit.",
        "`sudo sysctl kernel.core_pattern=core`; or, where the pattern begins with `|`, start the "
        "bot with a hard limit of core files above 0 (systemd: `LimitCORE=infinity`).",
    ),
    "out of memory": (
        "Should the machine's memory be used up, the bot may be ended instead of a session.",
        _REPORT,
    ),
    "memory of the machine": (
        "What is counted for no session may use up the machine's memory.",
        "Set limits.memory_reserve_bytes to less than what is available, and more than 0; give the "
        "machine more memory, or stop other programs.",
    ),
    "control group": (
        "Memory of a session is bounded by looking four times a second, which something very "
        "fast can outrun. Processor time is bounded to whole cores and shared by sessions, so "
        "whoever has more of them computing gets more.",
        _DELEGATE,
    ),
    "python": (
        "What is missing cannot be imported by code, or is imported anew in every session.",
        "Run `interpreter-bot libraries`, install what is missing for the kernels' Python, or set "
        "kernels.python or kernels.preload.",
    ),
    "libraries for code": (
        "Code runs with the versions of its libraries that an older release of the bot named.",
        "Run `interpreter-bot libraries` where the package index can be reached.",
    ),
    "disk": (
        "Sessions cannot keep files.",
        "Free space, or set paths.data to a directory that the bot may write to and that has room.",
    ),
    "open files of the bot": (
        "One session may keep all others from getting a kernel.",
        "Raise the hard limit of open files: systemd: `LimitNOFILE=65536`; Docker: `--ulimit "
        "nofile=65536`.",
    ),
    "skills": (
        "Neither models nor kernels see those that are off.",
        "Read what has changed, then: interpreter-bot skills accept NAME@DIGEST.",
    ),
    "tools": (
        "Code cannot call those that are off.",
        "Read what has changed: interpreter-bot tools; it ends with the command that accepts it.",
    ),
    "logins at tools": (
        "People cannot let the bot call tools with their own accounts.",
        "Set tool_logins.public_url to where their browsers reach tool_logins.port, by https; keep "
        "the keys of encryption where the bot can read them.",
    ),
    "runtime directory": (
        "No kernel can be reached: socket paths end at 107 bytes.",
        "Set paths.runtime to a shorter path that the bot may write to, such as "
        "/run/interpreter-bot.",
    ),
}
"""By name of finding: (consequence, fix)."""
STRONGER: Final = "Get a stronger level: see `namespaces`."
WITHOUT_NAMESPACES: Final = (
    "Code runs at the level 'container': Landlock, user ids and the system call filter keep "
    "sessions apart. Code sees the names and numbers of all processes here, a flaw of the kernel "
    "endangers all that runs in this container, and memory is watched, not bounded."
)
SHARED_ID_IN_CONTAINER: Final = (
    "All sessions have the bot's user id: Landlock and the system call filter alone keep them "
    "apart. Code can tell that files of the bot exist, their sizes and times, and read a file in "
    "/dev/shm whose name it knows.",
    "Start the bot as the container's root, with its usual capabilities (`docker run --user 0`): "
    "then each session gets a user id of its own, and none is root.",
)
"""Consequence and fix."""


def advice_for(reason: str, sandbox: settings.Sandbox) -> str:
    """Return how to make the sandbox work on this machine, after it failed for `reason`."""
    steps = [*_about_namespaces(), *_about_reason(reason), *_about_ids(sandbox)]
    if not steps and is_container():
        steps.append(_DOCKER)
    if not steps:
        steps.append(
            "Something around the bot forbids user namespaces or mounting in them. Try "
            "`unshare --user --map-root-user --mount --pid --fork true` as the bot's user; "
            "systemd: no RestrictNamespaces=, ProtectProc=, ProtectKernelTunables=, PrivateUsers= "
            "or SystemCallFilter= in its unit (see deploy/interpreter-bot.service)."
        )
    if "code would run as root" in reason:
        steps.append(
            "Without namespaces, a bot that is root gives each session a user id of its own: let "
            "other users pass the directory (`chmod o+x`) or move the kernels' Python out of it, "
            "and leave the container the capabilities CHOWN, SETGID and SETUID."
        )
    return " ".join(steps)


def _about_namespaces() -> list[str]:
    steps = []
    if not (_PROC / "self/ns/user").exists():
        steps.append("This kernel has no user namespaces: run one with CONFIG_USER_NS=y.")
    if _sysctl("user/max_user_namespaces") == "0":
        steps.append(_persist("user.max_user_namespaces=15000"))
    if os.geteuid() != 0 and _sysctl("kernel/unprivileged_userns_clone") == "0":
        steps.append(_persist("kernel.unprivileged_userns_clone=1"))
    if os.geteuid() != 0 and _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        steps.append(
            "Ubuntu's AppArmor lets only programs with a profile make user namespaces: `sudo "
            "install -m 644 deploy/apparmor/interpreter-bot /etc/apparmor.d/ && sudo "
            "apparmor_parser -r /etc/apparmor.d/interpreter-bot`, after writing into it where the "
            "bot's Python is."
        )
    return steps


def _about_reason(reason: str) -> list[str]:
    steps = []
    if "Function not implemented" in reason:
        steps.append("This kernel is too old: 5.12 is the first to have what it takes.")
    if "mount" in reason and "proc" in reason and not is_container():
        steps.append(
            "Something is mounted over parts of /proc; systemd: no ProtectProc=, "
            "ProtectKernelTunables= or ProtectKernelLogs= in the bot's unit."
        )
    return steps


def _about_ids(sandbox: settings.Sandbox) -> list[str]:
    uid_map = _PROC / "self/uid_map"
    try:
        lines = uid_map.read_text("ascii").splitlines()
    except OSError:
        return []
    if subordinate_ids.within_namespace(sandbox, uid_map) is not sandbox:
        return []  # The sandbox uses another range of ids.
    last = sandbox.first_uid + sandbox.uid_count - 1
    spans = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    if os.geteuid() != 0 or any(f <= sandbox.first_uid and last < f + n for f, n in spans):
        return []
    return [
        f"Root has no user ids {sandbox.first_uid} to {last} here, as it is that of a user "
        "namespace: start the bot as another user, or set sandbox.first_uid and sandbox.uid_count "
        "to a range there is (`cat /proc/self/uid_map`)."
    ]


def is_container() -> bool:
    """Return whether this looks like the inside of a container."""
    return any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))


def _sysctl(name: str) -> str:
    try:
        return (_PROC / "sys" / name).read_text("ascii").strip()
    except OSError:
        return ""


def _persist(setting: str) -> str:
    return (
        f"`echo {setting} | sudo tee /etc/sysctl.d/60-interpreter-bot.conf && sudo sysctl --system`"
        " allows user namespaces."
    )
