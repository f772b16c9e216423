"""The doctor: the consequence of each failed check, how to fix it, and the details of a check.

Details, which follow the name of a check, are phrases without a capital and a full stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interpreter_bot import shipped_files
from interpreter_bot.text import quantities

_REPORT_FAULT: Final = (
    "The sandbox was built, and this protection does not work, so something beneath the bot "
    "behaves differently here. Do not let strangers run code, and report this output with the "
    "output of `uname -a`."
)
_FIX_CONTROL_GROUPS: Final = (
    f"systemd: install {shipped_files.DEPLOY}/interpreter-bot.service, which sets `Delegate=yes`, "
    "or start by hand with `systemd-run --user --scope -p Delegate=yes interpreter-bot …`. Docker: "
    "only with `--privileged`. Without it, bound the bot as a whole with `--memory`, "
    "`--pids-limit` and `--cpus`."
)
DOCKER: Final = (
    "Docker: `docker run --user 1001 --cap-drop ALL --security-opt no-new-privileges "
    "--security-opt seccomp=interpreter-bot.json --security-opt systempaths=unconfined …`. "
    f"{shipped_files.DEPLOY}/docker/README.md says how to make the seccomp profile "
    "(`seccomp=unconfined` will do for a try). On hosts with AppArmor, add `--security-opt "
    "apparmor=…`. Neither `--privileged` nor `--cap-add SYS_ADMIN` is needed."
)

_NO_SLACK: Final = "The bot does not answer on Slack."
_NO_DISCORD: Final = "The bot does not answer on Discord."
_SET_MODEL: Final = (
    "Run `interpreter-bot setup`, or set OPENAI_API_KEY, ANTHROPIC_API_KEY, or OPENAI_BASE_URL "
    "for a server of your own."
)
_NO_PACKAGES: Final = "People and models cannot install packages."
_FIX_CONTENT: Final = "Switch Message Content Intent on, on the Bot page of discord.com/developers."
FIX_SCOPES: Final = (
    "At api.slack.com/apps, replace the text under App Manifest with that of "
    f"{shipped_files.MANIFEST}, and install the app again."
)

CHECKS: Final[dict[str, tuple[str, str]]] = {
    "sandbox": ("There is no sandbox: code could do whatever the bot may.", ""),
    "user namespace": ("Code would run as a user of the host.", _REPORT_FAULT),
    "namespaces": (
        "Code could see or signal processes of the host or of other sessions.",
        _REPORT_FAULT,
    ),
    "read-only root": ("Code could change programs that later sessions run.", _REPORT_FAULT),
    "files": (
        "Code could read secrets of the host, of the bot or of other sessions.",
        _REPORT_FAULT,
    ),
    "second wall of files": (
        "Only mounts keep code away from the host's files; there is no second protection.",
        "Use Linux 5.19 or newer with CONFIG_SECURITY_LANDLOCK=y and with `landlock` among its "
        "security modules (see `cat /sys/kernel/security/lsm`; boot parameter `lsm=`). In a "
        "container, allow the system calls `landlock_*`.",
    ),
    "changes elsewhere": (
        "Code could change programs, or files of the bot and of other sessions.",
        _REPORT_FAULT,
    ),
    "other processes": ("Code could look into processes of the bot or of others.", _REPORT_FAULT),
    "signals": ("Code could end the bot, or other sessions.", _REPORT_FAULT),
    "shared objects": (
        "Code could read the shared memory of other programs, or talk with them.",
        _REPORT_FAULT,
    ),
    "proc": (
        "Code could look into processes, or change settings of the host's kernel.",
        _REPORT_FAULT,
    ),
    "environment": ("Code could read the bot's tokens.", _REPORT_FAULT),
    "host name": (
        "Code learns the name of this machine, and nothing else about it.",
        "Leave `ProtectHostname=` out of the bot's systemd unit. In a container, allow the system "
        "call `sethostname`.",
    ),
    "descriptors": ("Code could use files that the bot holds open.", _REPORT_FAULT),
    "doors": ("Code cannot reach the hosts listed under `egress`.", _REPORT_FAULT),
    "network": ("Code could reach services of this machine and the internet.", _REPORT_FAULT),
    "privileges": ("Code could gain rights over the host.", _REPORT_FAULT),
    "system calls": ("More of the host's kernel would be open to attack.", _REPORT_FAULT),
    "nested namespaces": (
        "Code could become root of a namespace, and attack the kernel from there.",
        _REPORT_FAULT,
    ),
    "idle sessions": ("Code could continue to run in sessions that nobody uses.", _REPORT_FAULT),
    "user id per session": (
        "All sessions have the same user id on the host. Only namespaces keep them apart, and one "
        "session can use up what the host allows each user.",
        "Let the bot's user give ids away: `sudo apt install uidmap && sudo usermod "
        "--add-subuids 1700000000-1700065535 --add-subgids 1700000000-1700065535 USER`. Under "
        f"systemd, also install {shipped_files.DEPLOY}/subordinate-ids.conf, which lets newuidmap "
        "work. "
        "Or start the bot as root: then each kernel gets one of the 65,536 ids from "
        "sandbox.first_uid on, and none is root.",
    ),
    "core dumps": (
        "A crash starts the host's own handler, as root and outside of every limit.",
        "Run `sudo sysctl kernel.core_pattern=core`. If the pattern begins with `|`, you can "
        "instead start the bot with a hard limit above 0 on the size of core files (systemd: "
        "`LimitCORE=infinity`).",
    ),
    "memory of the machine": (
        "Memory that is charged to no session can use up the machine's.",
        "Set limits.memory_reserve_bytes to less than what is available, and more than 0. Or give "
        "the machine more memory, or stop other programs.",
    ),
    "control group": (
        "The memory of a session is only checked four times a second, and very fast code can "
        "exceed its limit in between. Processor time is limited to whole cores and divided by "
        "session, so people with several busy sessions get more of it.",
        _FIX_CONTROL_GROUPS,
    ),
    "python": (
        "Code cannot import the missing packages, or imports them anew in every session.",
        "Run `interpreter-bot libraries`, install what is missing for the kernels' Python, or set "
        "kernels.python or kernels.preload.",
    ),
    "libraries for code": (
        "Code runs with the library versions of an older release of the bot.",
        "Run `interpreter-bot libraries` where the package index can be reached.",
    ),
    "disk": (
        "Sessions cannot keep files.",
        "Free space, or set paths.data to a directory that the bot can write to and that has room.",
    ),
    "open files of the bot": (
        "One session may keep all others from starting Python.",
        "Raise the hard limit of open files: `LimitNOFILE=65536` (systemd) or `--ulimit "
        "nofile=65536` (Docker).",
    ),
    "skills": (
        "Neither models nor code can use the skills that are off.",
        "Read what has changed, then run `interpreter-bot skills accept NAME@DIGEST`.",
    ),
    "tools": (
        "Code cannot call the tools that are off.",
        "Run `interpreter-bot tools`, and read what has changed. The list ends with the command "
        "that accepts it.",
    ),
    "logins at tools": (
        "People cannot let the bot call tools with their own accounts.",
        "Set tool_logins.public_url to the https address under which browsers reach "
        "tool_logins.listen, and keep the encryption keys where the bot can read them.",
    ),
    "connection": (
        "Code cannot query it.",
        "Check its `address` and `options`, and whether the bot's machine can connect to it.",
    ),
    "read-only login": (
        "Only the bot's own checks keep code from changing data.",
        "Use a login that can only read: CREATE ROLE … LOGIN; GRANT SELECT ON … TO …",
    ),
    "functions of a login": (
        "Only the bot's own list of names keeps code from calling these functions, which end other "
        "people's queries, hold locks, or fill the server's disk.",
        "",
    ),
    "package index": (
        _NO_PACKAGES,
        "Check package_index.url and netrc_file, and whether the bot's machine can connect to it. "
        "Set SSL_CERT_FILE to a company's own certificates, and HTTPS_PROXY, HTTP_PROXY and "
        "NO_PROXY for its proxy, where the Python host is started. If the index does not say when "
        "files were uploaded, set package_index.cooldown_days = 0.",
    ),
    "kept packages": (_NO_PACKAGES, "Let the bot write to that directory (paths.data)."),
    "host": (
        "Sessions on this host wait, and then start again on another one. Other sessions continue.",
        "Read the log of that host. Check that host.listen, the network and the certificates of "
        "both ends (`interpreter-bot host certificate`) let this machine reach it.",
    ),
    "model": (
        "This model answers no questions. People's own code still runs.",
        "Check the address and name of the model, and the variable that holds its key. The bot's "
        "log has the server's answer.",
    ),
    "no model": (
        "Only the small demo model answers. It is downloaded with the first question (1.04 GiB).",
        _SET_MODEL,
    ),
    "no demo model": ("No question is answered. People's own code still runs.", _SET_MODEL),
    "Slack bot token": (
        _NO_SLACK,
        "Copy the Bot User OAuth Token (xoxb-…) from api.slack.com/apps > OAuth & Permissions, and "
        "set SLACK_BOT_TOKEN to it.",
    ),
    "Slack app token": (
        _NO_SLACK,
        "Make an app-level token (xapp-…) with connections:write at api.slack.com/apps > Basic "
        "Information, and set SLACK_APP_TOKEN to it.",
    ),
    "Slack scopes": ("Features that need these permissions fail on Slack.", FIX_SCOPES),
    "Discord token": (
        _NO_DISCORD,
        "Reset the token on the Bot page of discord.com/developers, and set DISCORD_TOKEN to it.",
    ),
    "Discord messages": (
        "In channels and in its own threads, the bot reads only messages that mention it or reply "
        "to it.",
        _FIX_CONTENT,
    ),
}
"""By name of check: consequence and fix."""

# The sandbox, and how to get a stronger one.
STRONGER: Final = "Get a stronger level: see `namespaces`."
WITHOUT_NAMESPACES: Final = (
    "Code runs at the level 'container': Landlock, user ids and the system call filter keep "
    "sessions apart. Code sees the names and numbers of all processes here, a flaw of the kernel "
    "endangers all that runs in this container, and memory is watched, not bounded."
)
SHARED_ID_IN_CONTAINER: Final = (
    "All sessions have the bot's user id: only Landlock and the system call filter keep them "
    "apart. Code can tell that files of the bot exist, with their sizes and times, and read a file "
    "in /dev/shm if it knows its name.",
    "Start the bot as the container's root, with its usual capabilities (`docker run --user 0`): "
    "then each session gets a user id of its own, and none is root.",
)
"""Consequence and fix."""
NAMESPACES_FORBIDDEN: Final = (
    "Something around the bot forbids user namespaces, or mounting in them. Try `unshare --user "
    "--map-root-user --mount --pid --fork true` as the bot's user. Under systemd, leave "
    "RestrictNamespaces=, ProtectProc=, ProtectKernelTunables=, PrivateUsers= and "
    f"SystemCallFilter= out of the unit (see {shipped_files.DEPLOY}/interpreter-bot.service)."
)
NOT_AS_ROOT: Final = (
    "Without namespaces, only a bot that is root gives each session a user id of its own. Let "
    "other users enter the directory of the kernels' Python (`chmod o+x`) or move that Python "
    "elsewhere, and leave the container the capabilities CHOWN, SETGID and SETUID."
)
NO_USER_NAMESPACES: Final = "This kernel has no user namespaces. Use one with CONFIG_USER_NS=y."
APPARMOR: Final = (
    "Ubuntu's AppArmor allows user namespaces only to programs with a profile. Write the path of "
    f"the bot's Python into {shipped_files.DEPLOY}/apparmor/interpreter-bot, then run `sudo "
    f"install -m 644 {shipped_files.DEPLOY}/apparmor/interpreter-bot /etc/apparmor.d/ && "
    "sudo apparmor_parser -r "
    "/etc/apparmor.d/interpreter-bot`."
)
KERNEL_TOO_OLD: Final = "This kernel is too old. Linux 5.12 or newer is needed."
PROC_COVERED: Final = (
    "Something is mounted over parts of /proc. Under systemd, leave ProtectProc=, "
    "ProtectKernelTunables= and ProtectKernelLogs= out of the bot's unit."
)
SET_DIRECTORIES: Final = "Set paths or TMPDIR to directories that the bot can write to."
SET_PYTHON: Final = (
    "Run `interpreter-bot libraries`, or set kernels.python to an interpreter with ipykernel and "
    "cloudpickle."
)
ALLOW_NAMESPACES: Final = 'Remove sandbox.level = "container" from the settings.'
SWITCHED_OFF: Final = "switched off in the settings"
NO_CHECK_RESULT: Final = "the check did not answer"
NOT_FROZEN: Final = (
    "not frozen without control groups of version 2: what code left running continues"
)
SEPARATE_NAMESPACES: Final = "pid, mnt, net, ipc, uts: one per session"
DIFFERENT_IN_CONTAINERS: Final = {
    "host name": "the container's own",
    "second wall of files": "Landlock is the first one at the level 'container'",
}
"""By name of check: what is different at the level 'container'."""

# Models.
NO_MODEL: Final = "none is set up"

# Slack and Discord.
ALL_SCOPES: Final = "all that the manifest asks for"
SOCKET_MODE: Final = "Socket Mode can connect"
CONTENT_GRANTED: Final = "message content is granted"
NO_CONTENT: Final = "the message-content intent is off"
CHECK_NETWORK: Final = "Check whether this machine can connect to it, and whether it needs a proxy."

# Data connections.
READS_ONLY: Final = "its login can change nothing"

# The package index, and installed packages.
TRIAL_PACKAGE: Final = "six"
"""Every copy of the public index has it, and it has no dependencies."""
TRIAL_NOT_FOUND: Final = f"{TRIAL_PACKAGE} was not found"
INDEX_ANSWERED: Final = "answered"
INDEX_LACKS_TRIAL: Final = f"answered, but has no usable package {TRIAL_PACKAGE},"

# Hosts of a fleet.
EMPTY_FLEET: Final = "host.fleet names no host"
TAKES_SESSIONS: Final = "takes sessions"
TAKES_NO_SESSIONS: Final = "takes no new sessions"


def no_ids_in_namespace(first: int, last: int) -> str:
    return (
        f"Root has no user ids {first} to {last} here, because it is root only of a user "
        "namespace. Start the bot as another user, or set sandbox.first_uid to the beginning of a "
        "range of at least 1,000 ids that exists (see `cat /proc/self/uid_map`)."
    )


def allow_namespaces_by_sysctl(setting: str) -> str:
    return (
        f"Allow user namespaces: `echo {setting} | sudo tee "
        "/etc/sysctl.d/60-interpreter-bot.conf && sudo sysctl --system`."
    )


def refused(reason: str) -> str:
    return f"refused: {reason}"


def host_users(uids: Sequence[int], *, is_apart: bool) -> str:
    users = ", ".join(map(str, uids)) or "unknown"
    flaw = "" if is_apart else "; not in user namespaces of their own"
    return f"on the host, sessions run as user {users}{flaw}"


def shared_namespaces(kinds: Sequence[str]) -> str:
    return f"shared with the host or other sessions: {', '.join(kinds)}"


def same_user(uid: object) -> str:
    return f"all sessions run as user {uid}"


def libraries_of_release(name: str) -> str:
    return f"{name}, those of this release"


def free_disk(data: object, free_bytes: int, largest: Sequence[tuple[str, int]]) -> str:
    parts = ", ".join(f"{quantities.size(size_bytes)} in {name}" for name, size_bytes in largest)
    details = f"; the largest parts are {parts}" if parts else ""
    return f"{data}: {quantities.size(free_bytes)} free{details}"


def disk_needed(needed_bytes: int) -> str:
    return f"; a session and the reserve can take {quantities.size(needed_bytes)}"


def not_writable(path: object) -> str:
    return f"the bot cannot write to {path}"


def memory_left(free_bytes: int, reserve_bytes: int) -> str:
    return (
        f"{quantities.size(free_bytes)} available; below {quantities.size(reserve_bytes)} the "
        "session that uses most is ended"
    )


def open_files(limit: int, session_count: int, needed: int) -> str:
    limit_text = f"limit {limit:,}" if limit >= 0 else "no limit"
    return f"{limit_text}; {session_count} sessions need {needed:,}"


def switched_on(on_count: int, all_things: str, off_names: Sequence[str]) -> str:
    """Return how many of some things are on, and which are off."""
    missing = f"; off: {', '.join(off_names)}" if off_names else ""
    return f"on: {on_count} of {all_things}{missing}"


def tools_not_listed(server: str) -> str:
    return f"all of {server} (not listed yet)"


def only_local_logins(server: str) -> str:
    return f"tool_logins.public_url is not set, so only people at this machine can log in: {server}"


def local_port(port: int) -> str:
    return f"port {port} of this machine"


def missing(names: Sequence[str]) -> str:
    return f"missing: {', '.join(names)}"


def logged_in_as(identity: str) -> str:
    return f"logged in as {identity}"


def answered_within(duration: str) -> str:
    return f"answered within {duration}"


def can_write(rights: str) -> str:
    return f"its login can {rights}"


def can_call(count: int) -> str:
    return f"its login can call {quantities.count(count, 'function')} with effects"


def revoke(functions: Sequence[str]) -> str:
    return (
        f"As the database's owner: REVOKE EXECUTE ON FUNCTION {', '.join(functions)} FROM PUBLIC; "
        "and GRANT it to the roles that need it."
    )


def index_policy(
    allow: Sequence[str], deny: Sequence[str], cooldown_days: int, missing_imports: str
) -> str:
    """Return which packages may be installed."""
    allowed = "all names" if "*" in allow else ", ".join(allow) or "nothing"
    denied = f" but {', '.join(deny)}" if deny else ""
    age = f", at least {quantities.count(cooldown_days, 'day')} old" if cooldown_days else ""
    return f"{allowed}{denied} may be installed{age}; missing imports: {missing_imports}"


def layers(count: int, directory: object, size_bytes: int, limit_bytes: int) -> str:
    size, limit = quantities.size(size_bytes), quantities.size(limit_bytes)
    return f"{quantities.count(count, 'layer')} in {directory}: {size} of {limit}"


def host_state(release: str, kernels: int, *, is_draining: bool, is_sandboxed: bool) -> str:
    state = TAKES_NO_SESSIONS if is_draining else TAKES_SESSIONS
    walls = "" if is_sandboxed else ", WITHOUT a sandbox"
    return f"release {release}, {quantities.count(kernels, 'kernel')}, {state}{walls}"
