"""Checks of namespaces and mounts; run in a kernel after `in_kernel_walls`."""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot.doctor.in_kernel_walls import (
        ALLOWED,
        CheckResult,
        Facts,
        attempt,
        create_file,
        error_name,
        read_start,
        writable_settings,
    )

_SO_NETNS_COOKIE = 71


def read_only_root(_: Facts) -> CheckResult:
    """Try to write in read-only places."""
    libraries = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    places = dict.fromkeys(["/", "/usr", "/etc", "/dev", *libraries])
    answers = {place: attempt(lambda: create_file(place)) for place in places}  # noqa: B023
    # Only EROFS proves a read-only mount; file modes would refuse too, but not their owner. Some
    # kernels do not report the mount in statvfs().
    breaches = [
        f"{place} is not read-only" for place, answer in answers.items() if answer != "EROFS"
    ]
    return breaches, ", ".join(f"{place}: {answer}" for place, answer in answers.items())


def landlock(facts: Facts) -> CheckResult:
    """Try to read a file that is mounted and that only Landlock forbids."""
    result = attempt(lambda: os.close(os.open("/.host/canary", os.O_RDONLY)))
    abi = facts["landlock_abi"]
    detail = f"Landlock, ABI {abi}" if abi else "the host's kernel has no Landlock"
    return ([] if result == "EACCES" else [detail]), f"{detail}; what it alone closes: {result}"


def proc(facts: Facts) -> CheckResult:
    """Look for processes of the host, and for writable files of its kernel."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    bot = bytes.fromhex(facts["cmdline"])
    breaches = [
        f"the bot shows as {pid}" for pid in pids if read_start(f"/proc/{pid}/cmdline") == bot
    ]
    breaches += writable_settings()
    return breaches, f"{len(pids)} processes to be seen; core_pattern cannot be written"


def host_name(facts: Facts) -> CheckResult:
    """Compare the host name with the host's."""
    name = os.uname().nodename
    breaches = [f"it is called {name}, as the host is"] if name == facts["host_name"] else []
    return breaches, f"it is called {name}"


def network(facts: Facts) -> CheckResult:
    """Try to connect to listeners of the bot on this machine."""
    names = [name for _, name in socket.if_nameindex()]
    breaches = [f"there is an interface {name}" for name in names if name != "lo"]
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.settimeout(1)
        tcp_answer = tcp.connect_ex(("127.0.0.1", facts["port"]))
        if not tcp_answer:
            breaches.append("the host's 127.0.0.1 can be reached")
        if not unix.connect_ex("\0" + facts["abstract"]):
            breaches.append("the host's abstract sockets can be reached")
        foreign = _foreign_sockets(tcp)
    if foreign:
        breaches.append(f"{foreign} of the sockets it was given are of another network")
    detail = (
        f"interfaces: {' '.join(names) or 'none'}; the host's loopback: {error_name(tcp_answer)}"
    )
    return breaches, f"{detail}; all sockets are of the kernel's own network"


def doors(facts: Facts) -> CheckResult:
    """Connect to the ports at which the bot listens in this namespace, and try to bind them."""
    breaches = []
    for port in facts["doors"]:
        with socket.socket() as client, socket.socket() as server:
            client.settimeout(1)
            if number := client.connect_ex(("127.0.0.1", port)):
                breaches.append(f"port {port} does not answer: {error_name(number)}")
            if attempt(lambda: server.bind(("127.0.0.1", port))) == ALLOWED:  # noqa: B023
                breaches.append(f"code can listen on port {port}")
    detail = f"ports {' and '.join(map(str, facts['doors']))} of its loopback are the bot's"
    return breaches, f"{detail}, and open where `egress` lists something"


def _foreign_sockets(fresh: socket.socket) -> int:
    """Count inherited sockets whose network namespace is not that of a new socket."""
    foreign = 0
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(fileno=os.dup(int(name))) as open_socket:
                foreign += _network_of(open_socket) != _network_of(fresh)
    return foreign


def _network_of(open_socket: socket.socket) -> bytes:
    try:
        return open_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:  # Linux before 5.14 does not tell.
        return b""


CHECKS = (read_only_root, landlock, proc, host_name, network, doors)
