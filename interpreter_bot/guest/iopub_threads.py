"""The thread of the iopub channel, which sends all displays and printed text of a kernel.

One thread waits for messages of all threads, for printed text, and for output of programs on
descriptors 1 and 2, because each further thread would slow down every start by a millisecond.
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
    """Sends messages of all threads in order, since only one thread may use a socket.

    It replaces ipykernel's thread, which needs an event loop and two more sockets.
    """

    def __init__(self, socket: zmq.Socket[bytes], session: sessions.Session) -> None:
        self._socket = socket
        self._session = session
        self._queue: collections.deque[tuple[list[Any], dict[str, Any]]] = collections.deque()
        self._has_text = False
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def start(self, printer: standard_streams.Printer) -> None:
        """Start to send displays and printed text."""
        threading.Thread(
            target=self._send_for_ever, args=(printer,), name="IOPub", daemon=True
        ).start()

    def send_multipart(self, frames: list[Any], **options: Any) -> None:
        """Let the thread send a message; the parameters are those of a socket's method."""
        self._queue.append((frames, options))
        os.eventfd_write(self._wakeup, 1)

    def push_soon(self) -> None:
        """Let the thread push the printer's text in a moment, when more text may have come."""
        if not self._has_text:
            self._has_text = True
            os.eventfd_write(self._wakeup, 1)

    def _send_for_ever(self, printer: standard_streams.Printer) -> None:
        poller = select.poll()
        for descriptor in (self._socket.fileno(), self._wakeup, printer.fileno()):
            poller.register(descriptor, select.POLLIN)
        push_time: float | None = None
        while True:
            timeout_ms = None
            if push_time is not None:
                timeout_ms = max(int((push_time - standard_streams.now()) * 1000) + 1, 0)
            ready = dict(poller.poll(timeout_ms))
            if any(event & select.POLLNVAL for event in ready.values()):
                # Code has closed a descriptor, so it can show nothing more.
                return
            # Any exception, because code may have replaced anything that this uses. The thread
            # must go on, or code can show nothing more.
            with contextlib.suppress(Exception):
                if self._wakeup in ready:
                    os.eventfd_read(self._wakeup)
                if printer.fileno() in ready:
                    printer.read()
                if push_time is None and self._has_text:
                    push_time = standard_streams.now() + standard_streams.PAUSE_SECONDS
                elif push_time is not None and standard_streams.now() >= push_time:
                    push_time, self._has_text = None, False
                    printer.push()
            self._serve_socket()

    def _serve_socket(self) -> None:
        """Send queued messages, and welcome new subscribers."""
        for _ in range(len(self._queue)):
            frames, options = self._queue.popleft()
            with contextlib.suppress(Exception):
                self._socket.send_multipart(frames, **options)
        # The socket's descriptor becomes readable only once for these events, and any use of the
        # socket resets it, so read them all.
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
