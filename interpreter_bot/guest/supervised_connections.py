"""Doors of a session that shares the container's network: its keeper connects in its place.

The system call filter hands each `connect` of the session to the keeper, which reads the address
once. If that is a door's, and the bot listens there, the keeper makes a connection of its own and
puts one end where code has its socket; the bot gets the other end. For any other address the call
fails. It is never let go on, so it is of no use to change the address after it was read.

Whose a connection is follows from the keeper that made it, not from an address: ports of the
container are open to all that run in it.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import functools
import os
import select
import socket
import struct
import time
from collections.abc import Mapping

from . import container_walls, control_channels, seccomp, syscalls

# SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ID_VALID and _ADDFD, with what they read and write.
_RECEIVE, _ANSWER, _CHECK, _PLACE = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_CALL, _RESULT = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_NUMBER, _PLACEMENT = struct.Struct("=Q"), struct.Struct("=QIIII")
_AT_THAT_NUMBER = 1
_ADDRESS = struct.Struct("!2xH4s8x")
_LOOPBACK, _OWN = 127, socket.inet_aton("127.0.0.1")
_HIGHEST_OFFSET = (1 << 63) - 1
_LOW_HALF = 0xFFFFFFFF
# As `guest/confinement` bounds the queues of a session's own network; Linux doubles it. The
# container's own may grow to megabytes, which are charged to no session.
_QUEUE_BYTES = 106_496
_BACKLOG = 128
_CONNECT_SECONDS = 1.0
_REFUSAL_SECONDS = 0.001
_TRIAL_SECONDS = 5.0
_TRIAL_PORT = 1


class Door:
    """The keeper's end of a door; at the other one the bot asks for one connection at a time.

    Connections that are not asked for yet wait here, not on the way: the number of descriptors that
    are on the way is limited for all sessions of a user together.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._is_open = False
        self._requests = 0
        self._waiting: collections.deque[socket.socket] = collections.deque()

    @property
    def accepts(self) -> bool:
        """Whether the bot listens, and not too much waits for it."""
        self.update()
        return self._is_open and len(self._waiting) < _BACKLOG

    def update(self) -> bool:
        """Take the bot's requests, and answer as many as can be; False if it is gone."""
        try:
            while self.channel.recv(control_channels.PACKET_BYTES, socket.MSG_DONTWAIT):
                self._is_open = True
                self._requests += 1
                self._pass_on()
        except BlockingIOError:
            return True
        except OSError:
            # It left without taking the connections that were on the way.
            pass
        self._is_open = False
        return False

    def add(self, endpoint: socket.socket) -> None:
        """Let the bot have a connection's other end."""
        self._waiting.append(endpoint)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._requests and self._waiting:
            self._requests -= 1
            # The bot may be gone, and code is about to end.
            with self._waiting.popleft() as endpoint, contextlib.suppress(OSError):
                control_channels.send(self.channel, {}, [endpoint.fileno()])


class Supervisor:
    """Answers what a session's processes want to connect to."""

    def __init__(self, listener: int, doors: Mapping[int, Door]) -> None:
        """Answer nothing yet.

        Args:
            listener: where calls are heard of.
            doors: by their ports at 127.0.0.1.
        """
        self.listener = listener
        self._doors = doors

    def answer(self) -> None:
        """Answer one call. There must be one: this waits for it."""
        call = bytearray(_CALL.size)
        # Who made a call may have been killed, or interrupted, at any moment.
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.listener, _RECEIVE, call)
            number, pid, _, _, _, _, descriptor, address, size, *_ = _CALL.unpack(call)
            error = self._connect(number, pid, descriptor & _LOW_HALF, address, size & _LOW_HALF)
            # Whoever is refused would otherwise ask again at once, at no cost of its own.
            time.sleep(_REFUSAL_SECONDS if error else 0)
            fcntl.ioctl(self.listener, _ANSWER, _RESULT.pack(number, 0, -error, 0))

    def _connect(self, number: int, pid: int, descriptor: int, address: int, size: int) -> int:
        """Connect a process's socket; returns the number of the error, 0 for none."""
        try:
            door = self._door(self._read(number, pid, address, size))
            flags = _flags(pid, descriptor)
            with _socket() as near, self._connect_to_self(near) as far:
                near.setblocking(not flags & os.O_NONBLOCK)
                placement = (near.fileno(), descriptor, flags & os.O_CLOEXEC)
                order = _PLACEMENT.pack(number, _AT_THAT_NUMBER, *placement)
                fcntl.ioctl(self.listener, _PLACE, order)
                door.add(far.dup())
        except TimeoutError:
            return errno.ECONNREFUSED
        except OSError as error:
            return error.errno or errno.EACCES
        return 0

    @functools.cached_property
    def _acceptor(self) -> socket.socket:
        """Where the keeper connects to itself.

        Kept, as ports of ended connections are taken for a minute, and the container has few.
        """
        acceptor = _socket()
        acceptor.bind(("127.0.0.1", 0))
        acceptor.listen()
        return acceptor

    def _connect_to_self(self, near: socket.socket) -> socket.socket:
        """Connect a socket of TCP, whose options programs set; return the other end.

        Raises:
            OSError: there are no more sockets.
        """
        near.connect(self._acceptor.getsockname())
        while True:
            far, address = self._acceptor.accept()
            if address == near.getsockname():
                return far
            # No session can come here, but other programs of the container can.
            far.close()

    def _read(self, number: int, pid: int, address: int, size: int) -> bytes:
        """Read the address that a call names, out of the caller's memory.

        Raises:
            OSError: it is none.
        """
        if address > _HIGHEST_OFFSET:
            raise OSError(errno.EFAULT, "not in memory")
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            # Who still waits for an answer has not been replaced by another process of its number.
            fcntl.ioctl(self.listener, _CHECK, _NUMBER.pack(number))
            try:
                content = os.pread(memory.fileno(), min(size, _ADDRESS.size), address)
            except OSError as error:
                raise OSError(errno.EFAULT, "not in memory") from error
        family = int.from_bytes(content[:2], "little")
        if family == socket.AF_UNIX:
            # Paths and names are those of the whole container.
            raise OSError(errno.EPERM, "of others")
        if len(content) < _ADDRESS.size or family != socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, "no address of a door")
        return content

    def _door(self, content: bytes) -> Door:
        """Return the door at an address.

        Raises:
            OSError: there is none, or nobody listens there.
        """
        port, host = _ADDRESS.unpack(content)
        if host[0] not in (0, _LOOPBACK):
            raise OSError(errno.ENETUNREACH, "no way out")
        door = self._doors.get(port) if host == _OWN else None
        if door is None or not door.accepts:
            raise OSError(errno.ECONNREFUSED, "nobody listens")
        return door


def _flags(pid: int, descriptor: int) -> int:
    """Return the flags of a socket of a process.

    Raises:
        OSError: it has no such socket.
    """
    try:
        if not os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith("socket:"):
            raise OSError(errno.ENOTSOCK, "no socket")
        with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
            fields = dict(line.split(maxsplit=1) for line in file)
    except FileNotFoundError as error:
        raise OSError(errno.EBADF, "not open") from error
    return int(fields["flags:"], 8)


def _socket() -> socket.socket:
    """Return a socket of TCP with small queues, as those that it accepts have."""
    endpoint = socket.socket()
    endpoint.settimeout(_CONNECT_SECONDS)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        endpoint.setsockopt(socket.SOL_SOCKET, option, _QUEUE_BYTES)
    endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return endpoint


def refusal(uid: int) -> str:
    """Return why connections cannot be supervised here, as a sentence without an end; empty if they
    can. Found by trying, in a child.

    Args:
        uid: that a session may have; 0 for this process's own.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _try(uid)
        except OSError as error:
            os.write(writer, f"connections cannot be supervised ({error.strerror})".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        reason = file.read()
    os.waitpid(pid, 0)
    return reason


def _try(uid: int) -> None:
    """Be a keeper, with a session that connects to its door.

    Raises:
        OSError: it could not.
    """
    link, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bot, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control_channels.send(bot, {"op": "accept"}, [])
    pid = os.fork()
    if pid == 0:
        status = errno.EPERM
        try:
            link.close()
            _be_session(uid, far_end)
            status = 0
        except OSError as error:
            status = error.errno or status
        finally:
            os._exit(status)
    far_end.close()
    if (received := control_channels.receive(link)) is not None:
        if uid:
            syscalls.access_files_as(uid)
        (listener,) = received[1]
        if select.select([listener], [], [], _TRIAL_SECONDS)[0]:
            Supervisor(listener, {_TRIAL_PORT: Door(channel)}).answer()
        # A call that is not answered by now fails.
        os.close(listener)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(status, os.strerror(status))


def _be_session(uid: int, link: socket.socket) -> None:
    if uid:
        container_walls.become(uid)
    syscalls.set_dumpable(True)
    syscalls.forbid_new_privileges()
    program = seccomp.build(has_namespaces=False, has_shared_id=not uid, has_doors=True)
    listener = syscalls.install_filter(program, is_supervised=True)
    control_channels.send(link, {}, [listener])
    os.close(listener)
    with socket.socket() as client:
        client.connect(("127.0.0.1", _TRIAL_PORT))
