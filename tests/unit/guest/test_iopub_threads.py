"""How what a kernel shows gets out: by whoever publishes, or by the thread, and in order."""

import time

import pytest
import zmq
from jupyter_client import session as sessions

from interpreter_bot.guest import iopub_threads, standard_streams

started = []
"""Each waits on its socket for ever, as in a kernel: such a socket is not closed."""


@pytest.fixture
def ends(request):
    """Return the thread, which is not started, and a socket that could subscribe."""
    context, address = zmq.Context.instance(), f"inproc://{request.node.name}"
    publisher, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    publisher.bind(address)
    subscriber.connect(address)
    subscriber.rcvtimeo = 5_000
    outputs = iopub_threads.IOPubThread(publisher, sessions.Session(key=b""))
    yield outputs, subscriber
    subscriber.close()
    if outputs not in started:
        publisher.close()


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


def start(outputs):
    started.append(outputs)
    outputs.start((), standard_streams.Descriptors(()))


def test_between_cells_whoever_publishes_sends_and_welcomes(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.send_multipart([b"a", b"b"])
    assert waiting(subscriber) == [[b"a", b"b"]]


def test_what_an_interrupt_could_end_halfway_is_left_to_the_thread(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.is_interruptible = True
    outputs.send_multipart([b"a", b"b"])
    assert not waiting(subscriber)
    start(outputs)
    assert waiting(subscriber) == [[b"a", b"b"]]


def test_what_was_left_to_the_thread_comes_before_what_follows_it(ends):
    outputs, subscriber = ends
    subscribe(outputs, subscriber)
    outputs.is_interruptible = True
    outputs.send_multipart([b"first"])
    outputs.is_interruptible = False
    outputs.send_multipart([b"second"])
    assert waiting(subscriber) == [[b"first"], [b"second"]]


def test_the_thread_welcomes_whoever_subscribes_while_nothing_is_sent(ends):
    outputs, subscriber = ends
    start(outputs)
    for topic in (b"a", b"b"):
        subscriber.subscribe(topic)
        assert subscriber.recv_multipart()[0] == topic
