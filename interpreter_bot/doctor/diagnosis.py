"""Diagnosis of the sandbox on this machine, by trying to break it.

Code in two kernels tries to get through every wall. The finding about a wall says whether it holds,
what is lost without it, how to get it, and what the trial showed.
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

from interpreter_bot import acceptance, encryption, errors, settings
from interpreter_bot.doctor import advice, trial_kernels
from interpreter_bot.kernels import machine_exhaustion
from interpreter_bot.kernels.files import directory_contents, workspace_io
from interpreter_bot.kernels.libraries import kernel_environment
from interpreter_bot.kernels.provisioning import forkserver_clients, start_parameters
from interpreter_bot.mcp_servers import accepted_definitions
from interpreter_bot.skills import accepted_skills
from interpreter_bot.text import quantities
from interpreter_bot.wording import doctor_words, host_words

# Linux counts descriptors in unread socket messages by user id. Each session with the bot's id may
# have `MAX_OPEN_FILES` of them, so the bot's limit must suffice for several sessions.
_SESSIONS_WITHIN_BOT_LIMIT: Final = 4
# Limits on measuring the data directory, so that it takes two seconds at most.
_MAX_MEASURED_BYTES: Final = 2**60
_MAX_MEASURED_FILES: Final = 200_000
_MAX_LISTED_NAMES: Final = 3
_CHECKS_AT_EVERY_LEVEL: Final = {
    "files": "files",
    "environment": "environment",
    "descriptors": "descriptors",
    "network": "network",
    "doors": "doors",
    "privileges": "privileges",
    "system calls": "system_calls",
    "nested namespaces": "nested",
    "core dumps": "core_dumps",
    "python": "python",
}
CHECKS: Final = {
    forkserver_clients.Walls.NAMESPACES: {
        "read-only root": "read_only_root",
        "second wall of files": "landlock",
        "proc": "proc",
        "host name": "host_name",
        **_CHECKS_AT_EVERY_LEVEL,
    },
    forkserver_clients.Walls.CONTAINER: {
        "changes elsewhere": "changes",
        "other processes": "other_processes",
        "signals": "signals",
        "shared objects": "shared_objects",
        **_CHECKS_AT_EVERY_LEVEL,
    },
}
"""By kind of walls, and by name of a finding: the name of the check that runs in kernels."""
_NOT_WALLS: Final = {
    "core dumps",
    "doors",
    "host name",
    "python",
    "second wall of files",
}
_WALLS_CHECKED_FROM_HOST: Final = {
    forkserver_clients.Walls.NAMESPACES: {"user namespace", "namespaces"},
    forkserver_clients.Walls.CONTAINER: set(),
}
_WALLS: Final = {
    walls: {*kernel_checks, *_WALLS_CHECKED_FROM_HOST[walls]} - _NOT_WALLS
    for walls, kernel_checks in CHECKS.items()
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        name: of a wall, a limit, or another requirement.
        is_active: whether it holds; None if it does not apply at this machine's level.
        consequence: what is lost without it.
        fix: how to get it; if it is active, how to get it on other machines.
        detail: what the trial showed.
    """

    name: str
    is_active: bool | None
    consequence: str
    fix: str
    detail: str


def diagnose(config: settings.Settings) -> tuple[Finding, ...]:
    """Run all checks in about two seconds, in an event loop of its own.

    The walls are tried even with the option `--unsafe-no-sandbox`. A missing wall is a finding, no
    error.
    """
    host_findings = (
        *(
            _libraries_finding(config),
            disk_finding(config),
            _memory_finding(config),
            open_files_finding(),
        ),
        *_skill_findings(config),
        *tool_findings(config),
        *login_findings(config),
    )
    collector = _ErrorCollector()
    logger = logging.getLogger("interpreter_bot.kernels")
    logger.addHandler(collector)
    try:
        results = asyncio.run(trial_kernels.probe(config))
    except (errors.BotError, OSError) as error:
        return (_missing_sandbox_finding(error, collector.messages, config.sandbox), *host_findings)
    finally:
        logger.removeHandler(collector)
    return (*evaluate(results, config), *host_findings)


def level(findings: Sequence[Finding]) -> str:
    """Return the level of protection.

    "full" means all walls, and a control group for each session; "standard" all walls; "container"
    all walls that need no namespaces; "none" anything less.
    """
    active_names = {finding.name for finding in findings if finding.is_active}
    if active_names >= _WALLS[forkserver_clients.Walls.NAMESPACES]:
        return "full" if "control group" in active_names else "standard"
    return "container" if active_names >= _WALLS[forkserver_clients.Walls.CONTAINER] else "none"


class _ErrorCollector(logging.Handler):
    """Log handler that collects errors, as only the log says why a kernel did not start."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def create_finding(
    name: str, is_active: bool | None, detail: str, *, check: str = "", fix: str = ""
) -> Finding:
    """Create a finding; `check` names its words in `doctor_words`, `name` if empty."""
    consequence, default_fix = doctor_words.CHECKS[check or name]
    return Finding(name, is_active, consequence, fix or default_fix, detail)


def _missing_sandbox_finding(
    error: Exception, log_messages: Sequence[str], sandbox: settings.Sandbox
) -> Finding:
    reason = "; ".join([str(error).removesuffix(host_words.SEE_DOCTOR), *log_messages])
    if isinstance(error, errors.SettingsError):
        fix = doctor_words.SET_DIRECTORIES
    elif isinstance(error, errors.KernelStartError) and not log_messages:
        # Without a log message, Python failed before any wall was built.
        fix = doctor_words.SET_PYTHON
    else:
        fix = advice.advise(reason, sandbox)
    return create_finding("sandbox", False, reason, fix=fix)


def evaluate(results: trial_kernels.ProbeResults, config: settings.Settings) -> list[Finding]:
    if results.walls is forkserver_clients.Walls.NAMESPACES:
        findings = [_user_namespace_finding(results), _namespaces_finding(results)]
    else:
        findings = [_missing_namespaces_finding(results, config.sandbox)]
    for name, check in CHECKS[results.walls].items():
        breaches, detail = results.check_results.get(check, ([doctor_words.NO_CHECK_RESULT], ""))
        findings.append(create_finding(name, not breaches, "; ".join(breaches) or detail))
    findings.append(_uid_finding(results))
    findings.append(
        create_finding("control group", results.groups_version > 0, results.groups_reason)
    )
    if not results.can_freeze:
        findings.append(create_finding("idle sessions", None, doctor_words.NOT_FROZEN))
    if results.walls is forkserver_clients.Walls.CONTAINER:
        findings += _namespace_only_findings()
    return findings


def _user_namespace_finding(results: trial_kernels.ProbeResults) -> Finding:
    bot_namespace = trial_kernels.read_bot_namespaces()["user"]
    uids = sorted({uid for session in results.host_views for uid in session.uids})
    session_namespaces = [session.namespaces.get("user", "") for session in results.host_views]
    is_apart = all(namespace not in ("", bot_namespace) for namespace in session_namespaces)
    detail = doctor_words.host_users(uids, is_apart=is_apart)
    return create_finding("user namespace", is_apart and bool(uids) and 0 not in uids, detail)


def _namespaces_finding(results: trial_kernels.ProbeResults) -> Finding:
    shared_kinds = []
    first, second = (session.namespaces for session in results.host_views)
    for kind, bot_namespace in trial_kernels.read_bot_namespaces().items():
        identities = {bot_namespace, first.get(kind, ""), second.get(kind, "")} - {""}
        if len(identities) < 3:
            shared_kinds.append(kind)
    detail = (
        doctor_words.shared_namespaces(shared_kinds)
        if shared_kinds
        else doctor_words.SEPARATE_NAMESPACES
    )
    return create_finding("namespaces", not shared_kinds, detail)


def _missing_namespaces_finding(
    results: trial_kernels.ProbeResults, sandbox: settings.Sandbox
) -> Finding:
    if not results.refusal:
        fix, detail = doctor_words.ALLOW_NAMESPACES, doctor_words.SWITCHED_OFF
    else:
        fix = advice.advise(results.refusal, sandbox)
        detail = doctor_words.refused(results.refusal)
    return Finding("namespaces", False, doctor_words.WITHOUT_NAMESPACES, fix, detail)


def _namespace_only_findings() -> Iterator[Finding]:
    """Report protections that need namespaces, and so do not apply."""
    for name, detail in doctor_words.DIFFERENT_IN_CONTAINERS.items():
        yield create_finding(name, None, detail, fix=doctor_words.STRONGER)


def _uid_finding(results: trial_kernels.ProbeResults) -> Finding:
    first, second = (session.uid for session in results.host_views)
    is_active = len({first, second, os.geteuid()}) == 3
    detail = f"{first} and {second}" if is_active else doctor_words.same_user(first)
    if is_active or results.walls is forkserver_clients.Walls.NAMESPACES:
        return create_finding("user id per session", is_active, detail)
    detail += f": {results.shared_id_reason}" if results.shared_id_reason else ""
    return Finding("user id per session", False, *doctor_words.SHARED_ID_IN_CONTAINER, detail)


def _libraries_finding(config: settings.Settings) -> Finding:
    problem = kernel_environment.problem(config)
    built_libraries = doctor_words.libraries_of_release(kernel_environment.name(config))
    detail = problem or str(config.kernels.python or built_libraries)
    return create_finding("libraries for code", not problem, detail)


def disk_finding(config: settings.Settings) -> Finding:
    data_directory = config.paths.data
    directory = find_existing_directory(data_directory)
    free_bytes = shutil.disk_usage(directory).free
    detail = doctor_words.free_disk(
        data_directory, free_bytes, _measure_largest_entries(data_directory)
    )
    needed_bytes = config.limits.workspace_bytes + config.limits.disk_reserve_bytes
    is_active = free_bytes >= needed_bytes
    if not is_active:
        detail += doctor_words.disk_needed(needed_bytes)
    if not os.access(directory, os.W_OK | os.X_OK):
        is_active, detail = False, doctor_words.not_writable(directory)
    return create_finding("disk", is_active, detail)


def _measure_largest_entries(data_directory: pathlib.Path) -> list[tuple[str, int]]:
    """Return names and sizes of the largest entries of the data directory."""
    sizes = {}
    with contextlib.suppress(OSError):
        for path in data_directory.iterdir():
            if path.is_symlink() or not path.is_dir():
                sizes[path.name] = path.lstat().st_blocks * 512
                continue
            with workspace_io.root_descriptor(path) as descriptor:
                usage = directory_contents.measure(
                    descriptor, max_bytes=_MAX_MEASURED_BYTES, max_files=_MAX_MEASURED_FILES
                )
            sizes[path.name] = usage.bytes
    return sorted(sizes.items(), key=lambda entry: entry[1], reverse=True)[:_MAX_LISTED_NAMES]


def _memory_finding(config: settings.Settings) -> Finding:
    free_bytes = machine_exhaustion.machine_memory().free_bytes
    reserve_bytes = config.limits.memory_reserve_bytes
    detail = doctor_words.memory_left(free_bytes, reserve_bytes)
    is_active = 0 < reserve_bytes < free_bytes
    return create_finding("memory of the machine", is_active, detail)


def open_files_finding() -> Finding:
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed_limit = _SESSIONS_WITHIN_BOT_LIMIT * start_parameters.MAX_OPEN_FILES
    is_active = hard_limit == resource.RLIM_INFINITY or hard_limit >= needed_limit
    detail = doctor_words.open_files(hard_limit, _SESSIONS_WITHIN_BOT_LIMIT, needed_limit)
    return create_finding("open files of the bot", is_active, detail)


def _skill_findings(config: settings.Settings) -> Iterator[Finding]:
    """Report which of the configured skills are on."""
    if not config.skills.directories:
        return
    skills = accepted_skills.AcceptedSkills(config.skills.directories, config.paths.data)
    try:
        statuses = skills.statuses()
    except errors.BotError as error:
        yield create_finding("skills", False, str(error))
        return
    inactive_skills = [
        status for status in statuses if status.standing is not acceptance.Standing.ON
    ]
    descriptions = [
        f"{status.name!r} ({status.reason or status.standing})"
        for status in inactive_skills[:_MAX_LISTED_NAMES]
    ]
    total = quantities.count(len(statuses), "skill")
    detail = doctor_words.switched_on(len(statuses) - len(inactive_skills), total, descriptions)
    yield create_finding("skills", not inactive_skills, detail)


def tool_findings(config: settings.Settings) -> Iterator[Finding]:
    """Report which tools of the configured servers are on, without connecting to them."""
    if not config.mcp_servers:
        return
    definitions = accepted_definitions.AcceptedDefinitions(config.paths.data)
    inactive_tools, active_count, total_count = [], 0, 0
    for server in config.mcp_servers:
        standings = definitions.usable(server.name).standings
        tools = {tool: standing for tool, standing in standings.items() if tool}
        total_count += len(tools)
        active_tools = [
            tool for tool, standing in tools.items() if standing is acceptance.Standing.ON
        ]
        active_count += len(active_tools)
        inactive_tools += [
            f"{server.name}.{tool} ({tools[tool]})" for tool in tools if tool not in active_tools
        ]
        inactive_tools += [] if tools else [doctor_words.tools_not_listed(server.name)]
    detail = doctor_words.switched_on(
        active_count, quantities.count(total_count, "tool"), inactive_tools[:_MAX_LISTED_NAMES]
    )
    yield create_finding("tools", not inactive_tools, detail)


def login_findings(config: settings.Settings) -> Iterator[Finding]:
    """Report whether people can log in at the servers that require it."""
    names = [server.name for server in config.mcp_servers if server.authorization == "person"]
    if not names:
        return
    try:
        keys = encryption.KeyRing.from_settings(config)
        # This only reads keys, because the bot's user has to create them.
        keys.is_current("")
    except errors.BotError as error:
        yield create_finding("logins at tools", False, str(error))
        return
    is_remote = config.slack.is_on or bool(config.discord.token.get_secret_value())
    if is_remote and not config.tool_logins.public_url:
        detail = doctor_words.only_local_logins(names[0])
        yield create_finding("logins at tools", False, detail)
        return
    address = config.tool_logins.public_url or doctor_words.local_port(config.tool_logins.port)
    yield create_finding(
        "logins at tools", True, f"{', '.join(names)}, by {address}; {keys.location}"
    )


def find_existing_directory(path: pathlib.Path) -> pathlib.Path:
    """Return a directory, or the nearest parent that exists."""
    return next(ancestor for ancestor in (path, *path.absolute().parents) if ancestor.exists())
