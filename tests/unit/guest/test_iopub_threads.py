"""Messages of a kernel are sent in order, by the thread that publishes or by the iopub thread."""

import threading
import time

import pytest
import zmq
from jupyter_client import session as sessions

from interpreter_bot.guest import iopub_threads, standard_streams


@pytest.fixture
def ends(request):
    """Return an iopub thread, which is not started, and a socket that can subscribe."""
    context, address = zmq.Context.instance(), f"inproc://{request.node.name}"
    publisher, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    publisher.bind(address)
    subscriber.connect(address)
    subscriber.rcvtimeo = 5_000
    yield iopub_threads.IOPubThread(publisher, sessions.Session(key=b"")), subscriber
    subscriber.close()
    # A started thread waits on its socket for ever, as in a kernel.
    if "start" not in request.fixturenames:
        publisher.close()


@pytest.fixture
def start(ends):
    """Return a function that starts the thread."""
    outputs, _ = ends
    printer = standard_streams.Printer(lambda *_: None, outputs.push_soon, 1000)
    return lambda: outputs.start(printer)


def subscribe(outputs, subscriber):
    """Subscribe to everything; sending a message makes the sender welcome the subscriber."""
    subscriber.subscribe(b"")
    deadline = time.monotonic() + 5
    while not any(
        b"iopub_welcome" in part for message in receive_waiting(subscriber) for part in message
    ):
        assert time.monotonic() < deadline
        outputs.send_multipart([b"sent while nobody listened"])


def receive_waiting(subscriber):
    """Return all messages that have arrived."""
    messages = []
    while subscriber.poll(100):
        messages.append(subscriber.recv_multipart())
    return messages


def test_between_cells_the_publishing_thread_sends_and_welcomes(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.send_multipart([b"a", b"b"])
    assert receive_waiting(subscriber) == [[b"a", b"b"]]


def test_during_a_cell_only_the_thread_sends(ends, start):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.is_handing_over = True
    outputs.send_multipart([b"a", b"b"])
    assert not receive_waiting(subscriber)
    start()
    assert receive_waiting(subscriber) == [[b"a", b"b"]]


def test_messages_for_the_thread_are_sent_before_later_ones(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.is_handing_over = True
    outputs.send_multipart([b"first"])
    outputs.is_handing_over = False
    outputs.send_multipart([b"second"])
    assert receive_waiting(subscriber) == [[b"first"], [b"second"]]


def test_the_thread_welcomes_subscribers_while_nothing_is_sent(ends, start):
    _, subscriber = ends
    start()
    for topic in (b"a", b"b"):
        subscriber.subscribe(topic)
        assert subscriber.recv_multipart()[0] == topic


class InterruptedSocket:
    """A socket that publishes in the middle of a send, as a signal handler may."""

    def __init__(self, socket):
        self._socket = socket
        self.pending_calls = []

    def send_multipart(self, parts):
        self._socket.send_multipart(parts)
        for publish in self.pending_calls[:1]:
            self.pending_calls.clear()
            publish()

    def get(self, option):
        return self._socket.get(option)


def test_publishing_in_the_middle_of_a_send_does_not_wait():
    context = zmq.Context.instance()
    with context.socket(zmq.XPUB) as publisher, context.socket(zmq.SUB) as subscriber:
        publisher.bind("inproc://amid-a-send")
        subscriber.connect("inproc://amid-a-send")
        socket = InterruptedSocket(publisher)
        outputs = iopub_threads.IOPubThread(socket, sessions.Session(key=b""))
        subscriber.subscribe(b"")
        publisher.recv()
        socket.pending_calls.append(lambda: outputs.send_multipart([b"inner"]))
        # In a daemon thread, because after a deadlock it would wait for ever.
        sender = threading.Thread(target=outputs.send_multipart, args=([b"outer"],), daemon=True)
        sender.start()
        sender.join(10)
        assert not sender.is_alive()
        outputs.send_multipart([b"next"])
        assert receive_waiting(subscriber) == [[b"outer"], [b"inner"], [b"next"]]
