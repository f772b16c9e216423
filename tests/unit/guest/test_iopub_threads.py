"""Messages of a kernel are sent in order, by the iopub thread."""

import pytest
import zmq
from jupyter_client import session as sessions

from interpreter_bot.guest import iopub_threads, standard_streams


@pytest.fixture
def ends(request):
    """Return a started iopub thread, and a socket that can subscribe."""
    context, address = zmq.Context.instance(), f"inproc://{request.node.name}"
    # The publisher stays open: the thread waits on it for ever, as in a kernel.
    publisher, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    publisher.bind(address)
    subscriber.connect(address)
    subscriber.rcvtimeo = 5_000
    outputs = iopub_threads.IOPubThread(publisher, sessions.Session(key=b""))
    outputs.start(standard_streams.Printer(lambda *_: None, outputs.push_soon, 1000))
    yield outputs, subscriber
    subscriber.close()


def test_messages_are_sent_in_order(ends):
    outputs, subscriber = ends
    subscriber.subscribe(b"")
    assert b"iopub_welcome" in b"".join(subscriber.recv_multipart())
    outputs.send_multipart([b"a", b"b"])
    outputs.send_multipart([b"second"])
    assert [subscriber.recv_multipart() for _ in range(2)] == [[b"a", b"b"], [b"second"]]


def test_the_thread_welcomes_subscribers_while_nothing_is_sent(ends):
    _, subscriber = ends
    for topic in (b"a", b"b"):
        subscriber.subscribe(topic)
        assert subscriber.recv_multipart()[0] == topic
