"""Diagnosis of the sandbox on this machine: found by trying, never by versions.

Two kernels are started and try to get through every wall. Each wall gets a finding: whether it
holds, what is lost without it, how to get it, and what was seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import pathlib
import resource
import shutil
from collections.abc import Iterator, Sequence
from typing import Final

from interpreter_bot import encryption, errors, settings
from interpreter_bot.doctor import advice, trial_kernels
from interpreter_bot.kernels import machine_exhaustion
from interpreter_bot.kernels.files import directory_contents, workspace_io
from interpreter_bot.kernels.metering import session_metering
from interpreter_bot.kernels.provisioning import forkserver_clients
from interpreter_bot.mcp_servers import accepted_definitions
from interpreter_bot.skills import accepted_skills
from interpreter_bot.text import quantities

_SOCKET_PATH_BYTES: Final = 107
# A session may keep as many in flight between sockets as it may open, which count for the bot too
# where both run as the same user.
_SESSIONS_OF_FILES: Final = 4
# Of what is said to hold the disk: enough to tell, and counted in a second or two.
_MOST_BYTES: Final = 2**60
_MOST_FILES: Final = 200_000
_SHOWN: Final = 3
_EVERYWHERE: Final = {
    "files": "files",
    "environment": "environment",
    "descriptors": "descriptors",
    "network": "network",
    "privileges": "privileges",
    "system calls": "system_calls",
    "nested namespaces": "nested",
    "core dumps": "core_dumps",
    "out of memory": "out_of_memory",
    "python": "python",
}
_INSIDE: Final = {
    forkserver_clients.Walls.NAMESPACES: {
        "read-only root": "read_only_root",
        "second wall of files": "landlock",
        "proc": "proc",
        "host name": "host_name",
        "doors": "doors",
        **_EVERYWHERE,
    },
    forkserver_clients.Walls.CONTAINER: {
        "changes elsewhere": "changes",
        "other processes": "other_processes",
        "signals": "signals",
        "shared objects": "shared_objects",
        **_EVERYWHERE,
    },
}
"""By name of finding: the check that kernels run."""
_NO_WALLS: Final = {
    "core dumps",
    "doors",
    "host name",
    "out of memory",
    "python",
    "second wall of files",
}
_FROM_OUTSIDE: Final = {
    forkserver_clients.Walls.NAMESPACES: {"user namespace", "namespaces"},
    forkserver_clients.Walls.CONTAINER: set(),
}
_WALLS: Final = {
    walls: {*inside, *_FROM_OUTSIDE[walls]} - _NO_WALLS for walls, inside in _INSIDE.items()
}
_NOT_IN_CONTAINERS: Final = {
    "host name": "the container's own",
    "doors": (
        "not at the level 'container' yet: code reaches nothing of `egress` and `connections`, and "
        "no server of `mcp_servers` that is a program starts"
    ),
    "idle sessions": (
        "not at the level 'container' without control groups: nothing is frozen, and what code "
        "left running goes on"
    ),
    "second wall of files": "Landlock is the first one at the level 'container'",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        name: of a wall, a limit, or another requirement.
        is_active: whether it holds; None if there is nothing of the kind at the level of this
            machine, which is no hole.
        consequence: what is lost without it.
        fix: how to get it; where it is active, how to get it elsewhere.
        detail: what was seen.
    """

    name: str
    is_active: bool | None
    consequence: str
    fix: str
    detail: str


def diagnose(config: settings.Settings) -> tuple[Finding, ...]:
    """Run all checks, in about two seconds; never raises for what this machine lacks.

    The walls are tried even where `sandbox.enabled` is false. Runs an event loop of its own.
    """
    about_host = (
        *(_disk(config), _reserve(config), _runtime(config), _open_files(config)),
        *_skills(config),
        *_tools(config),
        *_logins(config),
    )
    told = _Complaints()
    logger = logging.getLogger("interpreter_bot.kernels")
    logger.addHandler(told)
    try:
        seen = asyncio.run(trial_kernels.probe(config))
    except (errors.BotError, OSError) as error:
        return (_no_sandbox(error, told.sentences, config.sandbox), *about_host)
    finally:
        logger.removeHandler(told)
    return (*_judge(seen, config), *about_host)


def level(findings: Sequence[Finding]) -> str:
    """Summarize as "full", "standard", "container" or "none".

    Full is every wall and a control group for each session; standard is every wall; container is
    every wall of those that do without namespaces; none is anything less.
    """
    active = {finding.name for finding in findings if finding.is_active}
    if active >= _WALLS[forkserver_clients.Walls.NAMESPACES]:
        return "full" if "control group" in active else "standard"
    return "container" if active >= _WALLS[forkserver_clients.Walls.CONTAINER] else "none"


class _Complaints(logging.Handler):
    """Log handler that collects errors: only they say why a kernel did not start."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the message of one record."""
        self.sentences.append(record.getMessage())


def _finding(name: str, is_active: bool | None, detail: str, *, fix: str = "") -> Finding:
    consequence, known_fix = advice.KNOWN[name]
    return Finding(name, is_active, consequence, fix or known_fix, detail)


def _no_sandbox(error: Exception, complaints: Sequence[str], sandbox: settings.Sandbox) -> Finding:
    hint = " `interpreter-bot doctor` says what is missing."
    reason = "; ".join([str(error).removesuffix(hint), *complaints])
    if isinstance(error, errors.SettingsError):
        fix = "Set paths or TMPDIR to directories that the bot may write to."
    elif isinstance(error, errors.KernelStartError) and not complaints:
        # The Python itself failed, before any wall.
        fix = (
            "Run `interpreter-bot libraries`, or set kernels.python to an interpreter with "
            "ipykernel and cloudpickle."
        )
    else:
        fix = advice.advice_for(reason, sandbox)
    return _finding("sandbox", False, reason, fix=fix)


def _judge(seen: trial_kernels.ProbeResults, config: settings.Settings) -> list[Finding]:
    if seen.walls is forkserver_clients.Walls.NAMESPACES:
        findings = [_user_namespace(seen), _namespaces(seen)]
    else:
        findings = [_no_namespaces(seen, config.sandbox)]
    for name, check in _INSIDE[seen.walls].items():
        wrong, detail = seen.inside.get(check, (["the probe did not answer"], ""))
        findings.append(_finding(name, not wrong, "; ".join(wrong) or detail))
    findings.append(_uid_per_session(seen))
    findings.append(_finding("control group", seen.groups_version > 0, seen.groups_reason))
    if seen.walls is forkserver_clients.Walls.CONTAINER:
        findings += _differences(seen, config)
    return findings


def _user_namespace(seen: trial_kernels.ProbeResults) -> Finding:
    own = trial_kernels.own_namespaces()["user"]
    uids = sorted({uid for session in seen.outside for uid in session.uids})
    ours = [session.namespaces.get("user", "") for session in seen.outside]
    is_apart = all(namespace not in ("", own) for namespace in ours)
    detail = f"on the host, sessions run as user {', '.join(map(str, uids)) or 'unknown'}"
    if not is_apart:
        detail += "; not in user namespaces of their own"
    return _finding("user namespace", is_apart and bool(uids) and 0 not in uids, detail)


def _namespaces(seen: trial_kernels.ProbeResults) -> Finding:
    wrong = []
    one, two = (session.namespaces for session in seen.outside)
    for kind, own in trial_kernels.own_namespaces().items():
        different = {own, one.get(kind, ""), two.get(kind, "")} - {""}
        if len(different) < 3:
            wrong.append(kind)
    detail = f"not apart from host and neighbours: {', '.join(wrong)}" if wrong else ""
    return _finding("namespaces", not wrong, detail or "pid, mnt, net, ipc, uts: one per session")


def _no_namespaces(seen: trial_kernels.ProbeResults, sandbox: settings.Sandbox) -> Finding:
    if not seen.refusal:
        fix = 'Take sandbox.level = "container" out of the settings.'
        return Finding("namespaces", False, advice.WITHOUT_NAMESPACES, fix, "not wanted")
    fix = advice.advice_for(seen.refusal, sandbox)
    return Finding("namespaces", False, advice.WITHOUT_NAMESPACES, fix, f"refused: {seen.refusal}")


def _differences(seen: trial_kernels.ProbeResults, config: settings.Settings) -> Iterator[Finding]:
    """Say what is not there without namespaces; it is a lack where the settings ask for it."""
    for name, detail in _NOT_IN_CONTAINERS.items():
        if name == "idle sessions" and seen.can_freeze:
            continue
        is_missing = name == "doors" and _needs_doors(config)
        yield _finding(name, False if is_missing else None, detail, fix=advice.STRONGER)


def _needs_doors(config: settings.Settings) -> bool:
    return config.has_doors or any(server.command for server in config.mcp_servers)


def _uid_per_session(seen: trial_kernels.ProbeResults) -> Finding:
    one, two = (session.uid for session in seen.outside)
    is_active = len({one, two, os.geteuid()}) == 3
    detail = f"{one} and {two}" if is_active else f"all sessions run as user {one}"
    if is_active or seen.walls is forkserver_clients.Walls.NAMESPACES:
        return _finding("user id per session", is_active, detail)
    detail += f": {seen.shared_id_reason}" if seen.shared_id_reason else ""
    return Finding("user id per session", False, *advice.SHARED_ID_IN_CONTAINER, detail)


def _disk(config: settings.Settings) -> Finding:
    data = config.paths.data
    there = _existing(data)
    free = shutil.disk_usage(there).free
    detail = f"{data}: {quantities.size(free)} free{_largest_parts(data)}"
    needed = config.limits.workspace_bytes + config.limits.disk_reserve_bytes
    is_active = free >= needed
    if not is_active:
        detail += f"; one session and the reserve may take {quantities.size(needed)}"
    if not os.access(there, os.W_OK | os.X_OK):
        is_active, detail = False, f"{there} cannot be written to"
    return _finding("disk", is_active, detail)


def _largest_parts(data: pathlib.Path) -> str:
    """Say what in the data directory holds most."""
    sizes = {}
    with contextlib.suppress(OSError):
        for path in data.iterdir():
            if path.is_symlink() or not path.is_dir():
                sizes[path.name] = path.lstat().st_blocks * 512
                continue
            directory = workspace_io.open_root(path)
            try:
                usage = directory_contents.measure(
                    directory, most_bytes=_MOST_BYTES, most_files=_MOST_FILES
                )
                sizes[path.name] = usage.bytes
            finally:
                os.close(directory)
    largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:_SHOWN]
    held = ", ".join(f"{quantities.size(sizes[name])} in {name}" for name in largest)
    return f"; it holds {held}" if held else ""


def _reserve(config: settings.Settings) -> Finding:
    free_bytes = machine_exhaustion.machine_memory().free_bytes
    reserve_bytes = config.limits.memory_reserve_bytes
    detail = f"{quantities.size(free_bytes)} of memory are available; below "
    detail += f"{quantities.size(reserve_bytes)} the session ends that took most of it"
    is_active = 0 < reserve_bytes < free_bytes
    return _finding("memory of the machine", is_active, detail)


def _runtime(config: settings.Settings) -> Finding:
    pid, runtime = os.getpid(), config.paths.runtime
    longest = runtime / f"{pid}-{session_metering.start_ticks(pid)}" / ("x" * 8) / "k-1"
    size, there = len(os.fsencode(longest)), _existing(runtime)
    is_writable = os.access(there, os.W_OK | os.X_OK)
    detail = f"socket paths in {runtime} have {size} of {_SOCKET_PATH_BYTES} bytes"
    if not is_writable:
        detail = f"{there} cannot be written to"
    return _finding("runtime directory", is_writable and size <= _SOCKET_PATH_BYTES, detail)


def _open_files(config: settings.Settings) -> Finding:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = _SESSIONS_OF_FILES * config.limits.open_files
    is_active = most == resource.RLIM_INFINITY or most >= needed
    detail = f"at most {most}; {_SESSIONS_OF_FILES} times that of a session is {needed}"
    return _finding("open files of the bot", is_active, detail)


def _skills(config: settings.Settings) -> Iterator[Finding]:
    """Say which skills are used, where there are any."""
    if not config.skills.directories:
        return
    skills = accepted_skills.AcceptedSkills(config.skills.directories, config.paths.data)
    try:
        statuses = skills.statuses()
    except errors.BotError as error:
        yield _finding("skills", False, str(error))
        return
    off = [one for one in statuses if one.standing is not accepted_skills.Standing.ON]
    detail = f"{len(statuses) - len(off)} of {quantities.count(len(statuses), 'skill')} are on"
    listed = ", ".join(f"{one.name!r} ({one.reason or one.standing})" for one in off[:_SHOWN])
    yield _finding("skills", not off, f"{detail}; off: {listed}" if off else detail)


def _tools(config: settings.Settings) -> Iterator[Finding]:
    """Say which tools of servers are used, where there are any; the servers are not asked."""
    if not config.mcp_servers:
        return
    known = accepted_definitions.AcceptedDefinitions(config.paths.data)
    off, count = [], 0
    for server in config.mcp_servers:
        standings = known.usable(server.name).standings
        tools = {tool: standing for tool, standing in standings.items() if tool}
        on = [tool for tool, one in tools.items() if one is accepted_definitions.Standing.ON]
        count += len(on)
        off += [f"{server.name}.{tool} ({tools[tool]})" for tool in tools if tool not in on]
        off += [] if tools else [f"all of {server.name} (not listed yet)"]
    detail = f"{quantities.count(count, 'tool')} of {len(config.mcp_servers)} servers are on"
    listed = ", ".join(off[:_SHOWN])
    yield _finding("tools", not off, f"{detail}; off: {listed}" if off else detail)


def _logins(config: settings.Settings) -> Iterator[Finding]:
    """Say whether people can log in at servers of tools, where there are such."""
    names = [one.name for one in config.mcp_servers if one.authorization == "person"]
    if not names:
        return
    try:
        keys = encryption.KeyRing.of(config)
        # Which reads them, and makes none: that is for the bot's own user to do.
        keys.is_current("")
    except errors.BotError as error:
        yield _finding("logins at tools", False, str(error))
        return
    is_remote = config.slack.is_on or bool(config.discord.token.get_secret_value())
    if is_remote and not config.tool_logins.public_url:
        told = f"tool_logins.public_url is not set, so only people at this machine: {names[0]}"
        yield _finding("logins at tools", False, told)
        return
    place = config.tool_logins.public_url or f"port {config.tool_logins.port} of this machine"
    yield _finding("logins at tools", True, f"{', '.join(names)}, by {place}; {keys.where}")


def _existing(path: pathlib.Path) -> pathlib.Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())
