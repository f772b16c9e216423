"""Checks of the walls without namespaces; run in a kernel after `in_kernel_walls`.

Without namespaces, a kernel knows paths and process ids of the bot and of another session, so each
check tries its wall on them. An attempt that succeeds does no harm.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot.doctor.in_kernel_walls import (
        ALLOWED,
        CheckResult,
        Facts,
        attempt,
        can_read,
        count_sockets,
        create_file,
        error_name,
        system_call,
        writable_settings,
    )

_MAX_FAMILY = 45
_TGKILL = (234, 131)
# Number on x86_64 and on aarch64, and harmless arguments, as in `in_kernel_walls`.
_SYSTEM_V_CALLS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "shmget": ((29, 194), (1, 4096, 0)),
    "shmat": ((30, 196), (0, 0, 0)),
    "shmctl": ((31, 195), (0, 14, 0)),
    "semget": ((64, 190), (1, 1, 0)),
    "semop": ((65, 193), (0, 0, 0)),
    "semctl": ((66, 191), (0, 0, 19, 0)),
    "msgget": ((68, 186), (1, 0)),
    "msgsnd": ((69, 189), (0, 0, 0, 0)),
    "msgrcv": ((70, 188), (0, 0, 0, 0, 0)),
    "msgctl": ((71, 187), (0, 12, 0)),
    "mq_open": ((240, 180), (0, 0, 0, 0)),
    "inotify_init1": ((294, 26), (0,)),
}


def changes(facts: Facts) -> CheckResult:
    """Try to change files outside the session; the bot then checks its own files for changes."""
    libraries = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    directories = ["/", "/usr", "/etc", "/dev", "/tmp", "/var/tmp", *libraries]  # noqa: S108
    directories += facts["foreign_directories"]
    answers = {directory: attempt(lambda: create_file(directory)) for directory in directories}  # noqa: B023
    breaches = [
        f"{directory} can be written to"
        for directory, answer in answers.items()
        if answer == ALLOWED
    ]
    for path in facts["foreign_files"]:
        for change in _list_changes(path):
            attempt(change)
    refusals = " ".join(sorted({*answers.values()}))
    return breaches, f"no new file in {len(answers)} places ({refusals}); others' stay as they are"


def _list_changes(path: str) -> list[Callable[[], object]]:
    return [
        lambda: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
        lambda: os.truncate(path, 1),
        lambda: os.chmod(path, 0o700),
        lambda: os.utime(path, (1, 1)),
        lambda: os.setxattr(path, "user.doctor", b"1"),
        lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.rename(path, f"{path}-moved"),
        lambda: os.unlink(path),
    ]


def other_processes(facts: Facts) -> CheckResult:
    """Try to read processes of the bot and of another session, and to change their limits."""
    breaches = writable_settings()
    # Files with names and ids are left out, because sessions share the container's process list.
    file_names = ("cwd", "environ", "exe", "maps", "mem", "root")
    for name, pid in facts["processes_of_others"].items():
        breaches += [
            f"/proc/{pid}/{file_name} of {name} can be read"
            for file_name in file_names
            if can_read(f"/proc/{pid}/{file_name}")
        ]
        actions: dict[str, Callable[[], object]] = {
            "limits": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE),  # noqa: B023
            "priority": lambda: os.setpriority(0, pid, os.getpriority(0, pid)),  # noqa: B023
            "processors": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),  # noqa: B023
        }
        breaches += [
            f"{target} of {name}"
            for target, action in actions.items()
            if attempt(action) == ALLOWED
        ]
    names = ", ".join(facts["processes_of_others"])
    return breaches, f"{names}: names and numbers show, and nothing else can be read or changed"


def signals(facts: Facts) -> CheckResult:
    """Try to send signal 0, which does nothing, to the bot and to another session."""
    breaches = []
    for name, pid in facts["processes_of_others"].items():
        actions: dict[str, Callable[[], object]] = {
            "kill": lambda: os.kill(pid, 0),  # noqa: B023
            "a descriptor": lambda: _signal_by_descriptor(pid),  # noqa: B023
        }
        breaches += [
            f"{name}, by {method}"
            for method, action in actions.items()
            if attempt(action) == ALLOWED
        ]
        # The id is 0 for a group of another pid namespace; killpg(1) would signal every process.
        group = os.getpgid(pid)
        if group > 1 and attempt(lambda: os.killpg(group, 0)) == ALLOWED:  # noqa: B023
            breaches.append(f"{name}, by killpg")
        if not system_call(_TGKILL, pid, pid, 0):
            breaches.append(f"{name}, by tgkill")
    return breaches, f"{', '.join(facts['processes_of_others'])}: none can be signalled"


def _signal_by_descriptor(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, 0)
    finally:
        os.close(descriptor)


def network(facts: Facts) -> CheckResult:
    """Try to create sockets of every kind, and to connect to the bot's."""
    breaches = []
    # Sockets of this kind can only connect to doors.
    door_socket = (socket.AF_INET, socket.SOCK_STREAM) if facts["doors"] else None
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
    for family in range(_MAX_FAMILY + 1):
        for kind in kinds:
            is_allowed = family == socket.AF_UNIX and kind in (kinds[0], kinds[3])
            is_allowed |= (family, kind) == door_socket
            if not is_allowed and attempt(lambda: socket.socket(family, kind).close()) == ALLOWED:  # noqa: B023
                breaches.append(f"there are sockets of family {family} and kind {int(kind)}")
    for name, address in (("abstract", f"\0{facts['abstract']}"), ("named", facts["socket_file"])):
        with socket.socket(socket.AF_UNIX) as unix_client:
            if not unix_client.connect_ex(address):
                breaches.append(f"the bot's {name} socket can be reached")
    for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):  # noqa: S104 - nobody listens.
        if attempt(lambda: _connect(address, facts["port"])) == ALLOWED:  # noqa: B023
            breaches.append(f"the container's {address} can be reached")
    foreign_count = count_sockets(lambda inherited: inherited.family != socket.AF_UNIX)
    breaches += (
        [f"{foreign_count} of the sockets it was given are of a network"] if foreign_count else []
    )
    return (
        breaches,
        "no sockets but those between the session's own processes, and of doors; nothing connects",
    )


def _connect(address: str, port: int) -> None:
    with socket.socket() as client:
        client.settimeout(1)
        client.connect((address, port))


def doors(facts: Facts) -> CheckResult:
    """Connect to the doors, and try to listen on their ports or on any other."""
    if not facts["doors"]:
        return [facts["doors_refusal"]], ""
    breaches = []
    for port in facts["doors"]:
        answer = attempt(lambda: _connect("127.0.0.1", port))  # noqa: B023
        breaches += [f"port {port} does not answer: {answer}"] if answer != ALLOWED else []
        with socket.socket() as server:
            if attempt(lambda: server.bind(("127.0.0.1", port))) == ALLOWED:  # noqa: B023
                breaches.append(f"code can listen on port {port}")
            if attempt(server.listen) == ALLOWED:
                breaches.append("code can listen on a port of the container")
    detail = f"ports {' and '.join(map(str, facts['doors']))} lead to the bot, which is asked for "
    return breaches, f"{detail}each connection, and are open where `egress` lists something"


def shared_objects(facts: Facts) -> CheckResult:
    """Try to use memory, queues and semaphores that all programs of a container share."""
    answers = {
        name: system_call(numbers, *args) for name, (numbers, args) in _SYSTEM_V_CALLS.items()
    }
    denial_errors = (errno.EPERM, errno.ENOSYS, errno.EACCES)
    breaches = [
        f"{name}: {error_name(error_number)}"
        for name, error_number in answers.items()
        if error_number not in denial_errors
    ]
    if attempt(lambda: os.listdir("/dev/shm")) == ALLOWED:  # noqa: S108
        breaches.append("/dev/shm can be listed")  # noqa: S108
    detail = f"denied: {' '.join(answers)}; /dev/shm cannot be listed"
    if facts["shared_memory"] and can_read(facts["shared_memory"]):
        leak = "a file of others in /dev/shm can be read by its name"
        if facts["has_own_ids"]:
            breaches.append(leak)
        detail += f", but {leak}"
    return breaches, detail


CHECKS = (changes, other_processes, signals, network, doors, shared_objects)
