"""Channels speak with libzmq as it comes, and nothing that a peer does makes them hang or hold."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket

import pytest
import zmq
import zmq.asyncio

from interpreter_bot import settings
from interpreter_bot.kernels.wire import clients, jupyter_messages, sockets, zmtp

MIB = settings.MIB
IDENTITY = b"us"
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
PEER = zmtp.build_opening("DEALER", b"")[:64] + READY
OPENING_BYTES = len(zmtp.build_opening("DEALER", IDENTITY))


@pytest.fixture
async def bound():
    """Bind a real socket of libzmq."""
    context = zmq.asyncio.Context()
    endpoints = []

    def bind(kind, address, **options):
        endpoint = context.socket(kind)
        for name, value in options.items():
            setattr(endpoint, name, value)
        endpoint.bind(address)
        endpoints.append(endpoint)
        return endpoint

    yield bind
    for endpoint in endpoints:
        endpoint.close(linger=0)
    context.term()


def dialling(address):
    """Let a channel connect to a path, or to a host and its port."""

    async def dial():
        is_path = isinstance(address, pathlib.Path)
        endpoint = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
        endpoint.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(
                endpoint, str(address) if is_path else address
            )
        except OSError:
            endpoint.close()
            raise
        return endpoint

    return dial


@pytest.fixture
async def dealer(short_path):
    channel = sockets.Socket("DEALER", dialling(short_path / "peer"))
    yield channel
    channel.close()


@pytest.fixture
async def by_hand(short_path):
    """A listening socket whose connections speak for themselves."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(short_path / "peer"))
        listener.listen()
        listener.setblocking(False)
        accepted = []

        async def accept(greeting=PEER):
            peer, _ = await loop.sock_accept(listener)
            accepted.append(peer)
            await loop.sock_sendall(peer, greeting)
            return peer

        yield accept
        for peer in accepted:
            peer.close()


@pytest.fixture
async def peer(dealer, by_hand):
    """The other end of `dealer`, which introduced itself."""
    await dealer.connect(IDENTITY)
    accepted = await by_hand()
    await dealer.handshake()
    return accepted


async def opened(channel):
    async with asyncio.timeout(30):
        await channel.connect(IDENTITY)
        await channel.handshake()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000, 3 * MIB])
async def test_router_of_libzmq_knows_us_and_answers(bound, dealer, short_path, size):
    router = bound(zmq.ROUTER, f"ipc://{short_path}/peer")
    await opened(dealer)

    async with asyncio.timeout(30):
        await dealer.send([b"question", b"x" * size])
        assert await router.recv_multipart() == [IDENTITY, b"question", b"x" * size]
        await router.send_multipart([IDENTITY, b"answer", b"y" * size])
        assert await dealer.receive() == [b"answer", b"y" * size]


async def test_publisher_of_libzmq_hears_our_subscription_over_tcp(bound):
    publisher = bound(zmq.XPUB, "tcp://127.0.0.1:*")
    port = int(publisher.last_endpoint.rpartition(b":")[2])
    subscriber = sockets.Socket("SUB", dialling(("127.0.0.1", port)))
    try:
        await opened(subscriber)
        await subscriber.subscribe(b"")
        async with asyncio.timeout(30):
            assert await publisher.recv_multipart() == [b"\x01"]
            await publisher.send_multipart([b"topic", b"news"])
            assert await subscriber.receive() == [b"topic", b"news"]
    finally:
        subscriber.close()


async def test_plain_publisher_of_libzmq_takes_our_subscription(bound, short_path):
    publisher = bound(zmq.PUB, f"ipc://{short_path}/peer")
    subscriber = sockets.Socket("SUB", dialling(short_path / "peer"))
    try:
        await opened(subscriber)
        await subscriber.subscribe(b"")
        hearing = asyncio.create_task(subscriber.receive())
        async with asyncio.timeout(30):
            while not hearing.done():
                await publisher.send_multipart([b"topic", b"news"])
                await asyncio.sleep(0.01)
        assert hearing.result() == [b"topic", b"news"]
    finally:
        subscriber.close()


async def test_heartbeats_of_libzmq_are_answered(bound, dealer, short_path):
    router = bound(zmq.ROUTER, f"ipc://{short_path}/peer", heartbeat_ivl=50, heartbeat_timeout=150)
    await opened(dealer)
    waiting = asyncio.create_task(dealer.receive())
    await asyncio.sleep(0.6)
    await router.send_multipart([IDENTITY, b"still here"])
    async with asyncio.timeout(30):
        assert await waiting == [b"still here"]
    assert dealer.received_bytes > len(PEER) + 60, "no heartbeat came at all"


async def test_peer_of_version_3_0_is_understood(peer, dealer):
    await asyncio.get_running_loop().sock_sendall(peer, zmtp.build_message([b"a", b"b"]))
    async with asyncio.timeout(30):
        assert await dealer.receive() == [b"a", b"b"]


async def test_what_comes_together_is_read_without_another_task_having_a_turn(peer, dealer):
    await asyncio.get_running_loop().sock_sendall(peer, zmtp.build_message([b"x"]) * 100)
    turns = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    for _ in range(100):
        await dealer.receive()
    assert not turns


async def test_cancelled_receiver_loses_nothing(peer, dealer):
    loop = asyncio.get_running_loop()
    for number in range(50):
        receiving = asyncio.create_task(dealer.receive())
        await asyncio.sleep(0)
        message = zmtp.build_message([b"%d" % number, bytes(100)])
        peer.send(message[:60])
        # Between what came and whoever waited for it.
        for _ in range(number % 4):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait({receiving})
        await loop.sock_sendall(peer, message[60:])
        async with asyncio.timeout(30):
            assert await dealer.receive() == [b"%d" % number, bytes(100)]


async def test_nothing_is_read_while_nobody_waits(peer, dealer):
    peer.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < 64 * MIB:
            sent += peer.send(zmtp.build_message([bytes(MIB)]))
            await asyncio.sleep(0)
    assert sent < 2 * MIB
    assert dealer.received_bytes == len(PEER)


async def test_peer_that_goes_away_is_lost_at_once_and_again(peer, dealer):
    await asyncio.get_running_loop().sock_sendall(
        peer, zmtp.build_message([b"last"]) + b"\x01\x05ab"
    )
    peer.close()
    assert await dealer.receive() == [b"last"]
    for _ in range(2):
        with pytest.raises(sockets.LostSocket):
            await dealer.receive()
        with pytest.raises(sockets.LostSocket):
            await dealer.send([b"x"])


async def test_whoever_waits_when_it_is_closed_is_told(peer, dealer):
    receiving = asyncio.create_task(dealer.receive())
    sending = asyncio.create_task(dealer.send([bytes(4 * MIB)]))
    await asyncio.sleep(0.05)
    assert not receiving.done()
    assert not sending.done()
    dealer.close()
    results = await asyncio.gather(receiving, sending, return_exceptions=True)
    assert [type(result) for result in results] == [sockets.LostSocket] * 2


async def test_half_a_message_is_followed_by_nothing(peer, dealer):
    sending = asyncio.create_task(dealer.send([bytes(4 * MIB)]))
    await asyncio.sleep(0.05)
    sending.cancel()
    await asyncio.wait({sending})
    with pytest.raises(sockets.LostSocket):
        await dealer.send([b"next"])


async def test_large_message_waits_for_a_slow_reader(peer, dealer):
    loop = asyncio.get_running_loop()
    wanted = OPENING_BYTES + len(zmtp.build_message([bytes(2 * MIB)]))
    sending = asyncio.create_task(dealer.send([bytes(2 * MIB)]))
    got = 0
    async with asyncio.timeout(30):
        while got < wanted:
            got += len(await loop.sock_recv(peer, 100_000))
        await sending
    assert got == wanted


async def test_oversized_message_is_left_out_and_the_next_is_heard(peer, dealer):
    data = zmtp.build_message([bytes(20 * MIB)]) + zmtp.build_message([b"next"])
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(peer, data))
    async with asyncio.timeout(30):
        with pytest.raises(jupyter_messages.OversizedMessage):
            await dealer.receive()
        assert await dealer.receive() == [b"next"]
    await sending


@pytest.mark.parametrize("data", [b"\xff" * 99, b"\x02" + b"\x7f" * 8, b"\x04\x00" * 20_000])
async def test_nonsense_ends_the_channel_and_a_new_one_speaks(peer, dealer, by_hand, data):
    await asyncio.get_running_loop().sock_sendall(peer, data)
    with pytest.raises(sockets.LostSocket):
        await dealer.receive()
    await dealer.connect()
    again = await by_hand()
    await dealer.handshake()
    await asyncio.get_running_loop().sock_sendall(again, zmtp.build_message([b"heard"]))
    assert await dealer.receive() == [b"heard"]


async def test_nobody_there_is_lost_at_once(dealer):
    with pytest.raises(sockets.LostSocket):
        await dealer.connect()


async def test_nobody_who_accepts_is_lost_at_once(by_hand, short_path):
    waiting = [sockets.Socket("DEALER", dialling(short_path / "peer")) for _ in range(5000)]
    try:
        async with asyncio.timeout(60):
            with pytest.raises(sockets.LostSocket):
                await asyncio.gather(*(channel.connect() for channel in waiting))
    finally:
        for channel in waiting:
            channel.close()


@pytest.mark.parametrize("greeting", [b"", PEER[:1], PEER[:63], PEER[:70]])
async def test_renewal_does_not_wait_for_a_greeting_that_does_not_come(
    by_hand, short_path, monkeypatch, greeting
):
    monkeypatch.setattr(clients, "_RENEWAL_SECONDS", 0.3)
    connection = clients.Client(b"key", lambda channel: dialling(short_path / "peer")())
    accepting = asyncio.create_task(by_hand(greeting))
    async with asyncio.timeout(30):
        with pytest.raises(sockets.LostSocket):
            await connection.renew_output()
    await accepting
    connection.close()
