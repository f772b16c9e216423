"""The connection to a host: what happens at once, and what a host answers instead."""

import asyncio
import contextlib
import pathlib

import aiohttp
import pytest
from aiohttp import test_utils, web

from interpreter_bot import errors, values
from interpreter_bot.hosts import (
    host_connection,
    messages,
    placed_hosts,
    ports,
    remote_host,
)
from interpreter_bot.wording import host_words
from tests.fakes import host_statuses


@pytest.mark.parametrize("ticks", range(6))
async def test_waiting_for_a_host_can_be_cancelled_at_any_moment(ticks):
    connection = host_connection.HostConnection(pathlib.Path("/none"), None, patience_seconds=30.0)
    waiting = asyncio.create_task(connection.wait_connected())
    await asyncio.sleep(0.01)
    connection._is_connected.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    is_cancelled = waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled() is is_cancelled


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, "{"),
        (200, "[]"),
        (200, '{"kernel": 7}'),
        (200, "[" * 99_999),
        (422, "[]"),
        (422, "7"),
        (422, "{}"),
        (422, '{"error": 7}'),
    ],
    ids=lambda one: str(one)[:12],
)
async def test_an_unexpected_answer_of_a_host_is_a_kernel_error(status, said):
    async def answer(request):
        return web.Response(status=status, text=said, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/requests/HostProcess.unleased_doors", answer)
    server = test_utils.TestServer(app)
    connection = host_connection.HostConnection(pathlib.Path("/none"), None, patience_seconds=1.0)
    connection._is_connected.set()
    async with server, aiohttp.ClientSession(server.make_url("/")) as connection._session:
        with pytest.raises(errors.KernelError):
            await remote_host.RemoteHost(connection).unleased_doors()


@contextlib.asynccontextmanager
async def _serving(path):
    async def status(request):
        return web.Response(
            body=messages.encode_json(host_statuses.STATUS), content_type="application/json"
        )

    async def events(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        opened.append(socket)
        async for _ in socket:
            pass
        return socket

    opened = []
    app = web.Application()
    app.add_routes([web.get("/v1/host", status), web.get("/v1/events", events)])
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(path)).start()
        yield
    finally:
        for one in opened:
            await one.close()
        await runner.cleanup()


def _follow(connection, stack):
    number = connection.new_call_number()
    call = remote_host.ExecutionCall(
        connection, number, "e", after=0, show=lambda _: None, ask=None, code=None
    )
    stack.enter_context(connection.open_call(number, call))
    return call.result


async def test_calls_end_when_their_connection_is_closed(tmp_path):
    path = tmp_path / "s"
    with contextlib.ExitStack() as stack:
        async with _serving(path), host_connection.HostConnection.open(path) as connection:
            result = _follow(connection, stack)
        assert result.result().loss_reason


@pytest.mark.parametrize(("character", "count"), [("x", 16 * 1024 * 1024), ("я", 3_000_000)])
async def test_code_that_no_message_can_hold_is_refused_and_the_connection_stays(
    tmp_path, character, count
):
    path = tmp_path / "s"
    started = messages.KernelStarted(1, "kernel", "", 0, None, "")
    async with (
        _serving(path),
        remote_host.RemoteHost.open(path) as host,
        host.lease("k") as lease,
        asyncio.timeout(30),
    ):
        await host.connection.wait_connected()
        kernel = remote_host.RemoteKernel(host.connection, lease.number, started)
        end = await kernel.execute(character * count, execution_id="e", show=lambda *_: None)
        assert end.finished.ending is values.Ending.REFUSED
        assert (end.finished.reason, end.finished.kernel_lost) == (host_words.CODE_TOO_LONG, False)
        assert host.connection.is_connected


async def test_an_answer_that_no_message_can_hold_is_refused_in_a_sentence():
    sent = []
    connection = host_connection.HostConnection(pathlib.Path("/none"), None, patience_seconds=1.0)
    connection.send = sent.append

    async def ask(_):
        return "x" * (16 * 1024 * 1024)

    call = remote_host.ExecutionCall(
        connection, 1, "e", after=0, show=lambda _: None, ask=ask, code=None
    )
    call.on_reply(messages.Question(1, 7, values.InputRequested("", False)))
    async with asyncio.timeout(30):
        while not sent:  # noqa: ASYNC110 - a list
            await asyncio.sleep(0.001)
    assert (sent[0].question_number, sent[0].text) == (7, None)
    assert sent[0].error.sentence == host_words.ANSWER_TOO_LONG


async def test_a_host_is_started_again_after_a_start_for_which_no_process_was_left(tmp_path):
    path, attempts = tmp_path / "s", []
    async with (
        contextlib.AsyncExitStack() as first,
        contextlib.AsyncExitStack() as second,
        asyncio.timeout(30),
    ):
        await first.enter_async_context(_serving(path))

        async def restart():
            attempts.append(path)
            if len(attempts) == 1:
                raise BlockingIOError
            if len(attempts) == 2:
                await second.enter_async_context(_serving(path))

        async with host_connection.HostConnection.open(path, restart_host=restart) as connection:
            await connection.wait_connected()
            await first.aclose()
            while len(attempts) < 2 or not connection.is_connected:  # noqa: ASYNC110 - of two kinds
                await asyncio.sleep(0.01)


async def test_a_loss_that_cannot_be_recorded_does_not_hold_up_the_next_ones():
    sent, recorded = [], []
    connection = host_connection.HostConnection(pathlib.Path("/none"), None, patience_seconds=1.0)
    connection.send = sent.append

    async def record(loss):
        recorded.append(loss.key)
        raise KeyError("names")

    await connection.subscribe_losses(record)
    loss = messages.encode(messages.KernelLost(7, ports.KernelLoss("a", "kernel", "It ended.")))
    connection._handle_frame(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, loss, None))
    async with asyncio.timeout(30):
        while not recorded or connection._report_tasks:  # noqa: ASYNC110 - two conditions
            await asyncio.sleep(0)
    assert (recorded, sent[-1]) == (["a"], messages.LossAcknowledged(7))


class Fleet:
    """Hosts that are listed until they are not."""

    def __init__(self, path):
        self.listed = {path}

    async def addresses(self):
        return self.listed


@pytest.mark.looptime
async def test_calls_end_when_their_host_has_left_the_fleet(tmp_path):
    path = tmp_path / "s"
    fleet = Fleet(path)
    opening = placed_hosts.PlacedHosts.open(fleet, None, lost_seconds=60)
    with contextlib.ExitStack() as stack:
        async with contextlib.AsyncExitStack() as serving, asyncio.timeout(60):
            await serving.enter_async_context(_serving(path))
            async with opening as hosts:
                (host,) = hosts.hosts
                await host.connection.wait_connected()
                result = _follow(host.connection, stack)
                await serving.aclose()
                fleet.listed = set()
                assert (await result).loss_reason


@pytest.mark.looptime
async def test_hosts_are_found_although_their_list_could_not_be_read_before(tmp_path):
    path = tmp_path / "s"

    class UnreadableFleet(Fleet):
        attempts = 0

        async def addresses(self):
            self.attempts += 1
            if self.attempts == 1:
                raise errors.SettingsError("an entry of the list has no port")
            return self.listed

    opening = placed_hosts.PlacedHosts.open(UnreadableFleet(path), None)
    async with _serving(path), opening as hosts:
        assert len(list(hosts.hosts)) == 1


@pytest.mark.parametrize("doorkeeper", [None, object()])
async def test_a_host_without_doors_is_refused_if_the_bot_has_a_doorkeeper(tmp_path, doorkeeper):
    path = tmp_path / "s"
    opening = placed_hosts.PlacedHosts.open(Fleet(path), None, doorkeeper=doorkeeper)
    refused = pytest.raises(errors.KernelError, match="has no doors")
    with contextlib.nullcontext() if doorkeeper is None else refused:
        async with _serving(path), opening as hosts:
            assert hosts.sandbox_level is values.SandboxLevel.STANDARD
