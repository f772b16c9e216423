"""How what a kernel shows gets out: sent by what publishes it or by the thread, and in order."""

import threading
import time

import pytest
import zmq
from jupyter_client import session as sessions

from interpreter_bot.guest import iopub_threads, standard_streams


@pytest.fixture
def ends(request):
    """Return the thread, which is not started, and a socket that could subscribe."""
    context, address = zmq.Context.instance(), f"inproc://{request.node.name}"
    publisher, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    publisher.bind(address)
    subscriber.connect(address)
    subscriber.rcvtimeo = 5_000
    yield iopub_threads.IOPubThread(publisher, sessions.Session(key=b"")), subscriber
    subscriber.close()
    # The thread, once it is started, waits on its socket for ever, as in a kernel.
    if "start" not in request.fixturenames:
        publisher.close()


@pytest.fixture
def start(ends):
    """Return a function that starts the thread."""
    outputs, _ = ends
    printer = standard_streams.Printer(lambda *_: None, outputs.push_soon, 1000)
    return lambda: outputs.start(printer)


def subscribe(outputs, subscriber):
    """Subscribe to everything, with nobody but the sender to notice it and to welcome."""
    subscriber.subscribe(b"")
    deadline = time.monotonic() + 5
    while not any(b"iopub_welcome" in part for message in waiting(subscriber) for part in message):
        assert time.monotonic() < deadline
        outputs.send_multipart([b"sent while nobody listened"])


def waiting(subscriber):
    """Return all messages that came."""
    found = []
    while subscriber.poll(100):
        found.append(subscriber.recv_multipart())
    return found


def test_between_cells_what_publishes_also_sends_and_welcomes(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.send_multipart([b"a", b"b"])
    assert waiting(subscriber) == [[b"a", b"b"]]


def test_what_an_exception_could_end_halfway_is_left_to_the_thread(ends, start):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.is_handing_over = True
    outputs.send_multipart([b"a", b"b"])
    assert not waiting(subscriber)
    start()
    assert waiting(subscriber) == [[b"a", b"b"]]


def test_what_was_left_to_the_thread_comes_before_what_follows_it(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.is_handing_over = True
    outputs.send_multipart([b"first"])
    outputs.is_handing_over = False
    outputs.send_multipart([b"second"])
    assert waiting(subscriber) == [[b"first"], [b"second"]]


def test_the_thread_welcomes_subscribers_while_nothing_is_sent(ends, start):
    _, subscriber = ends
    start()
    for topic in (b"a", b"b"):
        subscriber.subscribe(topic)
        assert subscriber.recv_multipart()[0] == topic


class Interrupting:
    """A socket amid whose sending something publishes, as a signal's handler may."""

    def __init__(self, socket):
        self._socket = socket
        self.meanwhile = []

    def send_multipart(self, parts):
        self._socket.send_multipart(parts)
        for publish in self.meanwhile[:1]:
            self.meanwhile.clear()
            publish()

    def get(self, option):
        return self._socket.get(option)


def test_what_publishes_amid_a_send_waits_for_nothing():
    context = zmq.Context.instance()
    with context.socket(zmq.XPUB) as publisher, context.socket(zmq.SUB) as subscriber:
        publisher.bind("inproc://amid-a-send")
        subscriber.connect("inproc://amid-a-send")
        socket = Interrupting(publisher)
        outputs = iopub_threads.IOPubThread(socket, sessions.Session(key=b""))
        subscriber.subscribe(b"")
        publisher.recv()
        socket.meanwhile.append(lambda: outputs.send_multipart([b"inner"]))
        # In a thread that can be left behind: what waits for itself would do so for ever.
        sending = threading.Thread(target=outputs.send_multipart, args=([b"outer"],), daemon=True)
        sending.start()
        sending.join(10)
        assert not sending.is_alive()
        outputs.send_multipart([b"next"])
        assert waiting(subscriber) == [[b"outer"], [b"inner"], [b"next"]]
