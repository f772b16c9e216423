"""Checks of the walls that namespaces and mounts are: run in a kernel, after `in_kernel_walls`."""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot.doctor.in_kernel_walls import (
        ALLOWED,
        Seen,
        Told,
        attempt,
        bytes_of,
        create,
        word,
        writable_settings,
    )

_SO_NETNS_COOKIE = 71


def read_only_root(_: Told) -> Seen:
    """Try to write in read-only places."""
    libraries = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    places = dict.fromkeys(["/", "/usr", "/etc", "/dev", *libraries])
    answers = {place: attempt(lambda: create(place)) for place in places}  # noqa: B023
    # File modes would refuse as well, by another error; only a read-only mount holds against their
    # owner. Some kernels do not tell statvfs() of it.
    wrong = [f"{place} is not read-only" for place, answer in answers.items() if answer != "EROFS"]
    return wrong, ", ".join(f"{place}: {answer}" for place, answer in answers.items())


def landlock(told: Told) -> Seen:
    """Try to read a file that the mounts show, and Landlock alone closes."""
    result = attempt(lambda: os.close(os.open("/.host/canary", os.O_RDONLY)))
    abi = told["landlock_abi"]
    seen = f"Landlock, ABI {abi}" if abi else "the host's kernel has no Landlock"
    return ([] if result == "EACCES" else [seen]), f"{seen}; what it alone closes: {result}"


def proc(told: Told) -> Seen:
    """Look for processes of the host, and for writable files of its kernel."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    bot = bytes.fromhex(told["cmdline"])
    wrong = [f"the bot shows as {pid}" for pid in pids if bytes_of(f"/proc/{pid}/cmdline") == bot]
    wrong += writable_settings()
    return wrong, f"{len(pids)} processes to be seen; core_pattern cannot be written"


def host_name(told: Told) -> Seen:
    """Compare the host name with the host's."""
    name = os.uname().nodename
    wrong = [f"it is called {name}, as the host is"] if name == told["host_name"] else []
    return wrong, f"it is called {name}"


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
    seen = f"interfaces: {' '.join(names) or 'none'}; the host's loopback: {word(tcp_answer)}"
    return wrong, f"{seen}; all sockets are of the kernel's own network"


def doors(told: Told) -> Seen:
    """Connect to where the bot listens in this network, and try to listen there instead."""
    wrong = []
    for port in told["doors"]:
        with socket.socket() as client, socket.socket() as server:
            client.settimeout(1)
            if number := client.connect_ex(("127.0.0.1", port)):
                wrong.append(f"port {port} does not answer: {word(number)}")
            if attempt(lambda: server.bind(("127.0.0.1", port))) == ALLOWED:  # noqa: B023
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


CHECKS = (read_only_root, landlock, proc, host_name, network, doors)
