"""The thread of the iopub channel, which sends all displays and printed text of a kernel.

One thread waits for all that may have something to send: code that publishes, text that was printed
a moment ago, and what other programs wrote to descriptors 1 and 2. Each further thread would cost
every start a millisecond. Between cells, what publishes also sends: to hand a message over takes
longer than to send it.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import threading
from typing import Any, Final

import zmq
from jupyter_client import session as sessions

from . import standard_streams

_SUBSCRIPTION: Final = b"\x01"


class IOPubThread:
    """Sends the messages of all threads, in order: a socket serves one of them at a time.

    ipykernel's own does so with an event loop and two more sockets.

    Attributes:
        is_handing_over: whether every message is left to the thread, in which no signal raises an
            exception; elsewhere one may, amid a message.
    """

    def __init__(self, socket: zmq.Socket[bytes], session: sessions.Session) -> None:
        self._socket = socket
        self._session = session
        self._queue: collections.deque[tuple[list[Any], dict[str, Any]]] = collections.deque()
        self._using_socket = threading.Lock()
        self._has_text = False
        self.is_handing_over = False
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def start(self, printer: standard_streams.Printer) -> None:
        """Start to send displays and printed text."""
        threading.Thread(
            target=self._send_for_ever, args=(printer,), name="IOPub", daemon=True
        ).start()

    def send_multipart(self, frames: list[Any], **options: Any) -> None:
        """Send a message, at once or soon; as of a socket."""
        self._queue.append((frames, options))
        # Reentrant, because a signal handler may publish during a send.
        if self.is_handing_over or not self._using_socket.acquire(blocking=False):
            os.eventfd_write(self._wakeup, 1)
            return
        try:
            self._serve_socket()
        finally:
            self._using_socket.release()

    def push_soon(self) -> None:
        """Have the printer pushed in a moment: more text may come until then."""
        if not self._has_text:
            self._has_text = True
            os.eventfd_write(self._wakeup, 1)

    def _send_for_ever(self, printer: standard_streams.Printer) -> None:
        poller = select.poll()
        for descriptor in (self._socket.fileno(), self._wakeup, printer.fileno()):
            poller.register(descriptor, select.POLLIN)
        push_at: float | None = None
        while True:
            left_ms = None
            if push_at is not None:
                left_ms = max(int((push_at - standard_streams.now()) * 1000) + 1, 0)
            ready = dict(poller.poll(left_ms))
            if any(event & select.POLLNVAL for event in ready.values()):
                # Code has closed it, and can show nothing more.
                return
            # Any exception: code may have replaced whatever this uses, and can show nothing more
            # without this thread.
            with contextlib.suppress(Exception):
                if self._wakeup in ready:
                    os.eventfd_read(self._wakeup)
                if printer.fileno() in ready:
                    printer.read()
                if push_at is None and self._has_text:
                    push_at = standard_streams.now() + standard_streams.PAUSE_SECONDS
                elif push_at is not None and standard_streams.now() >= push_at:
                    push_at, self._has_text = None, False
                    printer.push()
            with self._using_socket:
                self._serve_socket()

    def _serve_socket(self) -> None:
        """Send waiting messages, and welcome new subscribers."""
        for _ in range(len(self._queue)):
            frames, options = self._queue.popleft()
            with contextlib.suppress(Exception):
                self._socket.send_multipart(frames, **options)
        # Its descriptor tells of these only once, and any use of the socket takes note.
        with contextlib.suppress(Exception):
            while int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
                self._welcome(self._socket.recv())

    def _welcome(self, event: bytes) -> None:
        """Tell a subscriber that it receives everything from now on."""
        if event.startswith(_SUBSCRIPTION):
            topic = event.removeprefix(_SUBSCRIPTION)
            content = {"subscription": topic.decode(errors="replace")}
            message = self._session.msg("iopub_welcome", content)
            self._socket.send_multipart([topic, *self._session.serialize(message)])
