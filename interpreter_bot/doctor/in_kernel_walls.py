"""Checks of a kernel's walls: sent to it as source by `trial_kernels`, and run there.

Every check tries what its wall forbids and returns (what went through, what was seen): the wall
holds if nothing went through. Needs the standard library only; nothing here reaches beyond this
machine's loopback.
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
import sys
from collections.abc import Callable
from typing import Any

Told = dict[str, Any]
Seen = tuple[list[str], str]

_MIB = 1024 * 1024
_ALLOWED = "allowed"
_CLONE_NEWUSER = 0x10000000
_OURS = ("/dev/null", "/dev/urandom", "/dev/shm/", "/tmp/", "/mnt/data", "/proc/")  # noqa: S108
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
_SO_NETNS_COOKIE = 71


def _call(numbers: tuple[int, int], *arguments: int) -> int:
    """Make a system call; returns its errno, 0 where it worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    number = numbers[0 if platform.machine() == "x86_64" else 1]
    result: int = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result == 0 and numbers == _CLONE:
        os._exit(0)  # The child of a clone that should have been refused.
    return ctypes.get_errno() if result < 0 else 0


def _word(number: int) -> str:
    return errno.errorcode.get(number, str(number)) if number else _ALLOWED


def _answer(action: Callable[[], object]) -> str:
    """Return the name of the error that an action fails with."""
    try:
        action()
    except OSError as error:
        return _word(error.errno or errno.EIO)
    return _ALLOWED


def _create(directory: str) -> None:
    path = os.path.join(directory, ".doctor")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    os.unlink(path)


def read_only_root(_: Told) -> Seen:
    """Try to write in read-only places."""
    libraries = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    places = dict.fromkeys(["/", "/usr", "/etc", "/dev", *libraries])
    answers = {place: _answer(lambda: _create(place)) for place in places}  # noqa: B023
    # File modes would refuse as well, by another error; only a read-only mount holds against their
    # owner. Some kernels do not tell statvfs() of it.
    wrong = [f"{place} is not read-only" for place, answer in answers.items() if answer != "EROFS"]
    return wrong, ", ".join(f"{place}: {answer}" for place, answer in answers.items())


def files(told: Told) -> Seen:
    """Try to read files that exist on the host, by every path to them."""
    roots = ("", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/mnt/data/../..")
    wrong = [f"{r}{path} can be read" for path in told["files"] for r in roots if _shows(r + path)]
    held = " ".join(sorted(os.listdir("/")))
    return wrong, f"{len(told['files'])} files of the host cannot be read; / holds {held}"


def _shows(path: str) -> bool:
    return _answer(lambda: os.close(os.open(path, os.O_RDONLY))) == _ALLOWED


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MIB)
    except OSError:
        return b""


def landlock(told: Told) -> Seen:
    """Try to read a file that the mounts show, and Landlock alone closes."""
    answer = _answer(lambda: os.close(os.open("/.host/canary", os.O_RDONLY)))
    abi = told["landlock_abi"]
    seen = f"Landlock, ABI {abi}" if abi else "the host's kernel has no Landlock"
    return ([] if answer == "EACCES" else [seen]), f"{seen}; what it alone closes: {answer}"


def proc(told: Told) -> Seen:
    """Look for processes of the host, and for writable files of its kernel."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    bot = bytes.fromhex(told["cmdline"])
    wrong = [f"the bot shows as {pid}" for pid in pids if _bytes_of(f"/proc/{pid}/cmdline") == bot]
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
        # O_WRONLY alone changes nothing.
        answer = _answer(lambda: os.close(os.open(path, os.O_WRONLY)))  # noqa: B023
        if answer == _ALLOWED and not os.path.samestat(os.stat(path), os.stat("/dev/null")):
            wrong.append(f"{path} can be opened for writing")
    return wrong, f"{len(pids)} processes to be seen; core_pattern cannot be written"


def environment(told: Told) -> Seen:
    """Look for a variable of the bot's environment."""
    name = told["variable"]
    wrong = ["the bot's environment is inherited"] if name in os.environ else []
    for pid in ("1", "self"):
        if name.encode() in _bytes_of(f"/proc/{pid}/environ"):
            wrong.append(f"/proc/{pid}/environ shows the bot's environment")
    return wrong, f"{len(os.environ)} variables, none of the bot's"


def host_name(told: Told) -> Seen:
    """Compare the host name with the host's."""
    name = os.uname().nodename
    wrong = [f"it is called {name}, as the host is"] if name == told["host_name"] else []
    return wrong, f"it is called {name}"


def descriptors(told: Told) -> Seen:
    """Look for a file that the bot held open when it started the kernel."""
    wrong, numbers = [], [int(name) for name in os.listdir("/proc/self/fd")]
    for number in numbers:
        try:
            status, target = os.fstat(number), os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        is_theirs = [status.st_dev, status.st_ino] == told["inode"]
        if is_theirs or (target.startswith("/") and not target.startswith(_OURS)):
            wrong.append(f"descriptor {number} is {target}")
    return wrong, f"{len(numbers)} descriptors, all of them the kernel's own"


def network(told: Told) -> Seen:
    """Try to reach listeners of the bot on this very machine; never anything beyond."""
    names = [name for _, name in socket.if_nameindex()]
    wrong = [f"there is an interface {name}" for name in names if name != "lo"]
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.settimeout(1)
        tcp_answer = tcp.connect_ex(("127.0.0.1", told["port"]))
        if not tcp_answer:
            wrong.append("the host's 127.0.0.1 can be reached")
        if not unix.connect_ex("\0" + told["abstract"]):
            wrong.append("the host's abstract sockets can be reached")
        foreign = _foreign_sockets(tcp)
    if foreign:
        wrong.append(f"{foreign} of the sockets it was given are of another network")
    seen = f"interfaces: {' '.join(names) or 'none'}; the host's loopback: {_word(tcp_answer)}"
    return wrong, f"{seen}; all sockets are of the kernel's own network"


def doors(told: Told) -> Seen:
    """Connect to where the bot listens in this network, and try to listen there instead."""
    wrong = []
    for port in told["doors"]:
        with socket.socket() as client, socket.socket() as server:
            client.settimeout(1)
            if number := client.connect_ex(("127.0.0.1", port)):
                wrong.append(f"port {port} does not answer: {_word(number)}")
            if _answer(lambda: server.bind(("127.0.0.1", port))) == _ALLOWED:  # noqa: B023
                wrong.append(f"code can listen on port {port}")
    seen = f"ports {' and '.join(map(str, told['doors']))} of its loopback are the bot's"
    return wrong, f"{seen}, and open where `egress` lists something"


def _foreign_sockets(fresh: socket.socket) -> int:
    """Count the open sockets of another network namespace than that of a new one."""
    foreign = 0
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(fileno=os.dup(int(name))) as one:
                foreign += _network_of(one) != _network_of(fresh)
    return foreign


def _network_of(one: socket.socket) -> bytes:
    try:
        return one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:  # Linux before 5.14 does not tell.
        return b""


def _status() -> dict[str, str]:
    lines = (line.split(":", 1) for line in _bytes_of("/proc/self/status").decode().splitlines())
    return {key: value.strip() for key, value in lines}


def privileges(_: Told) -> Seen:
    """Read capabilities and NoNewPrivs."""
    status = _status()
    sets = [name for name in status if name.startswith("Cap")]
    wrong = [f"{name} is {status[name]}" for name in sets if int(status[name], 16)]
    wrong += [] if sets else ["capabilities are not told"]
    if status.get("NoNewPrivs") != "1":
        wrong.append("setuid programs work: NoNewPrivs is not set")
    return wrong, "no capability in any set; NoNewPrivs is 1"


def system_calls(_: Told) -> Seen:
    """Make calls that the seccomp filter denies."""
    answers = {name: _call(numbers, *args) for name, (numbers, args) in _CALLS.items()}
    denied = (errno.EPERM, errno.ENOSYS)
    wrong = [f"{name}: {_word(number)}" for name, number in answers.items() if number not in denied]
    if (seccomp := _status().get("Seccomp")) != "2":
        wrong.append(f"Seccomp is {seccomp}")
    return wrong, f"Seccomp is 2; denied: {' '.join(answers)}"


def nested(_: Told) -> Seen:
    """Try to make a user namespace, and check that it would be refused without the filter, too."""
    number = _call(_CLONE, _CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    most = _bytes_of("/proc/sys/user/max_user_namespaces").decode().strip()
    wrong = [] if number else ["a user namespace was made"]
    wrong += [] if most == "0" else [f"user.max_user_namespaces is {most or 'unknown'}"]
    return wrong, f"clone: {_word(number)}; user.max_user_namespaces is 0"


def core_dumps(_: Told) -> Seen:
    """Check that a crash starts no program of the host's, which a limit of 0 would not prevent."""
    pattern = _bytes_of("/proc/sys/kernel/core_pattern").decode("utf-8", "replace").strip()
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    is_open = pattern.startswith("@") or (pattern.startswith("|") and limit != 1)
    seen = f"kernel.core_pattern is {pattern!r}, the limit is {limit}"
    return ([seen] if is_open else []), seen


def out_of_memory(_: Told) -> Seen:
    """Check that the OOM killer chooses this process first, and that code cannot change it."""
    path = "/proc/self/oom_score_adj"
    score = _bytes_of(path).decode().strip()
    answer = _answer(lambda: _put(path, "0"))
    _answer(lambda: _put(path, score))
    seen = f"oom_score_adj is {score}; code that changes it: {answer}"
    return ([] if score == "1000" and answer != _ALLOWED else [seen]), seen


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
    read_only_root,
    files,
    landlock,
    proc,
    environment,
    host_name,
    descriptors,
    network,
    doors,
    privileges,
    system_calls,
    nested,
    core_dumps,
    out_of_memory,
    python,
)
