"""A host behind its socket: who may connect, connections that break, bots that are slow or gone."""

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys

import aiohttp
import pytest
import pytest_asyncio

from interpreter_bot import errors, settings, values
from interpreter_bot.hosts import (
    cancellable_executions,
    executions,
    host_connection,
    host_processes,
    host_sockets,
    local_startup,
    messages,
    remote_host,
    rolling_hosts,
)
from interpreter_bot.kernel_host import host_server
from interpreter_bot.kernels import execution_journals
from tests import waiting

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]

TICKS = "import time\nfor n in range(20):\n    print(n, flush=True)\n    time.sleep(0.05)"
CONNECT = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(b"GET /v1/host HTTP/1.1\\r\\nHost: host\\r\\nConnection: close\\r\\n\\r\\n")
print(peer.recv(1000).decode())
"""


class Relay:
    """A socket before a host's, whose connections can be broken."""

    def __init__(self, target):
        self.target = target
        self.writers = set()
        # How many bots that would listen are sent away.
        self.refusals = 0
        # Whether it keeps to itself what is asked, and how often it did.
        self.is_deaf = False
        self.unheard = 0
        # Whether it goes on reading what the host says.
        self.reads = asyncio.Event()
        self.reads.set()

    async def __call__(self, reader, writer):
        try:
            near, far = await asyncio.open_unix_connection(self.target)
        except OSError:
            writer.close()
            return
        self.writers |= {writer, far}

        async def pump(source, sink):
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    if source is near:
                        await self.reads.wait()
                    if self.refusals and data.startswith(b"GET /v1/events"):
                        self.refusals -= 1
                        writer.transport.abort()
                        break
                    if self.is_deaf and data.startswith(b"POST"):
                        self.unheard += 1
                    else:
                        sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, far), pump(near, writer))

    def break_all(self):
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory):
    return tmp_path_factory.mktemp("h")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(place):
    config = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=place / "d", runtime=place / "r"),
    )
    async with local_startup.open_host(config) as opened:
        yield opened


@contextlib.asynccontextmanager
async def serving(host, place, journals="journals"):
    async with (
        executions.Executions.open(place / journals) as begun,
        host_server.HostServer.open(host, begun, place / "host.sock") as served,
    ):
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def served(host, place):
    async with serving(host, place) as opened:
        yield opened


@contextlib.asynccontextmanager
async def relaying(place):
    made = Relay(place / "host.sock")
    listening = await asyncio.start_unix_server(made, place / "relay.sock")
    yield made
    made.break_all()
    listening.close()


@pytest_asyncio.fixture(loop_scope="module")
async def relay(served, place):
    async with relaying(place) as made:
        yield made


def heard():
    shown = []
    return shown, lambda output, number: shown.append((number, output.plain))


async def test_only_its_own_user_and_root_may_connect(served, place):
    path = place / "host.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    place.chmod(0o755)
    for parent in (path, *list(path.parents)[:-2]):
        parent.chmod(0o777)
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-I", "-c", CONNECT, str(path)],
        capture_output=True,
        text=True,
    )
    assert run.stdout.startswith("HTTP/1.1 403"), run.stderr


async def test_no_event_is_lost_or_repeated_when_connections_break(relay, place):
    shown, show = heard()
    async with (
        remote_host.RemoteHost.open(place / "relay.sock") as remote,
        remote.lease("broken") as lease,
    ):
        kernel = await lease.kernel()
        running = asyncio.create_task(
            kernel.execute(TICKS, execution_id=cancellable_executions.new_id(), show=show)
        )
        for _ in range(4):
            await asyncio.sleep(0.2)
            relay.break_all()
        end = await running
        assert end.finished.ending is values.Ending.OK
        assert "".join(text for _, text in shown) == "".join(f"{n}\n" for n in range(20))
        assert [number for number, _ in shown] == list(range(1, len(shown) + 1))
        # The lease was held all the while, and is held anew.
        assert (await lease.kernel()).id == kernel.id


async def test_a_question_is_repeated_after_a_reconnection(relay, place):
    asked = asyncio.Event()
    answers = iter([asyncio.Event().wait(), asyncio.sleep(0, "Ada")])

    async def ask(request):
        asked.set()
        return await next(answers)

    shown, show = heard()
    async with (
        remote_host.RemoteHost.open(place / "relay.sock") as remote,
        remote.lease("asks") as lease,
    ):
        running = asyncio.create_task(
            (await lease.kernel()).execute(
                "print('Hello', input())", execution_id="asks", show=show, ask=ask
            )
        )
        await asked.wait()
        relay.break_all()
        assert (await running).finished.ending is values.Ending.OK
    assert shown == [(1, "Hello Ada\n")]


async def test_a_question_comes_after_the_events_before_it_for_a_slow_bot(host, place):
    shown, show = heard()
    is_slow = asyncio.Event()

    async def ask(request):
        if not shown:
            relay.reads.clear()
            is_slow.set()
        return str(len(shown))

    code = """input()
for n in range(8):
    display({"text/plain": "one", "image/png": "iVBORw0KGgo" + "A" * 399_989}, raw=True)
assert input() == "8", "it was asked before all was shown" """

    async with (
        executions.Executions.open(place / "slow") as begun,
        host_server.HostServer.open(host, begun, place / "host.sock"),
        relaying(place) as relay,
        remote_host.RemoteHost.open(place / "relay.sock") as remote,
        remote.lease("slow") as lease,
    ):
        kernel = await lease.kernel()
        running = asyncio.create_task(kernel.execute(code, execution_id="slow", show=show, ask=ask))
        await is_slow.wait()
        questions = begun.questions("slow")
        # The second one.
        await waiting.until(lambda: questions._number == 2)
        relay.reads.set()
        assert (await running).finished.ending is values.Ending.OK, shown[-1]


async def test_a_request_to_a_stuck_host_times_out(relay, place, monkeypatch):
    monkeypatch.setattr(host_connection, "_MAX_ANSWER_SECONDS", 0.2)
    async with remote_host.RemoteHost.open(place / "relay.sock") as remote:
        relay.is_deaf = True
        with pytest.raises(errors.KernelError):
            async with asyncio.timeout(30):
                await remote.stop("anything")


async def test_an_unanswered_request_of_a_dead_host_goes_to_the_next(relay, place):
    async with remote_host.RemoteHost.open(place / "relay.sock") as remote:
        relay.is_deaf = True
        asking = asyncio.create_task(remote.statuses())
        await waiting.until(lambda: relay.unheard)
        relay.is_deaf = False
        relay.break_all()
        assert await asking is not None


async def test_a_host_that_does_not_answer_does_not_block_others(relay, served, place, monkeypatch):
    monkeypatch.setattr(host_connection, "_MAX_ANSWER_SECONDS", 0.2)
    (place / "newest").symlink_to("host.sock")
    (place / "1.sock").symlink_to("relay.sock")

    async def restart_host():
        raise AssertionError

    opening = rolling_hosts.RollingHosts.open(place / "newest", restart_host=restart_host)
    async with opening as hosts, hosts.lease("asked") as lease:
        kernel = await lease.kernel()
        relay.is_deaf = True
        assert (await hosts.statuses(["asked"]))["asked"].kernel_id == kernel.id
        await hosts.stop("anything")
        relay.is_deaf = False


async def test_a_bot_that_has_just_connected_keeps_its_host_running(host, place, monkeypatch):
    monkeypatch.setattr(host_processes, "_MAX_CLOSING_SECONDS", 0.1)
    config = settings.Settings(paths=settings.Paths(data=place / "d", runtime=place / "s"))
    path = host_sockets.make_socket_path(config.paths)
    async with (
        executions.Executions.open(place / "others") as begun,
        host_server.HostServer.open(host, begun, path, is_lingering=True) as served,
        host_sockets.linked_as_newest(path),
        host_processes.open_host(config, may_start=False),
    ):
        await host_processes.HostStarter(config).end_unused_hosts()
        assert not served.is_draining


async def test_leases_end_with_the_bot(served, host, place):
    async with remote_host.RemoteHost.open(place / "host.sock") as remote:
        lease = remote.lease("leased")
        await (await lease.__aenter__()).kernel()
        assert "leased" in host.pool._holders
    await waiting.until(lambda: "leased" not in host.pool._holders)


async def test_a_failed_lease_does_not_end_others(served, host, place):
    digest = hashlib.sha256(b"broken").hexdigest()
    file = host.data / "epochs" / digest[:2] / digest
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("1")
    file.chmod(0o644)
    async with remote_host.RemoteHost.open(place / "host.sock") as remote, remote.lease("a") as a:
        kernel = await a.kernel()
        async with remote.with_epoch(1).lease("broken") as broken:
            with pytest.raises(errors.BotError, match="Other users can read"):
                await broken.kernel()
        assert (await a.kernel()).id == kernel.id
        assert len(served.connections) == 1
        end = await kernel.execute("1", execution_id="after-a-failure", show=lambda *_: None)
        assert end.finished.ending is values.Ending.OK


async def test_the_move_of_a_session_does_not_delay_others(host, place, monkeypatch):
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def release(key):
        ending.set()
        await may_end.wait()

    monkeypatch.setattr(host, "release", release)
    async with (
        serving(host, place),
        remote_host.RemoteHost.open(place / "host.sock") as remote,
    ):
        async with remote.with_epoch(1).lease("moving") as lease:
            await lease.kernel()
        async with remote.with_epoch(2).lease("moving") as moving, asyncio.timeout(60):
            starting = asyncio.create_task(moving.kernel())
            await ending.wait()
            async with remote.with_epoch(1).lease("other") as other:
                await other.kernel()
            assert not starting.done()
            may_end.set()
            await starting


async def test_a_bot_that_does_not_read_takes_no_memory_and_delays_nobody(served, host, place):
    code = "for n in range(60): print('x' * 15_000)"
    async with (
        aiohttp.ClientSession(
            "http://host", connector=aiohttp.UnixConnector(str(place / "host.sock"))
        ) as session,
        session.ws_connect("/v1/events") as deaf,
        remote_host.RemoteHost.open(place / "host.sock") as remote,
    ):
        shown, show = heard()
        async with remote.lease("flood") as lease:
            kernel = await lease.kernel()
            for n in range(20):
                end = await kernel.execute(code, execution_id=f"flood{n}", show=show)
                assert end.finished.ending is values.Ending.OK
                follow = messages.Follow(n + 1, f"flood{n}", 0, False, None)
                await deaf.send_str(messages.encode(follow))
            assert sum(len(text) for _, text in shown) == 20 * 60 * 15_001
            end = await kernel.execute("1+1", execution_id="afterwards", show=show)
            assert end.finished.ending is values.Ending.OK
        (connection,) = [one for one in served.connections if len(one._call_tasks) > 5]
        held = connection._socket._writer.transport.get_write_buffer_size()
        assert held < 1_000_000


async def test_cancelled_downloads_and_uploads_are_no_errors(served, place, caplog):
    def count_connections():
        coroutines = [repr(task.get_coro()) for task in asyncio.all_tasks()]
        return len([one for one in coroutines if "RequestHandler.start" in one])

    async def pieces():
        for _ in range(40):
            yield bytes(1024 * 1024)

    async with remote_host.RemoteHost.open(place / "host.sock") as remote:
        workspace = await remote.workspace("download")
        await workspace.put("large.bin", pieces())
        connections = count_connections()
        async with workspace.read("large.bin") as content:
            assert await anext(aiter(content))
        # The host has noticed that nobody reads on.
        await waiting.until(lambda: count_connections() < connections)
        begun = asyncio.Event()

        async def endless_pieces():
            yield b"begun"
            begun.set()
            await asyncio.Event().wait()

        upload = asyncio.create_task(workspace.put("endless.bin", endless_pieces()))
        await begun.wait()
        await waiting.until(lambda: count_connections() == connections)
        upload.cancel()
        await waiting.until(lambda: count_connections() < connections)
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize(
    "said",
    [
        "nonsense",
        '{"type": "Rule", "fields": {}}',
        '{"type": "StartKernel", "fields": {}}',
        '{"type": "Lease", "fields": {"call_number": [], "key": 1, "person": 2}}',
        '{"type": "Acknowledge"}',
        '{"type": ["Acknowledge"], "fields": {"execution_id": "x"}}',
        '{"type": "KernelLost", "fields": {"number": 1, "loss": null}}',
        "[1]",
        "[" * 50_000,
    ],
)
async def test_an_invalid_message_ends_only_its_own_connection(served, place, said):
    async with aiohttp.ClientSession(
        "http://host", connector=aiohttp.UnixConnector(str(place / "host.sock"))
    ) as session:
        async with session.ws_connect("/v1/events") as bot:
            await bot.send_str(said)
            assert (await bot.receive(timeout=30)).type is aiohttp.WSMsgType.CLOSE
        for name, body, status in (
            ("Hosts.statuses", b"nonsense", 400),
            ("Hosts.release", b"{}", 400),
            ("Hosts.statuses", b'{"keys": 5}', 400),
            (
                "HostProcess.fork",
                b'{"key": [], "new_key": {}, "checkpoint": "", "new_epoch": "x"}',
                400,
            ),
            ("Hosts.statuses", b"[" * 50_000, 400),
            ("__class__", b"{}", 404),
            ("LocalHost.close", b"{}", 404),
        ):
            async with session.post(f"/v1/requests/{name}", data=body) as response:
                assert response.status == status


async def test_executions_end_as_lost_if_another_host_answers(host, place):
    shown, show = heard()
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(serving(host, place))
        async with remote_host.RemoteHost.open(place / "host.sock") as remote:
            async with remote.lease("lost") as lease:
                running = asyncio.create_task(
                    (await lease.kernel()).execute(TICKS, execution_id="lost", show=show)
                )
                await waiting.until(lambda: shown)
                await first.aclose()
                async with serving(host, place):
                    end = await running
            assert (end.finished.ending, end.finished.kernel_lost) == (
                values.Ending.CRASHED,
                True,
            )
            assert end.loss_reason
    assert [number for number, _ in shown] == list(range(1, len(shown) + 1))


async def test_executions_end_as_lost_if_their_host_stays_away(host, place):
    shown, show = heard()
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(serving(host, place))
        async with (
            remote_host.RemoteHost.open(place / "host.sock", patience_seconds=0.3) as remote,
            remote.lease("away") as lease,
        ):
            running = asyncio.create_task(
                (await lease.kernel()).execute(TICKS, execution_id="away", show=show)
            )
            await waiting.until(lambda: shown)
            await first.aclose()
            assert (await running).finished.kernel_lost
            with pytest.raises(errors.KernelStartError):
                await lease.kernel()
            with pytest.raises(errors.KernelError):
                await remote.statuses()


async def test_a_host_with_an_invalid_status_is_refused(tmp_path):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"protocol_version": 1, "id": ["x"]}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_unix_server(answer, tmp_path / "s")
    with pytest.raises(errors.KernelError):
        async with remote_host.RemoteHost.open(tmp_path / "s"):
            pass
    listening.close()


async def test_a_bot_gets_the_end_even_if_the_dead_host_lost_events(host, place):
    async with execution_journals.Journals.open(place / "lag") as journals:
        journals.begin("lags").append(messages.pack(values.Notice("one")))
    async with (
        serving(host, place, "lag"),
        remote_host.RemoteHost.open(place / "host.sock") as remote,
    ):
        for after in (0, 1, 2, 5):
            shown, show = heard()
            async with asyncio.timeout(30):
                end = await remote.follow("lags", after=after, show=show, ask=None)
            assert (end.finished.ending, end.finished.kernel_lost) == (values.Ending.CRASHED, True)
            assert shown == ([(1, "one")] if after == 0 else [])
    async with (
        serving(host, place, "lag"),
        remote_host.RemoteHost.open(place / "host.sock") as remote,
    ):
        with (
            contextlib.closing(sqlite3.connect(place / "lag" / "journals.sqlite")) as database,
            database,
        ):
            database.execute("DELETE FROM events")
        for after in (0, 5):
            with pytest.raises(errors.ExecutionMissingError):
                async with asyncio.timeout(30):
                    await remote.follow("lags", after=after, show=show, ask=None)


COUNT = "with open('runs', 'a') as file: file.write('x')"
RUNS = "print(open('runs').read())"


async def test_acknowledged_code_does_not_run_twice(served, place):
    async with (
        remote_host.RemoteHost.open(place / "host.sock") as remote,
        remote.lease("counts") as lease,
    ):
        kernel = await lease.kernel()
        for ending in (values.Ending.OK, values.Ending.CRASHED):
            shown, show = heard()
            end = await kernel.execute(COUNT, execution_id="counted", show=show)
            assert end.finished.ending is ending
            served.executions.acknowledge("counted")
        await kernel.execute(RUNS, execution_id="counts", show=show)
        assert shown == [(1, "x\n")]


async def test_an_acknowledgement_just_before_disconnection_counts(served, place):
    async with (
        remote_host.RemoteHost.open(place / "host.sock") as remote,
        remote.lease("goes") as lease,
    ):
        for name in ("gone-1", "gone-2"):
            await (await lease.kernel()).execute("1", execution_id=name, show=heard()[1])
        for name in ("gone-1", "gone-2"):
            remote.acknowledge(name)
    async with asyncio.timeout(10):
        while len(served.connections):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
    for name in ("gone-1", "gone-2"):
        with pytest.raises(errors.ExecutionMissingError):
            await served.executions.find(name)


async def test_no_code_runs_twice_if_the_second_attempt_reaches_another_host(host, place):
    shown, show = heard()
    relay = Relay(place / "host.sock")
    listening = await asyncio.start_unix_server(relay, place / "relay.sock")
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(serving(host, place))
        async with (
            remote_host.RemoteHost.open(place / "relay.sock") as remote,
            remote.lease("second") as lease,
        ):
            kernel = await lease.kernel()
            running = asyncio.create_task(
                kernel.execute(f"{COUNT}\n{TICKS}", execution_id="second", show=show)
            )
            await waiting.until(lambda: shown)
            await first.aclose()
            # The client tries twice by itself, where a connection was used before.
            relay.refusals = 2
            async with serving(host, place, "other"):
                assert (await running).finished.kernel_lost
                shown.clear()
                await (await lease.kernel()).execute(RUNS, execution_id="third", show=show)
            assert (shown, relay.refusals) == ([(1, "x\n")], 0)
    relay.break_all()
    listening.close()


async def test_sessions_of_a_command_are_deleted_with_its_connection(served, host, place):
    async def chunks():
        yield b"data"

    opening = remote_host.RemoteHost.open(place / "host.sock", is_ephemeral=True)
    async with opening as remote:
        await (await remote.workspace("brief")).put("a", chunks())
        async with remote.lease("brief") as lease:
            await lease.kernel()
        # It is there for the next lease.
        assert "brief" in await host.statuses()
    async with asyncio.timeout(20):
        while (await host.stored_bytes(["brief"])).by_key:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "brief" not in await host.statuses()


async def test_the_loss_of_a_kernel_is_reported_to_a_listening_bot(served, host, place):
    told = asyncio.get_running_loop().create_future()

    async def note(loss):
        told.set_result(loss.key)

    path = place / "host.sock"
    async with (
        remote_host.RemoteHost.open(path) as silent,
        remote_host.RemoteHost.open(path) as bot,
    ):
        async with silent.lease("lost") as lease:
            await lease.kernel()
        await bot.subscribe_losses(note)
        host.pool.kernels["lost"].kill_with_reason(values.Ending.CRASHED, "It is an example.")
        async with asyncio.timeout(20):
            while not told.done():
                await host.pool.reap()
                await asyncio.sleep(0.01)
        assert told.result() == "lost"
        # The other one is no bot for which the host must stay.
        assert (await host_processes.read_status(path)).bots == 1
