"""The pool, with real kernels: one per session, ready ahead, let go in the right order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import struct
import sys
import textwrap
import threading
import time
from typing import ClassVar

import pytest

from interpreter_bot import errors, settings, values
from interpreter_bot.hosts import local_host, local_startup
from interpreter_bot.kernels import launchers, machine_setup, pools
from interpreter_bot.kernels.metering import procfs, session_metering
from interpreter_bot.kernels.provisioning import forkserver_clients, provisioners
from tests import machine

pytestmark = pytest.mark.kernel


@pytest.fixture
def opened(tmp_path, short_path):
    """Open a pool whose kernels import nothing, which is quick."""

    def open_pool(
        max_starts: int = 0, **kernels: object
    ) -> contextlib.AbstractAsyncContextManager[pools.Pool]:
        chosen = {"preload": (), "spares": 0} | kernels
        return pools.Pool.open(
            settings.Settings(
                kernels=settings.Kernels(**chosen),
                paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
            ),
            max_starts=max_starts,
        )

    return open_pool


async def _run(kernel, code: str, **options: object) -> tuple[str, values.Finished]:
    outputs: list[values.Output] = []
    finished = await kernel.execute(code, show=outputs.append, **options)
    return "".join(output.plain for output in outputs), finished


async def _until(condition, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of all kinds
            await asyncio.sleep(0.01)


async def test_names_are_known_whatever_stands_among_those_that_are_hidden(opened):
    hostile = """
class Key(str):
    __hash__ = lambda self: hash("a")
    __eq__ = lambda self, other: 1 / 0
get_ipython().user_ns_hidden[Key("hidden")] = 1
a = 2
"""
    async with opened() as pool:
        kernel = await pool.take("a")
        await _run(kernel, hostile)
        assert kernel.namespace.names == ("a", "Key")
        await _run(kernel, "everything = globals()\nshell = get_ipython()")
        assert kernel.namespace.names == ("shell", "everything", "a", "Key")


async def test_values_that_out_drops_do_not_stay_in_memory(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        await _run(kernel, "import weakref\nclass Large: pass\nkept = []")
        await _run(kernel, "get_ipython().displayhook.cache_size = 3")
        for _ in range(8):
            await _run(kernel, "value = Large()\nkept.append(weakref.ref(value))\nvalue")
        assert (await _run(kernel, "kept[0]() is None, kept[-1]() is None"))[0] == "(True, False)"


@pytest.mark.slow
async def test_what_is_not_preloaded_comes_with_its_import_and_is_as_good(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        loaded = "import sys; sys.modules.keys() & {'numpy', 'pandas', 'matplotlib'}"
        assert (await _run(kernel, loaded))[0] == "set()"
        outputs: list[values.Output] = []
        plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.rcParams['font.family']"
        await kernel.execute(plot, show=outputs.append)
        fonts, image = outputs
        assert fonts.plain.split("'")[1:6:2] == [
            "DejaVu Sans",
            "Noto Sans CJK SC",
            "Noto Sans Arabic",
        ]
        width, _ = struct.unpack(">II", image.data[16:24])
        assert width > 6.4 * 100, "as sharp as plots are that are preloaded"


async def test_what_a_timer_shows_amid_other_outputs_holds_up_nothing(opened):
    shows = """
        import signal
        signal.signal(signal.SIGALRM, lambda *_: print('x' * 40_000))
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    """
    async with opened() as pool:
        kernel = await pool.take("a")
        await _run(kernel, textwrap.dedent(shows))
        for number in range(40):
            async with asyncio.timeout(10):
                _, finished = await _run(kernel, str(number), seconds=5.0)
            assert finished.ending is values.Ending.OK


async def test_however_many_ask_at_once_one_kernel_is_started(opened):
    async with opened() as pool:
        kernels = await asyncio.gather(*(pool.take("a") for _ in range(20)))
        assert len({id(kernel) for kernel in kernels}) == 1
        assert len(pool.kernels) == 1


async def test_an_asker_that_goes_away_does_not_take_the_kernel_from_the_others(opened):
    async with opened() as pool:
        leaving = asyncio.create_task(pool.take("a"))
        staying = asyncio.create_task(pool.take("a"))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await _run(await staying, "1"))[1].ending is values.Ending.OK


async def test_spares_are_taken_and_made_up_for(opened):
    async with opened(spares=2) as pool:
        await _until(lambda: pool.spare_count == 2)
        kernel = await pool.take("a")
        assert pool.spare_count == 1
        code = "import os; open('f', 'w').write('x'); os.getcwd()"
        assert (await _run(kernel, code))[0] == "'/mnt/data'"
        workspace = await pool.workspace("a")
        assert [info.name for info in await workspace.list()] == ["f"]
        await _until(lambda: pool.spare_count == 2)


@pytest.mark.parametrize("spares", [0, 1])
async def test_a_spare_is_as_new_as_a_kernel_without_one(opened, spares):
    async with opened(spares=spares) as pool:
        await _until(lambda: pool.spare_count == spares)
        kernel = await pool.take("a")
        assert kernel.execution_count == 0
        assert not kernel.run_count
        seen = "'_' in dir(), Out, In[:-1], get_ipython().execution_count, os.getcwd()"
        printed, _ = await _run(kernel, f"import os; print({seen})")
        assert printed == "False {} [''] 2 /mnt/data\n"


async def test_a_spare_that_died_is_passed_over(opened):
    async with opened(spares=1) as pool:
        await _until(lambda: pool.spare_count == 1)
        (spare,) = pool._spares._ready_kernels
        await spare.provisioner.kill()
        await _until(lambda: not spare.is_alive)
        assert (await _run(await pool.take("a"), "1"))[1].ending is values.Ending.OK


async def test_the_longest_idle_goes_first_and_a_busy_one_never(opened):
    async with opened(concurrent=2) as pool:
        busy = await pool.take("busy")
        running = asyncio.create_task(_run(busy, "import time; time.sleep(60)"))
        await _until(lambda: busy.is_busy)
        idle = await pool.take("idle")
        await _run(idle, "1")
        newcomer = await pool.take("new")
        assert set(pool.kernels) == {"busy", "new"}
        assert not idle.is_alive
        second = asyncio.create_task(_run(newcomer, "import time; time.sleep(60)"))
        await _until(lambda: newcomer.is_busy)
        with pytest.raises(errors.PoolFullError):
            await pool.take("one too many")
        await busy.stop()
        await newcomer.stop()
        assert (await running)[1].ending is values.Ending.STOPPED
        assert (await second)[1].ending is values.Ending.STOPPED


async def test_who_was_evicted_is_told_and_finds_the_files(opened):
    async with opened(concurrent=1) as pool:
        await _run(await pool.take("a"), "open('kept', 'w').write('k')")
        losses = []

        async def lost(*loss):
            losses.append(loss)

        pool.on_loss = lost
        former = pool.kernels["a"]
        await pool.take("b")
        kernel = await pool.take("a")
        key, gone, reason = losses[0]
        assert (key, gone) == ("a", former)
        assert "make room" in reason
        assert (await _run(kernel, "open('kept').read()"))[0] == "'k'"


async def test_a_leased_kernel_is_never_evicted_and_an_unleased_one_at_once(opened):
    async with opened(concurrent=1, idle_seconds=0.01) as pool:
        async with pool.lease("a") as lease, pool.lease("a") as second:
            kernel = await lease.kernel()
            # However long its holder has been thinking.
            kernel.last_used -= 10_000
            assert await pool.reap() == 0
            with pytest.raises(errors.PoolFullError):
                await pool.take("b")
            assert await second.kernel() is kernel
            assert (await _run(kernel, "6 * 7"))[0] == "42"
        assert (await pool.take("b")).is_alive
        assert not kernel.is_alive


async def test_a_lease_holds_until_its_last_holder_is_gone(opened):
    async with opened(concurrent=1) as pool, pool.lease("a") as lease:
        async with pool.lease("a"):
            await lease.kernel()
        with pytest.raises(errors.PoolFullError):
            await pool.take("b")


async def test_the_kernel_starts_while_the_holder_does_something_else(opened):
    async with opened() as pool, pool.lease("a") as lease:
        await _until(lambda: "a" in pool.kernels)
        started = pool.kernels["a"]
        assert await lease.kernel() is started


async def test_a_start_without_room_waits_for_it_before_anybody_asks(opened):
    async with opened(concurrent=1) as pool, contextlib.AsyncExitStack() as held:
        first = await held.enter_async_context(pool.lease("a"))
        await first.kernel()
        async with pool.lease("b") as lease:
            await held.aclose()
            await _until(lambda: set(pool.kernels) == {"b"})
            assert (await _run(await lease.kernel(), "1"))[1].ending is values.Ending.OK


async def test_idle_time_begins_when_the_lease_ends(opened):
    async with opened(idle_seconds=5) as pool:
        async with pool.lease("a") as lease:
            (await lease.kernel()).last_used -= 10_000
        assert await pool.reap() == 0


async def test_a_dead_kernel_takes_no_room(opened):
    async with opened(concurrent=1) as pool, pool.lease("a") as lease:
        await _run(await lease.kernel(), "import os; os._exit(9)")
        async with pool.lease("b") as other:
            assert (await other.kernel()).is_alive
        again = await lease.kernel()
        assert "exit code 9" in again.loss_notice


async def test_of_two_that_start_at_once_one_gets_the_only_room(opened):
    async with opened(concurrent=2) as pool, pool.lease("held") as lease:
        await lease.kernel()
        got = await asyncio.gather(*map(pool.take, "ab"), return_exceptions=True)
        assert [type(one) for one in got].count(errors.PoolFullError) == 1
        assert len(pool.kernels) == 2


async def test_two_that_start_at_once_evict_only_what_they_need(opened):
    async with opened(concurrent=3) as pool:
        for key in ("oldest", "older", "old"):
            await pool.take(key)
        await asyncio.gather(pool.take("a"), pool.take("b"))
        assert set(pool.kernels) == {"old", "a", "b"}


async def test_a_spare_on_its_way_is_waited_for_where_it_takes_the_last_place(opened, slow_starts):
    async with opened(concurrent=1, spares=1) as pool:
        await _until(lambda: slow_starts.count)
        assert pool.spare_count == 0
        assert (await pool.take("a")).is_alive


async def test_places_are_free_again_after_starts_that_failed(opened, monkeypatch):
    async def fail(*_, **__):
        raise errors.KernelStartError

    async with opened(concurrent=1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(launchers, "launch", fail)
            for _ in range(3):
                with pytest.raises(errors.KernelStartError):
                    await pool.take("a")
        with monkeypatch.context() as patch:
            patch.setattr(machine_setup.MachineSetup, "attach", fail)
            with pytest.raises(errors.KernelStartError):
                await pool.take("a")
        async with pool.lease("a", person="ada") as lease:
            assert (await lease.kernel()).is_alive


async def test_a_release_takes_no_longer_than_the_end_of_the_processes(opened):
    seconds = []
    async with opened() as pool:
        # The quickest, because the machine does other things too.
        while len(seconds) < 20 and min(seconds, default=1) >= 0.1:
            await _run(await pool.take("a"), "1")
            started = time.monotonic()
            await pool.release("a")
            seconds.append(time.monotonic() - started)
    # Whoever asks each 0.1 s whether it is over never hears it sooner.
    assert min(seconds) < 0.1, seconds


async def test_a_release_whose_caller_goes_away_is_finished(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        releasing = asyncio.create_task(pool.release("a"))
        await asyncio.sleep(0)
        releasing.cancel()
        again = await pool.take("a")
        assert not kernel.is_alive
        assert (await _run(again, "6 * 7"))[0] == "42"


async def test_reaping_lets_the_unused_go_and_the_busy_stay(opened):
    async with opened(idle_seconds=0.2) as pool:
        busy = await pool.take("busy")
        wait = "import os, time\nwhile not os.path.exists('over'): time.sleep(0.01)"
        running = asyncio.create_task(_run(busy, wait))
        await pool.take("idle")
        await asyncio.sleep(0.4)
        assert await pool.reap() == 1
        assert set(pool.kernels) == {"busy"}
        ((await pool.workspace("busy")).directory / "over").touch()
        assert (await running)[1].ending is values.Ending.OK


async def test_the_scheduler_reaps(tmp_path, short_path, monkeypatch):
    monkeypatch.setattr(local_host, "_REAP_INTERVAL_SECONDS", 0.1)
    config = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0, idle_seconds=0.2),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
    )
    async with local_startup.open_host(config) as host:
        await host.pool.take("a")
        await _until(lambda: not host.pool.kernels)


async def test_preloaded_libraries_are_released_once_nobody_uses_a_kernel(opened, caplog):
    async with opened(spares=1, idle_seconds=100, rest_seconds=1000) as pool:
        await pool.take("a")
        server, first = _server(pool), _server_process(pool)
        await _until(lambda: pool.spare_count == 1)
        # The pool is as old as it gets, and so is a session that somebody holds.
        pool._spares._last_used -= 10_000
        async with pool.lease("a") as lease:
            (await lease.kernel()).last_used -= 10_000
            assert await pool.reap() == 0
            await pool.forget("a")
        await pool.reap()
        assert (server.is_alive, pool.spare_count) == (True, 1), "it was used until just now"
        pool._spares._last_used -= 10_000
        (await pool.take("b")).last_used -= 500
        assert await pool.reap() == 1
        await pool.reap()
        assert server.is_alive, "it was used half as long ago as that takes"
        pool._spares._last_used -= 500
        await _until(lambda: pool.spare_count == 1)
        await pool.reap()
        assert (server.is_alive, pool.spare_count) == (False, 0)
        assert not session_metering.start_ticks(first)
        # Several at once, and one that rests again in the same moment.
        taken = await asyncio.gather(*(pool.take(key) for key in "ab"), pool.reap())
        assert [(await _run(kernel, "6 * 7"))[0] for kernel in taken[:2]] == ["42", "42"]
        await _until(lambda: pool.spare_count == 1)
        await server.stop_if_unused()
        assert server.is_alive, "kernels are its own"
    assert "the fork server died" not in caplog.text


@pytest.mark.slow
async def test_a_kernel_is_there_before_all_is_preloaded_and_lives_on(opened):
    modules = ("pandas", "matplotlib.pyplot", "seaborn", "sklearn.ensemble")
    is_imported = "import sys; 'pandas' in sys.modules"
    async with opened(preload=modules, spares=1) as pool:
        early = await pool.take("early")
        assert (await _run(early, is_imported))[0] == "False"
        assert not _server(pool, "early").preloading_ended.is_set()
        first = _server_process(pool, "early")
        await _until(lambda: pool.spare_count == 1)
        assert (await _run(await pool.take("late"), is_imported))[0] == "True"
        assert _server_process(pool, "late") != first
        assert (await _run(early, "import pandas; pandas.DataFrame([1]).size"))[0] == "1"
        await pool.release("early")
        assert not session_metering.start_ticks(first)


@pytest.mark.slow
@pytest.mark.namespaces
async def test_early_kernels_live_on_whoever_notices_first_that_they_are_the_last(opened):
    async with opened(preload=("pandas",)) as pool:
        early = await pool.take("early")
        server = _server(pool, "early")
        first, forking = _init_server(pool, "early"), _serving(pool, "early")
        os.kill(first, signal.SIGSTOP)
        await _until(lambda: procfs.has_ended(procfs.stat_fields(forking)))
        assert server.preloading_ended.is_set()
        os.kill(first, signal.SIGCONT)
        await asyncio.sleep(1)
        assert (await _run(early, "6 * 7"))[0] == "42"


async def test_for_what_leaves_nothing_behind_nothing_is_preloaded(tmp_path, short_path):
    code = "import sys; 'pandas' in sys.modules"
    config = settings.Settings(
        kernels=settings.Kernels(preload=("pandas",), spares=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=short_path),
    )
    async with pools.Pool.open(config, is_ephemeral=True) as pool:
        kernel = await pool.take("a")
        assert _server(pool).preloading_ended.is_set()
        assert (await _run(kernel, code))[0] == "False"


async def test_the_fork_servers_death_is_survived(opened):
    async with opened() as pool:
        kernel = await pool.take("a")
        os.kill(_server_process(pool), signal.SIGKILL)
        if machine.offers_namespaces():
            await _until(lambda: not kernel.is_alive)
            assert (await pool.take("a")).loss_notice
        # Otherwise it lives on.
        for key in "ab":
            assert (await _run(await pool.take(key), "6 * 7"))[0] == "42"


async def test_a_python_that_cannot_run_is_refused_in_a_sentence(opened):
    with pytest.raises(errors.KernelStartError, match="cannot be run"):
        async with opened(python="/nonexistent/python"):
            pass


async def test_a_runtime_path_too_long_for_sockets_is_refused_in_a_sentence(tmp_path):
    bot = settings.Settings(
        kernels=settings.Kernels(preload=(), spares=0),
        paths=settings.Paths(data=tmp_path / "data", runtime=tmp_path / ("long" * 25)),
    )
    with pytest.raises(errors.BotError, match="too long"):
        async with pools.Pool.open(bot) as pool:
            await pool.take("a")


async def test_who_comes_while_a_session_is_forgotten_gets_new_files_that_stay(opened):
    async with opened() as pool:
        await _run(await pool.take("a"), "open('old', 'w').close()")
        forgetting = [asyncio.create_task(pool.forget("a")) for _ in range(2)]
        await asyncio.sleep(0)
        kernel = await pool.take("a")
        await asyncio.gather(*forgetting)
        assert (await _run(kernel, "import os; open('new', 'w').close(); os.listdir()"))[0] == (
            "['new']"
        )
        assert [info.name for info in await (await pool.workspace("a")).list()] == ["new"]


async def test_what_is_done_to_files_is_done_by_all_who_want_it(opened):
    async with opened() as pool:
        done = []

        async def work(_):
            await asyncio.sleep(0.01)
            done.append("kept")

        await asyncio.gather(
            pool.run_without_kernel("a", work), pool.run_without_kernel("a", work), pool.forget("a")
        )
        assert done == ["kept", "kept"]
        assert not await pool.stored_workspaces()


async def test_a_session_is_forgotten_that_is_just_being_started(opened):
    async with opened() as pool, asyncio.timeout(20):
        taking = asyncio.create_task(pool.take("a"))
        await asyncio.sleep(0)
        await pool.forget("a")
        await taking
        assert not pool.kernels


@pytest.fixture
def slow_starts(monkeypatch):
    """Let each start take its time; tells how many began, had begun at each end, ran at most."""
    launch, running = launchers.launch, []

    class Starts:
        count = most = 0
        seconds = 0.2
        at_ends: ClassVar[list[int]] = []

    async def slow_launch(context, **options):
        running.append(None)
        Starts.count += 1
        Starts.most = max(Starts.most, len(running))
        try:
            await asyncio.sleep(Starts.seconds)
            return await launch(context, **options)
        finally:
            running.pop()
            Starts.at_ends.append(Starts.count)

    monkeypatch.setattr(launchers, "launch", slow_launch)
    return Starts


async def test_so_many_kernels_start_at_a_time_the_first_to_come_first(opened, slow_starts):
    order, spare_counts = [], []
    async with opened(max_starts=2, concurrent=20, spares=1) as pool:
        await _until(lambda: pool.spare_count == 1)

        async def start(key):
            await pool.take(key)
            order.append(key)
            spare_counts.append(pool.spare_count)

        await asyncio.gather(*(start(key) for key in "abcdefg"))
        assert slow_starts.most == 2
        # The spare was there. Of two at a time either may take longer, but whoever ends n-th
        # is of the first n + 1 to come, as no others have begun.
        assert order[0] == "a"
        assert all(key in "bcdefg"[: n + 1] for n, key in enumerate(order[1:], start=1))
        # A new one is begun when nobody waits any more, which is when the last but one is there.
        assert spare_counts[:6] == [0] * 6
        await _until(lambda: pool.spare_count == 1)
        assert slow_starts.count == 8


async def test_a_session_takes_the_spare_that_is_being_started(opened, slow_starts):
    async with opened(max_starts=4, concurrent=20, spares=1) as pool:
        await _until(lambda: slow_starts.count == 1)
        first = await pool.take("a")
        assert slow_starts.count == 1
        assert (await _run(first, "1"))[0] == "1"
        # It is one session's: of two that come at once the other starts its own.
        await _until(lambda: slow_starts.count == 2)
        await asyncio.gather(pool.take("b"), pool.take("c"))
        assert slow_starts.count in (3, 4)


async def test_a_session_needs_the_place_of_a_spare_that_cannot_be_started(opened, monkeypatch):
    launch, refused = launchers.launch, []

    async def refuse_once(context, **options):
        if refused:
            return await launch(context, **options)
        refused.append(True)
        await asyncio.sleep(0.2)
        raise errors.KernelStartError

    monkeypatch.setattr(launchers, "launch", refuse_once)
    async with opened(concurrent=1, spares=1) as pool:
        await _until(lambda: refused)
        assert (await pool.take("a")).is_alive


async def test_the_time_for_a_start_does_not_run_while_it_waits(opened, monkeypatch):
    # More than twice what each start is made to take: a busy machine may add as much again.
    limit = 2.5
    monkeypatch.setattr(launchers, "_START_SECONDS", limit)
    async with opened(max_starts=1, concurrent=20) as pool:
        kind = provisioners.ForkProvisioner
        launch = kind.launch

        async def launch_slowly(self):
            await asyncio.sleep(1)
            return await launch(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "launch", launch_slowly)
            started = time.monotonic()
            await asyncio.gather(*(pool.take(str(number)) for number in range(3)))
            assert time.monotonic() - started > limit


@pytest.mark.namespaces
async def test_a_fork_server_that_is_late_once_ends_no_session(opened, monkeypatch):
    monkeypatch.setattr(forkserver_clients, "_ANSWER_SECONDS", 0.3)
    async with opened() as pool:
        kernel = await pool.take("a")
        serving, inits = _serving(pool), _init_server(pool)
        before = set(procfs.children(inits))
        os.kill(serving, signal.SIGSTOP)
        with pytest.raises(errors.KernelStartError):
            await pool.take("b")
        os.kill(serving, signal.SIGCONT)
        monkeypatch.setattr(forkserver_clients, "_ANSWER_SECONDS", 10.0)
        other = await pool.take("b")
        assert (await _run(other, "1"))[0] == "1"
        assert (await _run(kernel, "2"))[0] == "2"
        # What it forked too late ended by itself.
        await _until(lambda: len(set(procfs.children(inits)) - before) == 1)
        assert _serving(pool) == serving


@pytest.mark.namespaces
async def test_a_start_that_is_cancelled_before_the_fork_server_is_asked_leaves_nothing(opened):
    async with opened() as pool:
        kernel, server, serving = await pool.take("a"), _server(pool), _serving(pool)
        os.kill(serving, signal.SIGSTOP)
        # While this request waits for its answer, the start's request waits for its turn.
        first = asyncio.create_task(server.clone_trees("missing"))
        await asyncio.sleep(0)
        start = asyncio.create_task(
            launchers.launch(kernel.provisioner.host_context, grace_seconds=1.0)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        start.cancel()
        await asyncio.wait({start})
        os.kill(serving, signal.SIGCONT)
        await asyncio.gather(first, return_exceptions=True)
        await pool.release("a")
        async with asyncio.timeout(30):
            while not server.was_stopped:
                await server.stop_if_unused()
                await asyncio.sleep(0.01)


@pytest.mark.namespaces
async def test_a_fork_server_that_stays_silent_is_replaced_and_lives_as_long_as_its_kernels(
    opened, monkeypatch
):
    async with opened(spares=1) as pool:
        kernel = await pool.take("a")
        await _run(kernel, "x = 41")
        await _until(lambda: pool.spare_count)
        server, former = _server(pool), _server_process(pool)
        os.kill(serving := _serving(pool), signal.SIGSTOP)
        await _silence(server, monkeypatch)
        await _until(lambda: not session_metering.start_ticks(serving))
        # What stands by is of the former server; its files come from the new one.
        assert (await _run(await pool.take("b"), "open('f', 'w').write('f')"))[0] == "1"
        assert (await _run(await pool.take("c"), "1"))[0] == "1"
        assert _server_process(pool, "c") != former
        assert (await _run(kernel, "x + 1"))[0] == "42"
        pids = pool.kernels["a"].provisioner.meter().pids()
        await pool.release("a")
        assert not any(map(session_metering.start_ticks, pids))
        assert session_metering.start_ticks(former)
        await pool.release("b")
        assert not session_metering.start_ticks(former)
        assert (await _run(await pool.take("c"), "1"))[0] == "1"


async def test_nothing_is_left_of_a_fork_server_that_never_answers_again(opened, monkeypatch):
    async with opened() as pool:
        await pool.take("a")
        server, former = _server(pool), _server_process(pool)
        os.kill(_serving(pool), signal.SIGSTOP)
        await _silence(server, monkeypatch)
        await pool.take("b")
    assert not session_metering.start_ticks(former)


async def test_kernels_outlive_a_fork_server_that_dies(opened):
    async with opened() as pool:
        kernel, ended = await pool.take("a"), await pool.take("ended")
        await _run(kernel, "x = 41")
        server, former = _server(pool), _server_process(pool)
        os.kill(_serving(pool), signal.SIGKILL)
        await _until(lambda: not server.is_alive)
        assert (await _run(await pool.take("b"), "1"))[0] == "1"
        assert _server_process(pool, "b") != former
        assert (await _run(kernel, "x + 1"))[0] == "42"
        _, finished = await _run(ended, "import os; os._exit(3)")
        assert finished.ending is values.Ending.CRASHED
        # Unknown, if the kernel was a child of the fork server.
        how = "The Python process ended unexpectedly.", "The code ended its own Python process"
        assert finished.reason.startswith(how[not machine.offers_namespaces()])
        pids = pool.kernels["a"].provisioner.meter().pids()
        await pool.release("a")
        assert not any(map(session_metering.start_ticks, pids))
        await pool.release("ended")
        assert not session_metering.start_ticks(former)


STOP_AND_CONTINUE = """
import os, signal
kernel = os.getpid()
if os.fork() == 0:
    for _ in range(500):
        os.kill(kernel, signal.SIGSTOP)
        os.kill(kernel, signal.SIGCONT)
    os._exit(0)
os.wait()[1]
"""


@pytest.mark.namespaces
async def test_no_kernel_keeps_the_fork_server_busy_whose_child_it_is(opened):
    async with opened() as pool:
        kernel, serving = await pool.take("a"), _serving(pool)
        before = -1
        # What follows the fork of the kernel is not over with it.
        while (now := procfs.processor_time_ns(serving)) != before:
            before = now
            await asyncio.sleep(0.1)
        assert (await _run(kernel, STOP_AND_CONTINUE))[0] == "0"
        assert procfs.processor_time_ns(serving) == before > 0


@pytest.mark.namespaces
async def test_no_kernel_gets_what_the_fork_server_holds_for_others(opened):
    held = "import os; print(os.getppid(), len(os.listdir('/proc/self/fd')))"
    async with opened() as pool:
        texts = [(await _run(await pool.take(str(number)), held))[0] for number in range(3)]
        assert len(set(texts)) == 1
        assert texts[0].startswith("0 "), "its parent is in none of its namespaces"


def _server(pool, key="a"):
    return pool.kernels[key].provisioner.host_context.server


def _server_process(pool, key="a"):
    """The pid of the bot's child that has forked a session's kernel."""
    pid = pool.kernels[key].provisioner.meter().pids()[0]
    while (parent := int(procfs.stat_fields(pid)[1])) != os.getpid():
        pid = parent
    return pid


def _init_server(pool, key="a"):
    (first,) = procfs.children(_server_process(pool, key))
    return first


def _serving(pool, key="a"):
    """The pid of the fork server, the first that its init server forked, where there is one."""
    if not machine.offers_namespaces():
        return _server_process(pool, key)
    return procfs.children(_init_server(pool, key))[0]


async def _silence(server, monkeypatch):
    """Ask a server that is stopped until it is given up."""
    with monkeypatch.context() as patch:
        patch.setattr(forkserver_clients, "_ANSWER_SECONDS", 0.2)
        for _ in range(3):
            assert server.is_alive
            with pytest.raises(errors.KernelStartError):
                await server.clone_trees("a/b")
    assert not server.is_alive


async def test_what_threads_show_costs_no_descriptors_and_an_idle_kernel_does_not_wake(opened):
    code = """
    import os, re, threading, time

    def switches():
        own = str(threading.get_native_id())
        tasks = [f"/proc/self/task/{one}/status" for one in os.listdir("/proc/self/task")
                 if one != own]
        said = re.compile(r"^voluntary_ctxt_switches:\\s*(\\d+)", re.M)
        return [int(said.search(open(task).read())[1]) for task in tasks]

    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        one = threading.Thread(target=display, args=(1,))
        one.start(); one.join()
    time.sleep(0.2)
    before = switches()
    time.sleep(0.5)
    print(switches() == before)
    print(len(os.listdir("/proc/self/task")) - threads, len(os.listdir("/proc/self/fd")) - files)
    """
    async with opened() as pool:
        text, _ = await _run(await pool.take("a"), textwrap.dedent(code))
        assert text == "1" * 30 + "True\n0 0\n"


@pytest.mark.first_case
@pytest.mark.parametrize(
    "echo",
    [
        "!echo a{number}",
        "subprocess.run(['echo', f'a{number}'])",
        "subprocess.Popen(f'echo a{number}', shell=True).wait(timeout=9)",
        "os.system(f'echo a{number}')",
    ],
)
async def test_what_a_program_prints_comes_before_what_code_prints_after_it(opened, echo):
    # The thread that reads what programs write has to wait for one that computes.
    code = f"""
    import os, subprocess, threading

    def compute():
        while computing:
            pass

    computing = True
    thread = threading.Thread(target=compute)
    thread.start()
    for number in range(20):
        {echo}
        print(f"b{{number}}")
    computing = False
    """
    async with opened() as pool:
        text, _ = await _run(await pool.take("a"), textwrap.dedent(code))
        assert text.split() == [f"{letter}{number}" for number in range(20) for letter in "ab"]


async def test_a_child_displays_nothing_and_waits_for_no_thread_that_it_does_not_have(opened):
    code = """
    import os, signal, sys, threading

    held, done = threading.Event(), threading.Event()

    def print_for_long():
        with sys.stdout._printer._lock:
            print("printed")
            held.set()
            done.wait()

    thread = threading.Thread(target=print_for_long)
    thread.start()
    held.wait()
    if not (child := os.fork()):
        signal.alarm(5)
        display(1)
        os._exit(7)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    print(os.waitstatus_to_exitcode(status))
    """
    async with opened() as pool:
        text, _ = await _run(await pool.take("a"), textwrap.dedent(code))
        assert text == "printed\n7\n"


async def test_what_waits_for_programs_can_be_saved(opened):
    code = """
    import os, pickle, subprocess
    print([pickle.loads(pickle.dumps(one)) is one for one in (os.system, subprocess.Popen.wait)])
    """
    async with opened() as pool:
        text, _ = await _run(await pool.take("a"), textwrap.dedent(code))
        assert text == "[True, True]\n"


async def test_a_clock_that_code_replaces_stops_no_output(opened):
    code = """
    import time
    from unittest import mock

    with mock.patch("time.monotonic", side_effect=[1.0]):
        print("replaced")
        time.sleep(0.2)
    """
    async with opened() as pool:
        kernel = await pool.take("a")
        assert (await _run(kernel, textwrap.dedent(code)))[0] == "replaced\n"
        assert (await _run(kernel, "print('back')"))[0] == "back\n"


@pytest.mark.slow
async def test_a_thread_that_computes_keeps_the_event_loop_waiting_for_less_than_is_usual(opened):
    async def delays(interval):
        sys.setswitchinterval(interval)
        computing = threading.Event()

        def compute():
            while not computing.is_set():
                pass

        seconds = []
        task = asyncio.create_task(asyncio.to_thread(compute))
        for _ in range(20):
            began = time.monotonic()
            await asyncio.sleep(0.002)
            seconds.append(time.monotonic() - began - 0.002)
        computing.set()
        await task
        return statistics.median(seconds)

    async with opened():
        ours = sys.getswitchinterval()
        usual = 0.005
        # Of several, because the machine does other things too.
        assert any([await delays(ours) < await delays(usual) / 2 for _ in range(5)])
        sys.setswitchinterval(ours)
