"""Checks of a kernel's walls at any level: sent to it as source by `trial_kernels`, and run there.

Every check tries what its wall forbids and returns (what went through, what was seen): the wall
holds if nothing went through. Needs the standard library only; nothing here reaches beyond this
machine's loopback. The other files of checks run after this one, as cells of the same kernel.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import platform
import resource
import signal
from collections.abc import Callable
from typing import Any

Told = dict[str, Any]
Seen = tuple[list[str], str]

_MIB = 1024 * 1024
ALLOWED = "allowed"
_NEW_USER_NAMESPACE = 0x10000000
_USUAL = ("/dev/null", "/dev/urandom", "/dev/shm/", "/proc/")  # noqa: S108
# (x86_64, aarch64) and arguments that do no harm where a call is let through, and then mostly
# fail for another reason than being forbidden.
_CALLS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
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


def call(numbers: tuple[int, int], *arguments: int) -> int:
    """Make a system call; returns its errno, 0 where it worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    number = numbers[0 if platform.machine() == "x86_64" else 1]
    result: int = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result == 0 and numbers == _CLONE:
        os._exit(0)  # The child of a clone that should have been refused.
    return ctypes.get_errno() if result < 0 else 0


def word(number: int) -> str:
    return errno.errorcode.get(number, str(number)) if number else ALLOWED


def attempt(action: Callable[[], object]) -> str:
    """Return the name of the error that an action fails with."""
    try:
        action()
    except OSError as error:
        return word(error.errno or errno.EIO)
    return ALLOWED


def create(directory: str) -> None:
    path = os.path.join(directory, ".doctor")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    os.unlink(path)


def files(told: Told) -> Seen:
    """Try to read files that exist on the host, by every path to them."""
    roots = ("", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/mnt/data/../..")
    wrong = [f"{r}{path} can be read" for path in told["files"] for r in roots if shows(r + path)]
    try:
        root = f"/ holds {' '.join(sorted(os.listdir('/')))}"
    except OSError as error:
        root = f"/ cannot be listed: {word(error.errno or errno.EIO)}"
    return wrong, f"{len(told['files'])} files of the host cannot be read; {root}"


def shows(path: str) -> bool:
    return attempt(lambda: os.close(os.open(path, os.O_RDONLY))) == ALLOWED


def bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MIB)
    except OSError:
        return b""


def writable_settings() -> list[str]:
    """List what can be written of the settings of the machine's kernel."""
    wrong = []
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
        # O_WRONLY alone changes nothing.
        result = attempt(lambda: os.close(os.open(path, os.O_WRONLY)))  # noqa: B023
        if result == ALLOWED and not os.path.samestat(os.stat(path), os.stat("/dev/null")):
            wrong.append(f"{path} can be opened for writing")
    return wrong


def environment(told: Told) -> Seen:
    """Look for a variable of the bot's environment."""
    name = told["variable"]
    wrong = ["the bot's environment is inherited"] if name in os.environ else []
    for pid in ("1", "self"):
        if name.encode() in bytes_of(f"/proc/{pid}/environ"):
            wrong.append(f"/proc/{pid}/environ shows the bot's environment")
    return wrong, f"{len(os.environ)} variables, none of the bot's"


def descriptors(told: Told) -> Seen:
    """Look for a file that the bot held open when it started the kernel."""
    wrong, numbers = [], [int(name) for name in os.listdir("/proc/self/fd")]
    for number in numbers:
        try:
            status, target = os.fstat(number), os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        is_theirs = [status.st_dev, status.st_ino] == told["inode"]
        is_own = target.startswith((*_USUAL, *told["own_places"]))
        if is_theirs or (target.startswith("/") and not is_own):
            wrong.append(f"descriptor {number} is {target}")
    return wrong, f"{len(numbers)} descriptors, all of them the kernel's own"


def status() -> dict[str, str]:
    lines = (line.split(":", 1) for line in bytes_of("/proc/self/status").decode().splitlines())
    return {key: value.strip() for key, value in lines}


def privileges(_: Told) -> Seen:
    """Read capabilities and NoNewPrivs."""
    lines = status()
    sets = [name for name in lines if name.startswith("Cap")]
    wrong = [f"{name} is {lines[name]}" for name in sets if int(lines[name], 16)]
    wrong += [] if sets else ["capabilities are not told"]
    if lines.get("NoNewPrivs") != "1":
        wrong.append("setuid programs work: NoNewPrivs is not set")
    return wrong, "no capability in any set; NoNewPrivs is 1"


def system_calls(_: Told) -> Seen:
    """Make calls that the seccomp filter denies."""
    answers = {name: call(numbers, *args) for name, (numbers, args) in _CALLS.items()}
    denied = (errno.EPERM, errno.ENOSYS)
    wrong = [f"{name}: {word(number)}" for name, number in answers.items() if number not in denied]
    if (seccomp := status().get("Seccomp")) != "2":
        wrong.append(f"Seccomp is {seccomp}")
    return wrong, f"Seccomp is 2; denied: {' '.join(answers)}"


def nested(told: Told) -> Seen:
    """Try to make a user namespace, and check that the sandbox's own can have no other without the
    filter, too.
    """
    number = call(_CLONE, _NEW_USER_NAMESPACE | signal.SIGCHLD, 0, 0, 0, 0)
    wrong = [] if number else ["a user namespace was made"]
    seen = f"clone: {word(number)}"
    if told["has_namespaces"]:
        most = bytes_of("/proc/sys/user/max_user_namespaces").decode().strip()
        wrong += [] if most == "0" else [f"user.max_user_namespaces is {most or 'unknown'}"]
        seen += "; user.max_user_namespaces is 0"
    return wrong, seen


def core_dumps(_: Told) -> Seen:
    """Check that a crash starts no program of the host's, which a limit of 0 would not prevent."""
    pattern = bytes_of("/proc/sys/kernel/core_pattern").decode("utf-8", "replace").strip()
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    is_open = pattern.startswith("@") or (pattern.startswith("|") and limit != 1)
    seen = f"kernel.core_pattern is {pattern!r}, the limit is {limit}"
    return ([seen] if is_open else []), seen


def out_of_memory(_: Told) -> Seen:
    """Check that the OOM killer chooses this process first, and that code cannot change it."""
    path = "/proc/self/oom_score_adj"
    score = bytes_of(path).decode().strip()
    result = attempt(lambda: _put(path, "0"))
    attempt(lambda: _put(path, score))
    seen = f"oom_score_adj is {score}; code that changes it: {result}"
    return ([] if score == "1000" and result != ALLOWED else [seen]), seen


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def python(told: Told) -> Seen:
    """Look for the modules that the fork server preloads."""
    tops = dict.fromkeys(name.partition(".")[0] for name in told["preload"])
    missing = [name for name in tops if importlib.util.find_spec(name) is None]
    version = platform.python_version()
    seen = f"Python {version}, {len(tops)} packages to preload are there"
    return ([f"Python {version} lacks {' '.join(missing)}"] if missing else []), seen


CHECKS = (
    files,
    environment,
    descriptors,
    privileges,
    system_calls,
    nested,
    core_dumps,
    out_of_memory,
    python,
)
