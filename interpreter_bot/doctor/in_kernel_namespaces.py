"""Checks of namespaces and mounts; run in a kernel after `in_kernel_walls`."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpreter_bot.doctor.in_kernel_walls import (
        ALLOWED,
        CheckResult,
        Facts,
        attempt,
        count_sockets,
        create_file,
        error_name,
        read_start,
        writable_settings,
    )

_SO_NETNS_COOKIE = 71


def read_only_root(_: Facts) -> CheckResult:
    """Try to write in read-only directories."""
    libraries = [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    directories = dict.fromkeys(["/", "/usr", "/etc", "/dev", *libraries])
    answers = {directory: attempt(lambda: create_file(directory)) for directory in directories}  # noqa: B023
    # Only EROFS proves a read-only mount, since modes do not bind owners. Some versions of
    # Linux do not report such mounts in statvfs().
    breaches = [
        f"{directory} is not read-only"
        for directory, answer in answers.items()
        if answer != "EROFS"
    ]
    return breaches, ", ".join(f"{directory}: {answer}" for directory, answer in answers.items())


def landlock(facts: Facts) -> CheckResult:
    """Try to read a mounted file to which only Landlock denies access."""
    result = attempt(lambda: os.close(os.open("/.host/canary", os.O_RDONLY)))
    abi = facts["landlock_abi"]
    detail = f"Landlock, ABI {abi}" if abi else "the host's kernel has no Landlock"
    return ([] if result == "EACCES" else [detail]), f"{detail}; what it alone closes: {result}"


def proc(facts: Facts) -> CheckResult:
    """Look for processes of the host, and for writable settings of its Linux."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    bot_command = bytes.fromhex(facts["cmdline"])
    breaches = [
        f"the bot shows as {pid}"
        for pid in pids
        if read_start(f"/proc/{pid}/cmdline") == bot_command
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
    with socket.socket() as tcp_client, socket.socket(socket.AF_UNIX) as unix_client:
        tcp_client.settimeout(1)
        tcp_answer = tcp_client.connect_ex(("127.0.0.1", facts["port"]))
        if not tcp_answer:
            breaches.append("the host's 127.0.0.1 can be reached")
        if not unix_client.connect_ex("\0" + facts["abstract"]):
            breaches.append("the host's abstract sockets can be reached")
        # By their network namespaces.
        own_cookie = _network_cookie(tcp_client)
        foreign_count = count_sockets(lambda inherited: _network_cookie(inherited) != own_cookie)
    if foreign_count:
        breaches.append(f"{foreign_count} of the sockets it was given are of another network")
    detail = (
        f"interfaces: {' '.join(names) or 'none'}; the host's loopback: {error_name(tcp_answer)}"
    )
    return breaches, f"{detail}; all sockets are of the kernel's own network"


def doors(facts: Facts) -> CheckResult:
    """Connect to the ports where the bot listens in this namespace, and try to bind them."""
    breaches = []
    for port in facts["doors"]:
        with socket.socket() as client, socket.socket() as server:
            client.settimeout(1)
            if error_number := client.connect_ex(("127.0.0.1", port)):
                breaches.append(f"port {port} does not answer: {error_name(error_number)}")
            if attempt(lambda: server.bind(("127.0.0.1", port))) == ALLOWED:  # noqa: B023
                breaches.append(f"code can listen on port {port}")
    detail = f"ports {' and '.join(map(str, facts['doors']))} of its loopback are the bot's"
    return breaches, f"{detail}, and open where `egress` lists something"


def _network_cookie(open_socket: socket.socket) -> bytes:
    try:
        return open_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:  # Linux before 5.14 does not tell.
        return b""


CHECKS = (read_only_root, landlock, proc, host_name, network, doors)
