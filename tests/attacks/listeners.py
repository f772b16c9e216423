"""Ears on the host's loopback, in its /tmp and in its abstract socket names."""

from __future__ import annotations

import pathlib
import select
import socket


class Ears:
    """Listens on the host; `heard` says which of them anybody reached."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "ear"
        self.abstract = f"interpreter-bot-ear-{directory.name}"
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

    def heard(self, seconds: float = 0.1) -> set[str]:
        """Which of them have a connection or a datagram waiting."""
        ready, _, _ = select.select(list(self.sockets.values()), [], [], seconds)
        return {name for name, ear in self.sockets.items() if ear in ready}

    def reach(self) -> None:
        """Reach every one of them, as a process of the host can."""
        addresses = {
            "tcp": (socket.AF_INET, ("127.0.0.1", self.tcp_port)),
            "unix": (socket.AF_UNIX, str(self.path)),
            "abstract": (socket.AF_UNIX, f"\0{self.abstract}"),
        }
        for family, address in addresses.values():
            with socket.socket(family) as mouth:
                mouth.connect(address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
            mouth.sendto(b"x", ("127.0.0.1", self.udp_port))

    def close(self) -> None:
        """Close them all."""
        for ear in self.sockets.values():
            ear.close()
