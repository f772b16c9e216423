"""Listening sockets of the host: on its loopback, in its /tmp and in its abstract names."""

from __future__ import annotations

import pathlib
import select
import socket


class HostListeners:
    """Listening sockets on the host; `list_reached` returns those that were reached."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "listener"
        self.abstract = f"interpreter-bot-listener-{directory.name}"
        self.sockets = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX),
            "abstract": socket.socket(socket.AF_UNIX),
        }
        self.sockets["udp"].bind(("127.0.0.1", 0))
        self.sockets["unix"].bind(str(self.path))
        self.path.chmod(0o777)
        self.sockets["abstract"].bind(f"\0{self.abstract}")
        for name in ("unix", "abstract"):
            self.sockets[name].listen()
        self.tcp_port, self.udp_port = (
            self.sockets[name].getsockname()[1] for name in ("tcp", "udp")
        )

    def list_reached(self, seconds: float = 0.1) -> set[str]:
        """Return the names of the sockets with a waiting connection or datagram."""
        ready, _, _ = select.select(list(self.sockets.values()), [], [], seconds)
        return {name for name, listener in self.sockets.items() if listener in ready}

    def connect_to_all(self) -> None:
        """Connect or send to every socket, as a process of the host can."""
        addresses = {
            "tcp": (socket.AF_INET, ("127.0.0.1", self.tcp_port)),
            "unix": (socket.AF_UNIX, str(self.path)),
            "abstract": (socket.AF_UNIX, f"\0{self.abstract}"),
        }
        for family, address in addresses.values():
            with socket.socket(family) as client:
                client.connect(address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", ("127.0.0.1", self.udp_port))

    def close(self) -> None:
        """Close all sockets."""
        for listener in self.sockets.values():
            listener.close()
