"""Checks of a kernel's walls at any level; `trial_kernels` runs this file's source in a kernel.

Each check tries to break a wall, and returns breaches and a detail; the wall holds if there are no
breaches. Checks need only the standard library, and connect only to this machine's loopback. The
other files of checks run after this one, as cells of the same kernel.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import platform
import resource
import signal
import socket
import stat
from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
CheckResult = tuple[list[str], str]

_MIB = 1024 * 1024
ALLOWED = "allowed"
_NEW_USER_NAMESPACE = 0x10000000
_EXPECTED_PATHS = ("/dev/null", "/dev/urandom", "/dev/shm/", "/proc/")  # noqa: S108
# Number on x86_64 and on aarch64, and harmless arguments, with which a call that is not denied
# usually fails with another error.
_DENIED_CALLS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "unshare": ((272, 97), (1,)),
    "clone3": ((435, 435), (0, 0)),
    "setns": ((308, 268), (-1, 0)),
    "mount": ((165, 40), (1, 1, 1, 0, 0)),
    "ptrace": ((101, 117), (2, os.getpid(), 0, 0)),
    "process_vm_readv": ((310, 270), (os.getpid(), 0, 0, 0, 0, 1)),
    "keyctl": ((250, 219), (9999, 0, 0, 0, 0)),
    "bpf": ((321, 280), (9999, 0, 0)),
    "perf_event_open": ((298, 241), (1, 0, -1, -1, 0)),
    "io_uring_setup": ((425, 425), (0, 0)),
}
_CLONE = (56, 220)


def system_call(numbers: tuple[int, int], *arguments: int) -> int:
    """Make a system call and return its errno, 0 if it succeeded."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    call_number = numbers[0 if platform.machine() == "x86_64" else 1]
    result: int = libc.syscall(ctypes.c_long(call_number), *map(ctypes.c_long, arguments))
    if result == 0 and numbers == _CLONE:
        os._exit(0)  # This is the child of a clone that should have been denied.
    return ctypes.get_errno() if result < 0 else 0


def error_name(error_number: int) -> str:
    return errno.errorcode.get(error_number, str(error_number)) if error_number else ALLOWED


def attempt(action: Callable[[], object]) -> str:
    """Return the name of the error that an action fails with, or ALLOWED."""
    try:
        action()
    except OSError as error:
        return error_name(error.errno or errno.EIO)
    return ALLOWED


def create_file(directory: str) -> None:
    path = os.path.join(directory, ".doctor")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    os.unlink(path)


def files(facts: Facts) -> CheckResult:
    """Try to read files that exist on the host, by every path to them."""
    roots = ("", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/mnt/data/../..")
    breaches = [
        f"{root}{path} can be read"
        for path in facts["files"]
        for root in roots
        if can_read(root + path)
    ]
    try:
        root_note = f"/ holds {' '.join(sorted(os.listdir('/')))}"
    except OSError as error:
        root_note = f"/ cannot be listed: {error_name(error.errno or errno.EIO)}"
    return breaches, f"{len(facts['files'])} files of the host cannot be read; {root_note}"


def can_read(path: str) -> bool:
    return attempt(lambda: os.close(os.open(path, os.O_RDONLY))) == ALLOWED


def read_start(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MIB)
    except OSError:
        return b""


def writable_settings() -> list[str]:
    """List writable settings of the machine's Linux kernel."""
    breaches = []
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
        # Opening a file for writing does not change it.
        result = attempt(lambda: os.close(os.open(path, os.O_WRONLY)))  # noqa: B023
        if result == ALLOWED and not os.path.samestat(os.stat(path), os.stat("/dev/null")):
            breaches.append(f"{path} can be opened for writing")
    return breaches


def count_sockets(is_foreign: Callable[[socket.socket], bool]) -> int:
    """Count inherited sockets for which `is_foreign` is true."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(fileno=os.dup(int(name))) as open_socket:
                count += is_foreign(open_socket)
    return count


def environment(facts: Facts) -> CheckResult:
    """Look for a variable of the bot's environment."""
    name = facts["variable"]
    breaches = ["the bot's environment is inherited"] if name in os.environ else []
    for pid in ("1", "self"):
        if name.encode() in read_start(f"/proc/{pid}/environ"):
            breaches.append(f"/proc/{pid}/environ shows the bot's environment")
    return breaches, f"{len(os.environ)} variables, none of the bot's"


def descriptors(facts: Facts) -> CheckResult:
    """Look for a file that the bot had open when it started the kernel."""
    breaches, numbers = [], [int(name) for name in os.listdir("/proc/self/fd")]
    for number in numbers:
        try:
            status, target = os.fstat(number), os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        is_bot_file = [status.st_dev, status.st_ino] == facts["inode"]
        is_kernel_file = target.startswith((*_EXPECTED_PATHS, *facts["own_places"]))
        if is_bot_file or (target.startswith("/") and not is_kernel_file):
            breaches.append(f"descriptor {number} is {target}")
    return breaches, f"{len(numbers)} descriptors, all of them the kernel's own"


def read_status() -> dict[str, str]:
    lines = (line.split(":", 1) for line in read_start("/proc/self/status").decode().splitlines())
    return {key: value.strip() for key, value in lines}


def privileges(_: Facts) -> CheckResult:
    """Read capabilities and NoNewPrivs."""
    lines = read_status()
    sets = [name for name in lines if name.startswith("Cap")]
    breaches = [f"{name} is {lines[name]}" for name in sets if int(lines[name], 16)]
    breaches += [] if sets else ["capabilities are not listed"]
    if lines.get("NoNewPrivs") != "1":
        breaches.append("setuid programs work: NoNewPrivs is not set")
    return breaches, "no capability in any set; NoNewPrivs is 1"


def system_calls(_: Facts) -> CheckResult:
    """Make calls that the seccomp filter denies."""
    answers = {name: system_call(numbers, *args) for name, (numbers, args) in _DENIED_CALLS.items()}
    denial_errors = (errno.EPERM, errno.ENOSYS)
    breaches = [
        f"{name}: {error_name(number)}"
        for name, number in answers.items()
        if number not in denial_errors
    ]
    if (seccomp := read_status().get("Seccomp")) != "2":
        breaches.append(f"Seccomp is {seccomp}")
    return breaches, f"Seccomp is 2; denied: {' '.join(answers)}"


def nested(facts: Facts) -> CheckResult:
    """Try to create a user namespace, which the seccomp filter and a limit of 0 prevent."""
    number = system_call(_CLONE, _NEW_USER_NAMESPACE | signal.SIGCHLD, 0, 0, 0, 0)
    breaches = [] if number else ["a user namespace was made"]
    detail = f"clone: {error_name(number)}"
    if facts["has_namespaces"]:
        max_namespaces = read_start("/proc/sys/user/max_user_namespaces").decode().strip()
        breaches += (
            []
            if max_namespaces == "0"
            else [f"user.max_user_namespaces is {max_namespaces or 'unknown'}"]
        )
        detail += "; user.max_user_namespaces is 0"
    return breaches, detail


def core_dumps(_: Facts) -> CheckResult:
    """Check that a crash starts no program of the host, even with a core limit of 0."""
    pattern = read_start("/proc/sys/kernel/core_pattern").decode("utf-8", "replace").strip()
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    is_open = pattern.startswith("@") or (pattern.startswith("|") and limit != 1)
    detail = f"kernel.core_pattern is {pattern!r}, the limit is {limit}"
    return ([detail] if is_open else []), detail


def python(facts: Facts) -> CheckResult:
    """Look for the modules that the fork server preloads."""
    packages = dict.fromkeys(name.partition(".")[0] for name in facts["preload"])
    missing_packages = [name for name in packages if importlib.util.find_spec(name) is None]
    version = platform.python_version()
    detail = f"Python {version}, {len(packages)} packages to preload are there"
    return (
        [f"Python {version} lacks {' '.join(missing_packages)}"] if missing_packages else []
    ), detail


CHECKS = (
    files,
    environment,
    descriptors,
    privileges,
    system_calls,
    nested,
    core_dumps,
    python,
)
