"""Checks of the walls without namespaces: run in a kernel of a container, after `in_kernel_walls`.

Files, processes and objects of the bot and of another session are there for all to see here, so
each check tries its wall on those. None of what it tries would harm them if it were let through.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot.doctor.in_kernel_walls import (
        ALLOWED,
        Seen,
        Told,
        attempt,
        call,
        create,
        shows,
        word,
        writable_settings,
    )

_LAST_FAMILY = 45
_TGKILL = (234, 131)
# As in `in_kernel_walls`: (x86_64, aarch64) and arguments.
_OF_ALL_SESSIONS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
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


def changes(told: Told) -> Seen:
    """Try to change what is not the session's; the bot checks what became of its files."""
    libraries = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    places = ["/", "/usr", "/etc", "/dev", "/tmp", "/var/tmp", *libraries]  # noqa: S108
    places += told["foreign_directories"]
    answers = {place: attempt(lambda: create(place)) for place in places}  # noqa: B023
    wrong = [f"{place} can be written to" for place, result in answers.items() if result == ALLOWED]
    for path in told["foreign_files"]:
        for change in _changes(path):
            attempt(change)
    refusals = " ".join(sorted({*answers.values()}))
    return wrong, f"no new file in {len(answers)} places ({refusals}); others' stay as they are"


def _changes(path: str) -> list[Callable[[], object]]:
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


def other_processes(told: Told) -> Seen:
    """Try to look into processes of the bot and of another session, and to change their limits."""
    wrong = writable_settings()
    # What tells names and numbers is left out: sessions share the container's process list.
    files = ("cwd", "environ", "exe", "maps", "mem", "root")
    for name, pid in told["processes_of_others"].items():
        wrong += [
            f"/proc/{pid}/{file} of {name} can be read"
            for file in files
            if shows(f"/proc/{pid}/{file}")
        ]
        tries: dict[str, Callable[[], object]] = {
            "limits": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE),  # noqa: B023
            "priority": lambda: os.setpriority(0, pid, os.getpriority(0, pid)),  # noqa: B023
            "processors": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),  # noqa: B023
        }
        wrong += [f"{what} of {name}" for what, to in tries.items() if attempt(to) == ALLOWED]
    whose = ", ".join(told["processes_of_others"])
    return wrong, f"{whose}: names and numbers show, and nothing else can be read or changed"


def signals(told: Told) -> Seen:
    """Try to signal the bot and another session, by signal 0, which does nothing."""
    wrong = []
    for name, pid in told["processes_of_others"].items():
        tries: dict[str, Callable[[], object]] = {
            "kill": lambda: os.kill(pid, 0),  # noqa: B023
            "a descriptor": lambda: _signal_by_descriptor(pid),  # noqa: B023
        }
        wrong += [f"{name}, by {way}" for way, to in tries.items() if attempt(to) == ALLOWED]
        # It is 0 if it is of another pid namespace; to signal group 1 is to signal everybody.
        group = os.getpgid(pid)
        if group > 1 and attempt(lambda: os.killpg(group, 0)) == ALLOWED:  # noqa: B023
            wrong.append(f"{name}, by killpg")
        if not call(_TGKILL, pid, pid, 0):
            wrong.append(f"{name}, by tgkill")
    return wrong, f"{', '.join(told['processes_of_others'])}: none can be signalled"


def _signal_by_descriptor(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, 0)
    finally:
        os.close(descriptor)


def network(told: Told) -> Seen:
    """Try to make sockets of every kind, and to connect to the bot's."""
    wrong = []
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
    for family in range(_LAST_FAMILY + 1):
        for kind in kinds:
            is_own = family == socket.AF_UNIX and kind in (kinds[0], kinds[3])
            if not is_own and attempt(lambda: socket.socket(family, kind).close()) == ALLOWED:  # noqa: B023
                wrong.append(f"there are sockets of family {family} and kind {int(kind)}")
    for name, address in (("abstract", f"\0{told['abstract']}"), ("named", told["socket_file"])):
        with socket.socket(socket.AF_UNIX) as unix:
            if not unix.connect_ex(address):
                wrong.append(f"the bot's {name} socket can be reached")
    foreign = _foreign_sockets()
    wrong += [f"{foreign} of the sockets it was given are of a network"] if foreign else []
    return wrong, "no sockets but those between the session's own processes; nothing connects"


def _foreign_sockets() -> int:
    foreign = 0
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(fileno=os.dup(int(name))) as one:
                foreign += one.family != socket.AF_UNIX
    return foreign


def shared_objects(told: Told) -> Seen:
    """Try to use what all programs of a container share: memory, queues, semaphores."""
    answers = {name: call(numbers, *args) for name, (numbers, args) in _OF_ALL_SESSIONS.items()}
    denied = (errno.EPERM, errno.ENOSYS, errno.EACCES)
    wrong = [f"{name}: {word(number)}" for name, number in answers.items() if number not in denied]
    if attempt(lambda: os.listdir("/dev/shm")) == ALLOWED:  # noqa: S108
        wrong.append("/dev/shm can be listed")  # noqa: S108
    seen = f"denied: {' '.join(answers)}; /dev/shm cannot be listed"
    if told["shared_memory"] and shows(told["shared_memory"]):
        known = "a file of others in /dev/shm can be read by its name"
        if told["has_own_ids"]:
            wrong.append(known)
        seen += f", but {known}"
    return wrong, seen


CHECKS = (changes, other_processes, signals, network, shared_objects)
