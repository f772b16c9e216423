"""Doors of a session that shares the container's network: its keeper connects for it.

The system call filter passes each `connect` of the session to the keeper, which reads the address
once. If it is the address of a door, and the bot listens there, the keeper creates a pair of
connected sockets. One replaces the socket of the code; the bot gets the other. For all other
addresses the call fails. The call itself is never executed, so code gains nothing by changing the
address after it was read.

The keeper that creates a connection determines its session, not an address, because all programs of
a container can use its ports.
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

from . import container_walls, control_messages, seccomp, syscalls

# SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ID_VALID and _ADDFD, and the structures of their arguments.
_RECEIVE_CALL, _ANSWER_CALL, _CHECK_CALL_IS_PENDING, _PLACE_DESCRIPTOR = (
    0xC0502100,
    0xC0182101,
    0x40082102,
    0x40182103,
)
_CALL, _RESULT = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_CALL_ID, _PLACEMENT = struct.Struct("=Q"), struct.Struct("=QIIII")
_REPLACE_DESCRIPTOR = 1
_ADDRESS = struct.Struct("!2xH4s8x")
_LOOPBACK, _DOOR_HOST = 127, socket.inet_aton("127.0.0.1")
_MAX_OFFSET = (1 << 63) - 1
_LOW_HALF = 0xFFFFFFFF
# The same limit as for queues in a session's own network (`confinement`); Linux doubles it. The
# default would allow megabytes, which count toward no session's memory.
_MAX_QUEUE_BYTES = 106_496
_MAX_WAITING_CONNECTIONS = 128
_CONNECT_SECONDS = 1.0
_REFUSAL_SECONDS = 0.001
_TRIAL_SECONDS = 5.0
_TRIAL_PORT = 1


class Door:
    """The keeper's end of a door; at the other end, the bot requests one connection at a time.

    Connections wait here until the bot requests them, because Linux limits the number of
    descriptors in unread messages for all sessions of a user together.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._is_open = False
        self._request_count = 0
        self._waiting_connections: collections.deque[socket.socket] = collections.deque()

    @property
    def can_accept(self) -> bool:
        """Whether the bot listens, and not too many connections wait for it."""
        self.update()
        return self._is_open and len(self._waiting_connections) < _MAX_WAITING_CONNECTIONS

    def update(self) -> bool:
        """Read the bot's requests and send waiting connections; return whether the bot listens."""
        try:
            while self.channel.recv(control_messages.MAX_PACKET_BYTES, socket.MSG_DONTWAIT):
                self._is_open = True
                self._request_count += 1
                self._send_waiting()
        except BlockingIOError:
            return True
        except OSError:
            # The bot closed its end with unread connections.
            pass
        self._is_open = False
        return False

    def give_connection(self, endpoint: socket.socket) -> None:
        """Give the bot its end of a connection when it requests one."""
        self._waiting_connections.append(endpoint)
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._request_count and self._waiting_connections:
            self._request_count -= 1
            # The bot may have closed its end, because the session is about to end.
            with self._waiting_connections.popleft() as endpoint, contextlib.suppress(OSError):
                message = control_messages.ConnectionAccepted()
                control_messages.send(self.channel, message, [endpoint.fileno()])


class Supervisor:
    """Answers the `connect` calls of a session's processes."""

    def __init__(self, listener: int, doors: Mapping[int, Door]) -> None:
        """Prepare a supervisor; `answer` answers calls.

        Args:
            listener: seccomp's descriptor for supervised calls.
            doors: by their ports at 127.0.0.1.
        """
        self.listener = listener
        self._doors = doors

    def answer(self) -> None:
        """Wait for one call, and answer it."""
        call = bytearray(_CALL.size)
        # The calling process may be killed or interrupted at any moment.
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.listener, _RECEIVE_CALL, call)
            call_id, pid, _, _, _, _, descriptor, address, size, *_ = _CALL.unpack(call)
            error_number = self._connect(
                call_id, pid, descriptor & _LOW_HALF, address, size & _LOW_HALF
            )
            # Code may retry at once. The pause limits how much of the keeper's time that takes.
            time.sleep(_REFUSAL_SECONDS if error_number else 0)
            fcntl.ioctl(self.listener, _ANSWER_CALL, _RESULT.pack(call_id, 0, -error_number, 0))

    def _connect(self, call_id: int, pid: int, descriptor: int, address: int, size: int) -> int:
        """Connect a process's socket; return the error number, 0 for success."""
        try:
            door = self._find_door(self._read_address(call_id, pid, address, size))
            flags = _read_socket_flags(pid, descriptor)
            with _create_socket() as session_end, self._accept_from_self(session_end) as bot_end:
                session_end.setblocking(not flags & os.O_NONBLOCK)
                placement = (session_end.fileno(), descriptor, flags & os.O_CLOEXEC)
                placement_request = _PLACEMENT.pack(call_id, _REPLACE_DESCRIPTOR, *placement)
                fcntl.ioctl(self.listener, _PLACE_DESCRIPTOR, placement_request)
                door.give_connection(bot_end.dup())
        except TimeoutError:
            return errno.ECONNREFUSED
        except OSError as error:
            return error.errno or errno.EACCES
        return 0

    @functools.cached_property
    def _acceptor(self) -> socket.socket:
        """Listening socket of the keeper's connections to itself.

        There is only one, because each port stays in use for a minute after its last connection,
        and the container has a limited number.
        """
        acceptor = _create_socket()
        acceptor.bind(("127.0.0.1", 0))
        acceptor.listen()
        return acceptor

    def _accept_from_self(self, session_end: socket.socket) -> socket.socket:
        """Connect a TCP socket to the keeper itself; return the other end.

        A Unix socket pair would not do, because programs set TCP's options.

        Raises:
            OSError: there are no more sockets.
        """
        session_end.connect(self._acceptor.getsockname())
        while True:
            bot_end, address = self._acceptor.accept()
            if address == session_end.getsockname():
                return bot_end
            # The other end may belong to another program of the container, but to no session.
            bot_end.close()

    def _read_address(self, call_id: int, pid: int, address: int, size: int) -> bytes:
        """Read the address of a call from the caller's memory.

        Raises:
            OSError: it is not an Internet address.
        """
        if address > _MAX_OFFSET:
            raise OSError(errno.EFAULT, "not in memory")
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            # While the call is pending, the pid is still that of the calling process.
            fcntl.ioctl(self.listener, _CHECK_CALL_IS_PENDING, _CALL_ID.pack(call_id))
            try:
                content = os.pread(memory.fileno(), min(size, _ADDRESS.size), address)
            except OSError as error:
                raise OSError(errno.EFAULT, "not in memory") from error
        family = int.from_bytes(content[:2], "little")
        if family == socket.AF_UNIX:
            # Unix sockets may be those of any program in the container.
            raise OSError(errno.EPERM, "of others")
        if len(content) < _ADDRESS.size or family != socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, "no address of a door")
        return content

    def _find_door(self, content: bytes) -> Door:
        """Return the door at an address.

        Raises:
            OSError: there is no door, or the bot does not listen there.
        """
        port, host = _ADDRESS.unpack(content)
        if host[0] not in (0, _LOOPBACK):
            raise OSError(errno.ENETUNREACH, "no way out")
        door = self._doors.get(port) if host == _DOOR_HOST else None
        if door is None or not door.can_accept:
            raise OSError(errno.ECONNREFUSED, "nobody listens")
        return door


def _read_socket_flags(pid: int, descriptor: int) -> int:
    """Return the file flags of a process's socket.

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


def _create_socket() -> socket.socket:
    """Return a TCP socket with small queues, which its accepted connections inherit."""
    endpoint = socket.socket()
    endpoint.settimeout(_CONNECT_SECONDS)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        endpoint.setsockopt(socket.SOL_SOCKET, option, _MAX_QUEUE_BYTES)
    endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return endpoint


def find_refusal(uid: int) -> str:
    """Return why connections cannot be supervised, without a full stop; empty if they can.

    `uid` is a session's user id; 0 stands for that of this process.
    """

    def attempt() -> str:
        try:
            _try_to_supervise(uid)
        except OSError as error:
            return f"connections cannot be supervised ({error.strerror})"
        return ""

    return container_walls.try_in_child(attempt)


def _try_to_supervise(uid: int) -> None:
    """Act as a keeper, with a child as a session that connects to its door.

    Raises:
        OSError: it failed.
    """
    keeper_end, session_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bot, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control_messages.send(bot, control_messages.AcceptConnection())
    pid = os.fork()
    if pid == 0:
        status = errno.EPERM
        try:
            keeper_end.close()
            _connect_as_session(uid, session_end)
            status = 0
        except OSError as error:
            status = error.errno or status
        finally:
            os._exit(status)
    session_end.close()
    if (received := control_messages.receive(keeper_end)) is not None:
        if uid:
            syscalls.access_files_as(uid)
        (listener,) = received[1]
        if select.select([listener], [], [], _TRIAL_SECONDS)[0]:
            Supervisor(listener, {_TRIAL_PORT: Door(channel)}).answer()
        # Closing the listener makes an unanswered call fail.
        os.close(listener)
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(status, os.strerror(status))


def _connect_as_session(uid: int, session_end: socket.socket) -> None:
    if uid:
        container_walls.switch_user(uid)
    syscalls.set_dumpable(True)
    syscalls.forbid_new_privileges()
    program = seccomp.build(has_namespaces=False, has_shared_id=not uid, has_doors=True)
    listener = syscalls.install_filter(program, is_supervised=True)
    control_messages.send(session_end, control_messages.KernelConfined(), [listener])
    os.close(listener)
    with socket.socket() as client:
        client.connect(("127.0.0.1", _TRIAL_PORT))
